"""What episodes show about targets, and curves brought to it."""

import numpy as np
import pytest

from quantail.risk.shown import ShownByTarget, add_episodes, corrected, on_grid
from quantail.types import FloatArray

GRID = np.linspace(-4.0, 2.0, 33)
NOTHING = np.zeros((2, 33))
SHORT = np.maximum(GRID - np.tanh(GRID), 0.0)


def filled(episodes: int, noise: float, updates: int = 1, rate: float = 0.05) -> ShownByTarget:
    """Episodes whose mean rises smoothly with the target, and falls short of it above 0."""
    generator = np.random.default_rng(0)
    state = ShownByTarget()
    for _ in range(updates):
        targets = generator.uniform(-4.0, 2.0, episodes)
        returns = np.tanh(targets) + noise * generator.normal(size=episodes)
        state = add_episodes(state, GRID, targets, returns, rate)
    return state


def empty(state: ShownByTarget, rate: float) -> ShownByTarget:
    """One more update without any episode."""
    return add_episodes(state, GRID, GRID[:0], GRID[:0], rate)


def test_a_smooth_curve_is_found_without_any_help() -> None:
    means, shortfalls = corrected(filled(20_000, noise=0.0), NOTHING)
    assert means == pytest.approx(np.tanh(GRID), abs=0.2)
    assert shortfalls == pytest.approx(SHORT, abs=0.2)


def test_a_shape_that_is_right_but_for_level_is_kept() -> None:
    """Even a step, which no spline would find."""
    state = ShownByTarget()
    targets = np.random.default_rng(1).uniform(-4.0, 2.0, 20_000)
    state = add_episodes(state, GRID, targets, np.where(targets > 0.0, 5.0, 1.0), 0.05)
    truth = np.where(GRID > 0.0, 5.0, 1.0)
    helped, alone = (corrected(state, level + NOTHING)[0] for level in (truth - 3.0, 0.0))
    inner = np.abs(GRID) > 0.2  # an episode next to the step counts for both sides
    assert np.abs(helped - truth)[inner].max() < 0.2
    assert np.abs(alone - truth)[inner].max() > 0.8


@pytest.mark.parametrize("factor", [30.0, -30.0])
def test_a_shape_that_is_wrong_is_left_out(factor: float) -> None:
    """A cliff that the critics alone see, fifteen times what episodes differ by."""
    cliff: FloatArray = factor * (GRID > 0.5)
    means, shortfalls = corrected(filled(20_000, noise=0.0), np.stack([cliff, cliff]))
    assert means == pytest.approx(np.tanh(GRID), abs=0.8)
    assert shortfalls == pytest.approx(SHORT, abs=0.8)


def test_noise_is_averaged_over_neighbors() -> None:
    """About five numbers are fitted to all episodes: far less noise than target by target."""
    noisy, clean = (corrected(filled(20_000, noise), NOTHING)[0] for noise in (5.0, 0.0))
    error = float(np.sqrt(np.mean((noisy - clean) ** 2)))
    alone = 5.0 / np.sqrt(20_000 / 33)
    assert 0.2 * alone < error < 0.6 * alone


def test_until_there_are_episodes_the_critics_are_believed() -> None:
    predicted = np.stack([np.sin(GRID), 3.0 + GRID])
    assert corrected(empty(ShownByTarget(), 0.1), predicted) == pytest.approx(predicted)
    few = corrected(filled(5, noise=0.0), predicted)
    assert np.abs(few - predicted).max() < 1.0
    assert np.abs(corrected(filled(20_000, noise=0.0), predicted) - predicted).max() > 3.0


def test_a_prediction_that_moves_does_not_leave_its_error_behind() -> None:
    """Episodes are kept as they were, not as what they missed an older prediction by."""
    state = filled(20_000, noise=0.0)
    far, near = (corrected(state, level + NOTHING)[0] for level in (-40.0, 0.0))
    assert far == pytest.approx(near, abs=0.5)  # a few episodes agree with the critics


def test_older_episodes_are_forgotten() -> None:
    state = filled(1000, noise=0.0)
    for _ in range(100):
        state = empty(state, 0.1)
    assert sum(state.counts) == pytest.approx(1000 * 0.9**100)
    assert sum(filled(1000, noise=0.0, updates=60).counts) == pytest.approx(
        1000 * (1 - 0.95**60) / 0.05
    )


def test_each_episode_counts_once_and_those_from_beyond_the_grid_never() -> None:
    """As those that ran when the first target was set; they say nothing of targets near it."""
    targets = np.array([-9.0, -4.0, -3.9, 0.1, 2.0, 7.0])
    state = add_episodes(ShownByTarget(), GRID, targets, np.full(6, -3.0), 0.1)
    assert sum(state.counts) == pytest.approx(4.0)
    assert sum(state.means) == pytest.approx(-12.0)
    assert sum(state.shortfalls) == pytest.approx(0.0 + 0.0 + 3.1 + 5.0)
    assert state.counts[-1] == 1.0


def test_a_wider_grid_has_no_episodes_where_none_were() -> None:
    state = filled(1000, noise=0.0)
    wide = on_grid(state, GRID, np.linspace(-8.0, 4.0, 33))
    assert wide.counts[0] == wide.counts[-1] == 0.0
    assert sum(wide.counts) < sum(state.counts)


def test_another_grid_keeps_the_shape() -> None:
    places = np.linspace(-3.5, 1.5, 33)
    moved = on_grid(filled(20_000, noise=0.0), GRID, places)
    assert corrected(moved, NOTHING)[0] == pytest.approx(np.tanh(places), abs=0.2)
