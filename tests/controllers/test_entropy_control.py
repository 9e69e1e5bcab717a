"""The entropy coefficient: floor and cap hold, and a plateau delays the decay."""

import math
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from quantail.errors import ConfigError
from quantail.nets.actors import SquashedGaussian, base_entropy
from quantail.nets.actors.gaussian import Bounds
from quantail.optim.entropy_control import (
    EntropyBoost,
    EntropyControl,
    EntropyDecay,
    EntropyState,
    Plateau,
    coefficient,
    observe,
    slope,
    without_effect,
)
from tests.catalogue import catalogue


def run(
    control: EntropyControl, base: float, history: list[tuple[float, float]]
) -> tuple[list[float], EntropyState]:
    """Return the coefficient of every cycle, given its entropy and explained variance."""
    state, used = EntropyState(), []
    for update, (entropy, explained) in enumerate(history):
        used.append(coefficient(control, state, base, update).used)
        state = observe(control, state, update, entropy, explained)
    return used, state


controls = st.builds(
    lambda floor, decay, boost, cap: EntropyControl(
        floor=floor,
        decay=decay,
        boost=None if boost is None else EntropyBoost(factor=boost, cap=cap and floor + cap),
    ),
    st.floats(1e-6, 0.1),
    st.one_of(
        st.none(),
        st.builds(
            EntropyDecay,
            final=st.floats(0, 0.2),
            updates=st.integers(1, 50),
            plateau=st.one_of(st.none(), st.builds(Plateau, window=st.integers(2, 10))),
        ),
    ),
    st.one_of(st.none(), st.floats(1.01, 10)),
    st.one_of(st.none(), st.floats(0.001, 1)),
)
histories = st.lists(
    st.tuples(st.floats(-5, 5), st.one_of(st.floats(-10, 1), st.just(math.nan))),
    min_size=1,
    max_size=60,
)


@catalogue("F09", "F11")
@hypothesis_settings(max_examples=1000, deadline=None)
@given(control=controls, base=st.floats(0, 0.5), history=histories)
def test_the_coefficient_never_leaves_floor_and_cap(
    control: EntropyControl, base: float, history: list[tuple[float, float]]
) -> None:
    used, _ = run(control, base, history)
    assert min(used) >= control.floor
    if control.boost is not None:
        cap = control.boost.cap
        assert max(used) <= (5 * max(base, control.floor) if cap is None else cap) + 1e-12


@catalogue("F10")
def test_a_plateau_starts_the_decay_once_and_nothing_moves_before() -> None:
    """Entropy falls for 6 cycles and is flat from cycle 5 on: the window 5..8 is the first flat."""
    entropies = [5.0 - min(t, 5) for t in range(20)]
    decay = EntropyDecay(final=0.0, updates=4, plateau=Plateau(window=4, tolerance=1e-6))
    used, state = run(EntropyControl(decay=decay), 0.1, [(e, 0.5) for e in entropies])
    assert state.decay_start == 8
    assert used[:9] == [0.1] * 9
    assert used[9:14] == pytest.approx([0.075, 0.05, 0.025, 0.0, 0.0])


@catalogue("F10")
def test_a_plateau_does_not_count_before_its_time() -> None:
    decay = EntropyDecay(updates=4, plateau=Plateau(window=3, min_updates=7))
    used, state = run(EntropyControl(decay=decay), 0.1, [(1.0, 0.5)] * 10)
    assert state.decay_start == 6
    assert used[6] == 0.1
    assert used[7] < 0.1


def test_without_a_plateau_the_decay_starts_at_once() -> None:
    used, _ = run(EntropyControl(decay=EntropyDecay(updates=4)), 0.1, [(1.0, 0.5)] * 6)
    assert used == pytest.approx([0.1, 0.075, 0.05, 0.025, 0.0, 0.0])


@catalogue("F11")
def test_the_boost_grows_is_capped_and_ends() -> None:
    control = EntropyControl(boost=EntropyBoost(factor=1.5, patience=2, cap=0.02))
    used, _ = run(control, 0.01, [(1.0, -0.1)] * 5 + [(1.0, 0.1)] * 2)
    assert used == pytest.approx([0.01, 0.01, 0.01, 0.015, 0.02, 0.02, 0.01])


def test_an_undefined_explained_variance_neither_counts_nor_clears() -> None:
    control = EntropyControl(boost=EntropyBoost(patience=0))
    _, state = run(control, 0.01, [(1.0, -0.1), (1.0, math.nan)])
    assert state.bad == 1


@catalogue("F12")
def test_a_decay_at_the_floor_changes_nothing_and_says_so() -> None:
    decay = EntropyDecay(updates=5, plateau=Plateau(window=2))
    control = EntropyControl(floor=0.01, decay=decay)
    used, state = run(control, 0.01, [(1.0, 0.5)] * 6)
    assert used == [0.01] * 6
    assert state.decay_start == 1
    assert "the floor is used throughout" in str(without_effect(control, 0.01))
    assert without_effect(control, 0.02) is None
    assert without_effect(None, 0.0) is None


def test_a_boost_starts_from_the_floor() -> None:
    control = EntropyControl(floor=0.02, boost=EntropyBoost(factor=1.5, patience=2))
    found = coefficient(control, EntropyState(bad=3), 0.0, 0)
    assert (found.raw, found.nominal) == (0.0, 0.02)
    assert found.used == pytest.approx(0.03)


def test_slope_by_hand() -> None:
    assert slope([1.0, 3.0, 5.0]) == pytest.approx(2.0)
    assert slope([2.0, 0.0, 1.0, 1.0]) == pytest.approx(-0.2)


@catalogue("X48")
def test_the_slope_reads_the_entropy_before_squashing() -> None:
    """Moving the action toward the bound changes the squashed entropy, not that of its noise."""
    bounds = Bounds(-torch.ones(1), torch.ones(1), (1,))
    laws = [
        SquashedGaussian(torch.full((3, 1), where), torch.full((3, 1), -0.5), bounds)
        for where in (0.0, 2.0)
    ]
    first, second = (base_entropy(law) for law in laws)
    assert torch.equal(first, second)
    assert float(first[0]) == pytest.approx(-0.5 + 0.5 * math.log(2 * math.pi * math.e), rel=1e-6)
    assert float((laws[0].entropy() - laws[1].entropy()).abs().min()) > 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (EntropyControl, "has no effect; leave it out"),
        (lambda: EntropyControl(floor=0.1, boost=EntropyBoost(cap=0.1)), "cap must be greater"),
        (lambda: Plateau(window=5, min_updates=3), "min_updates has no effect below window"),
        (lambda: EntropyBoost(factor=1.0), "factor: must be greater than 1"),
        (lambda: EntropyDecay(updates=0), "updates: must be at least 1"),
    ],
)
def test_settings_without_effect_are_refused(make: Any, message: str) -> None:
    with warnings.catch_warnings(), pytest.raises(ConfigError, match=message):
        make()
