"""The multiplier and the price of a limit on a mean cost."""

import math
from dataclasses import replace

import numpy as np
import pytest

from quantail.errors import ConfigError
from quantail.risk.cost import (
    CostDual,
    CostLimit,
    CostMeasurement,
    CostState,
    measured_cost,
    price_now,
    step_cost,
    weight_now,
)
from quantail.risk.dual import DualState, first_dual, step_dual

LIMITED = CostLimit(limit=1.0)
ACTIVE = CostState(active=True, unit=0.5, mean_std=3.0, cost_std=2.0, dual=first_dual(LIMITED.dual))


def seen(*costs: float, mean_std: float = 3.0, cost_std: float = 2.0) -> CostMeasurement:
    return CostMeasurement(np.array(costs), mean_std, cost_std)


def test_nothing_counts_before_enough_episodes_have_ended() -> None:
    state = step_cost(LIMITED, CostState(), seen(*[2.0, 4.0] * 4), 0.0)
    assert not state.active
    assert measured_cost(CostState(costs=(1.0,))) is None
    state = step_cost(LIMITED, state, seen(2.0, 4.0, mean_std=5.0, cost_std=0.25), 0.0)
    assert state.active
    assert state.dual == first_dual(LIMITED.dual)
    assert (state.unit, state.mean_std, state.cost_std) == (1.0, 5.0, 0.25)


def test_the_mean_and_its_error() -> None:
    found = measured_cost(CostState(costs=(1.0, 2.0, 3.0, 6.0)))
    assert found is not None
    # deviations -2 -1 0 3: variance 14 / 3, over 4 episodes
    assert (found.mean, found.count) == (3.0, 4)
    assert found.standard_error == pytest.approx((14 / 3 / 4) ** 0.5)


def test_a_mean_above_the_limit_raises_the_multiplier_and_one_below_lowers_it() -> None:
    for cost, rises in ((1.2, True), (0.8, False)):
        for count, new in ((1, 0.01), (100, 1.0), (200, 1.0)):
            after = step_cost(LIMITED, ACTIVE, seen(*[cost] * count), 0.0)
            assert (after.dual.multiplier > ACTIVE.dual.multiplier) == rises
            # the same as CVaR's control with both signs turned
            same = step_dual(LIMITED.dual, ACTIVE.dual, -cost, -1.0, after.unit, new)
            assert after.dual.multiplier == pytest.approx(same.multiplier, rel=1e-9)


def test_a_violation_counts_at_most_as_one_unit_on_both_sides() -> None:
    """Else a careless start winds the multiplier up further than it ever comes back."""
    falling = replace(ACTIVE, unit=1e-3)
    settings = CostLimit(limit=1.0, dual=replace(LIMITED.dual, proportional=0.0, derivative=0.0))
    up = step_cost(settings, ACTIVE, seen(*[1e6] * 100), 0.0).dual
    down = step_cost(settings, falling, seen(*[0.0] * 100), 0.0).dual
    gain, slack = settings.dual.integral, settings.dual.slack
    assert up.integral - 3.7 == pytest.approx(gain)
    assert down.integral - 3.7 == pytest.approx(-gain * (1 - slack))


def test_only_recent_episodes_are_measured_and_all_of_a_large_rollout() -> None:
    state = replace(ACTIVE, costs=(9.0,) * 100)
    after = step_cost(LIMITED, state, seen(*[1.0] * 60), 0.0)
    assert (len(after.costs), sum(after.costs)) == (100, 60.0 + 40 * 9.0)
    assert len(step_cost(LIMITED, state, seen(*[1.0] * 300), 0.0).costs) == 300
    unmoved = step_cost(LIMITED, state, seen(), 0.0)
    assert unmoved.dual == state.dual  # no new episode, nothing learned of the limit
    held = CostLimit(limit=1.0, dual=replace(LIMITED.dual, hold=0.5))
    assert step_cost(held, state, seen(5.0), 0.4).dual == state.dual
    assert step_cost(held, state, seen(5.0), 0.5).dual != state.dual


def test_the_unit_rises_quickly_and_falls_slowly_and_stays_above_a_share_of_the_limit() -> None:
    wide = step_cost(LIMITED, replace(ACTIVE, costs=()), seen(-9.0, 11.0), 0.0)
    assert wide.unit == pytest.approx(0.5 + 0.2 * (10.0 - 0.5))
    narrow = step_cost(LIMITED, ACTIVE, seen(1.0, 1.0), 0.0)
    assert narrow.unit == pytest.approx(0.5 + 0.005 * (0.1 - 0.5))


def test_the_price_turns_spreads_of_cost_into_spreads_of_return() -> None:
    weight = 0.01 * (math.e**3.7 - 1)
    assert weight_now(ACTIVE) == pytest.approx(weight)
    assert price_now(LIMITED, ACTIVE) == pytest.approx(weight * 3.0 / 2.0)
    # costs that never vary are noise of the critic, and are not blown up to the size of returns
    silent = replace(ACTIVE, cost_std=1e-12)
    assert price_now(LIMITED, silent) == pytest.approx(weight * 3.0 / 1e-3)


def test_the_weight_moves_by_factors_and_reaches_zero() -> None:
    steps = [replace(ACTIVE, dual=DualState(multiplier=m)) for m in (0.0, 2.0, 3.0, 6.0, 7.0)]
    none, *weights = map(weight_now, steps)
    assert none == 0.0
    assert weights[1] / weights[0] == pytest.approx(math.e, rel=0.1)
    assert weights[3] / weights[2] == pytest.approx(math.e, rel=0.01)
    assert weight_now(replace(ACTIVE, active=False)) == 0.0


@pytest.mark.parametrize("factor", [1e-4, 1e4])
def test_units_of_cost_and_return_do_not_matter(factor: float) -> None:
    costs = np.linspace(0.5, 2.5, 40)
    states = []
    for k in (1.0, factor):
        settings, state = CostLimit(limit=k), CostState()
        for part in np.split(costs, 4):
            state = step_cost(settings, state, CostMeasurement(k * part, 3.0, k * 2.0), 0.0)
        states.append((state.dual.multiplier, k * price_now(settings, state)))
    assert states[0] == pytest.approx(states[1])


def test_a_control_that_cannot_act_is_refused() -> None:
    with pytest.raises(ConfigError, match="start and cost.dual.integral were both 0"):
        CostLimit(limit=1.0, dual=CostDual(start=0.0, integral=0.0))
    with pytest.raises(ConfigError, match="limit: must be finite; was inf"):
        CostLimit(limit=float("inf"))
