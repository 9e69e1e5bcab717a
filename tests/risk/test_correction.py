"""The smooth part of what episodes missed a prediction by."""

import numpy as np
import pytest

from quantail.risk.correction import CurveError, fitted_error, moved_error, step_error

GRID = np.linspace(-4.0, 2.0, 33)


def filled(episodes: int, noise: float, updates: int = 1, rate: float = 0.05) -> CurveError:
    """Episodes that missed the mean by a step of a smooth shape, and the tail by -1."""
    generator = np.random.default_rng(0)
    state = CurveError()
    for _ in range(updates):
        targets = generator.uniform(-4.0, 2.0, episodes)
        missed = np.stack([np.tanh(targets), -np.ones(episodes)], axis=1)
        missed += noise * generator.normal(size=missed.shape)
        state = step_error(state, GRID, targets, missed, rate)
    return state


def test_a_smooth_error_is_found() -> None:
    means, tails = fitted_error(filled(20_000, noise=0.0))
    assert means == pytest.approx(np.tanh(GRID), abs=0.2)
    assert tails == pytest.approx(-np.ones(33), abs=0.02)


def test_noise_is_averaged_over_neighbors() -> None:
    """About five numbers are fitted to all episodes: far less noise than target by target."""
    noisy, clean = (fitted_error(filled(20_000, noise))[0] for noise in (5.0, 0.0))
    error = float(np.sqrt(np.mean((noisy - clean) ** 2)))
    alone = 5.0 / np.sqrt(20_000 / 33)
    assert 0.2 * alone < error < 0.6 * alone


def test_few_episodes_correct_little() -> None:
    _, tails = fitted_error(filled(5, noise=0.0))
    assert np.abs(tails).max() < 0.3
    assert (
        np.abs(fitted_error(step_error(CurveError(), GRID, GRID[:0], np.zeros((0, 2)), 0.1))).max()
        == 0.0
    )


def test_older_episodes_are_forgotten() -> None:
    state = filled(1000, noise=0.0)
    for _ in range(100):
        state = step_error(state, GRID, GRID[:0], np.zeros((0, 2)), 0.1)
    assert sum(state.counts) == pytest.approx(1000 * 0.9**100)
    assert sum(filled(1000, noise=0.0, updates=60).counts) == pytest.approx(
        1000 * (1 - 0.95**60) / 0.05
    )


def test_sums_count_each_episode_once_and_targets_outside_at_the_ends() -> None:
    targets = np.array([-9.0, -3.9, 0.1, 7.0])
    state = step_error(CurveError(), GRID, targets, np.ones((4, 2)), 0.1)
    assert sum(state.counts) == pytest.approx(4.0)
    assert sum(state.means) == sum(state.tails) == pytest.approx(4.0)
    assert state.counts[-1] == 1.0
    assert state.counts[0] > 1.0


def test_another_grid_keeps_the_shape() -> None:
    places = np.linspace(-3.5, 1.5, 33)
    moved = moved_error(filled(20_000, noise=0.0), GRID, places)
    assert fitted_error(moved)[0] == pytest.approx(np.tanh(places), abs=0.2)
