"""Finding the target: shares, curves, hysteresis, preference."""

import math
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from scipy.stats import norm

from quantail.risk.budget import TargetDraw, after_step, renewed, start_budgets
from quantail.risk.config import DualConfig, RiskConfig, TargetSearch
from quantail.risk.control import (
    RiskMeasurement,
    RiskState,
    alpha_now,
    measured_cvar,
    needed_episodes,
    preference,
    step_risk,
    target_draw,
    trained_weight,
)
from quantail.risk.cvar import empirical_cvar
from quantail.risk.search import (
    Episodes,
    Preference,
    SearchState,
    TargetCurve,
    explore_share,
    first_search,
    settle_search,
    step_search,
    target_grid,
)
from quantail.risk.shown import corrected
from quantail.types import FloatArray

SEARCH = TargetSearch(share=0.8, settle=0.5, grid=41, rate=0.2, hysteresis=0.01)
RETURNS = np.random.default_rng(0).normal(0.0, 1.0, 400)
TRADE_OFF = Preference(weight=0.5)
NO_EPISODES = Episodes(np.zeros(0), np.zeros(0))


def curve(best: float, grid: FloatArray) -> TargetCurve:
    """A mean of 1 everywhere and a tail that is best at one target."""
    return promised(grid, np.ones_like(grid), -5.0 - (grid - best) ** 2)


def promised(grid: FloatArray, means: FloatArray, tails: FloatArray) -> TargetCurve:
    """What critics say whose C = ν - E(ν - G)⁺/α are these, for α = 0.1."""
    return TargetCurve(means, 0.1 * (grid - tails))


def step(
    state: SearchState,
    found: TargetCurve | None,
    prefer: Preference = TRADE_OFF,
    ended: Episodes = NO_EPISODES,
) -> SearchState:
    return step_search(SEARCH, state, found, ended, RETURNS, prefer, alpha=0.1, scale=1.0)


def searched(best: float, updates: int) -> SearchState:
    state = first_search(RETURNS, 0.1, 1.0)
    for _ in range(updates):
        state = step(state, curve(best, target_grid(SEARCH, state)))
    return state


def test_targets_are_drawn_until_one_settles() -> None:
    assert [explore_share(SEARCH, p) for p in (0.0, 0.49, 0.5, 1.0)] == [0.8, 0.8, 0.0, 0.0]


def test_first_target_is_the_quantile_and_its_range_holds_it() -> None:
    state = first_search(RETURNS, 0.1, 1.0)
    assert state.target == np.sort(RETURNS)[39]
    assert state.low < state.target < float(RETURNS.mean()) < state.high


def test_under_a_limit_the_search_starts_there_and_its_range_holds_it() -> None:
    """A policy that takes little risk yet would else never be asked what the limit allows."""
    quiet = first_search(0.01 * RETURNS, 0.1, 0.01, limit=-1.0)
    assert quiet.target == quiet.low == -1.0
    loose = first_search(RETURNS, 0.1, 1.0, limit=-0.5)
    assert loose.target == -0.5
    assert loose.low == first_search(RETURNS, 0.1, 1.0).low
    beyond = first_search(RETURNS, 0.1, 1.0, limit=50.0)
    assert beyond.target == beyond.high < 1.0
    for _ in range(50):
        grid = target_grid(SEARCH, quiet)
        quiet = step(quiet, curve(0.0, grid), Preference(weight=5.0, limit=-1.0))
    assert quiet.low <= -1.0


def test_the_range_holds_the_quantile_of_returns_with_a_rare_loss() -> None:
    """One loss of 100 in a hundred puts the mean below the tenth percentile."""
    returns = np.where(np.arange(400) % 100 == 0, -100.0, 1.0)
    state = first_search(returns, 0.1, float(returns.std()))
    assert state.target == 1.0
    assert state.low < returns.mean() < state.target < state.high


def test_the_best_target_is_found_slowly_from_either_side() -> None:
    for best in (-1.0, 0.0):
        one = searched(best, 1)
        start = first_search(RETURNS, 0.1, 1.0).target
        assert abs(one.target - start) <= 0.21 * abs(best - start) + 0.05
        assert searched(best, 60).target == pytest.approx(best, abs=0.2)


def test_a_target_between_two_of_the_grid_goes_all_the_way() -> None:
    state = first_search(RETURNS, 0.1, 1.0)
    grid = target_grid(SEARCH, state)
    near = replace(state, target=float(grid[20] + 0.4 * (grid[1] - grid[0])))
    peak = promised(grid, np.where(np.arange(41) == 20, 9.0, 0.0), -5.0 + 0 * grid)
    assert step(near, peak).target == pytest.approx(
        near.target + SEARCH.rate * (grid[20] - near.target)
    )


def test_hysteresis_keeps_a_target_that_is_nearly_best() -> None:
    state = first_search(RETURNS, 0.1, 1.0)
    grid = target_grid(SEARCH, state)
    flat = promised(grid, np.ones_like(grid), 1e-3 * np.cos(grid) - 5.0)
    assert step(state, flat).target == state.target


def test_no_noise_lifts_the_tail_above_its_target() -> None:
    """ν - E(ν - G)⁺/α is at most ν, so a target below a limit cannot keep it."""
    state = first_search(RETURNS, 0.1, 1.0, limit=-0.5)
    for _ in range(60):
        grid = target_grid(SEARCH, state)
        bold = promised(grid, -grid, 9.0 + 0 * grid)  # bolder is better, and the tail is a gain
        state = step(state, bold, Preference(weight=5.0, limit=-0.5))
    assert state.target == pytest.approx(-0.5, abs=0.1)


def test_noise_of_one_update_hardly_moves_the_smoothed_curve() -> None:
    state = searched(-1.0, 60)
    grid = target_grid(SEARCH, state)
    wild = promised(grid, np.ones_like(grid), np.where(grid > 0.05, -4.8, -6.0))
    assert step(state, wild).target == pytest.approx(state.target, abs=0.1)


def test_episodes_overrule_critics_that_are_wrong_about_some_targets() -> None:
    """The critics promise the best tail at 0; no episode from a target above -1 reaches it."""
    generator = np.random.default_rng(3)
    state = misled = first_search(RETURNS, 0.1, 1.0)
    for _ in range(60):
        targets = generator.uniform(state.low, state.high, 400)
        returns = np.minimum(targets, -1.0)
        state = step(
            state, curve(0.0, target_grid(SEARCH, state)), ended=Episodes(targets, returns)
        )
        misled = step(misled, curve(0.0, target_grid(SEARCH, misled)))
    assert misled.target == pytest.approx(0.0, abs=0.2)
    assert state.target == pytest.approx(-1.0, abs=0.25)


def test_what_episodes_show_of_the_tail_is_a_bound_that_is_best_at_the_quantile() -> None:
    """For one law of returns at all targets, C(ν) is CVaR at ν = VaR and less elsewhere."""
    generator = np.random.default_rng(4)
    state = first_search(RETURNS, 0.1, 1.0)
    for _ in range(60):
        targets = generator.uniform(state.low, state.high, 4000)
        ended = Episodes(targets, generator.normal(size=4000))
        nothing = TargetCurve(0 * target_grid(SEARCH, state), 0 * target_grid(SEARCH, state))
        state = step(state, nothing, ended=ended)
    grid = target_grid(SEARCH, state)
    means, shortfalls = corrected(state.shown, np.array([state.means, state.shortfalls]))
    tails = grid - shortfalls / 0.1
    exact = grid - (grid * norm.cdf(grid) + norm.pdf(grid)) / 0.1
    assert np.abs(means).max() < 0.1
    assert tails == pytest.approx(exact, abs=0.35)
    assert grid[tails.argmax()] == pytest.approx(norm.ppf(0.1), abs=0.3)
    assert tails.max() == pytest.approx(-norm.pdf(norm.ppf(0.1)) / 0.1, abs=0.2)


@pytest.mark.parametrize("final", ["kept", "quantile"])
def test_a_settled_target_stays(final: Literal["kept", "quantile"]) -> None:
    """Once, at ``settle``, it may become the quantile of the episodes that started from it."""
    settings = RiskConfig(alpha=0.1, weight=1.0, search=TargetSearch(final=final))
    state = step_risk(settings, RiskState(), seen(RETURNS), 0.0)
    found = curve(-0.2, target_grid(settings.search, state.search))
    nothing = np.zeros(0)
    first = RiskMeasurement(nothing, nothing, nothing.astype(bool), found)
    moving = step_risk(settings, state, first, 0.49).search
    assert not moving.settled
    assert moving.target != state.search.target
    settled = step_risk(settings, replace(state, search=moving), first, 0.5)
    assert settled.search.settled
    quantile = empirical_cvar(torch.tensor(state.returns, dtype=torch.float64), 0.1).var
    assert settled.search.target == (moving.target if final == "kept" else quantile)
    later = step_risk(settings, settled, seen(RETURNS + 5.0), 0.6)
    assert later.search == settled.search
    again = step_risk(settings, later, first, 0.1).search
    assert not again.settled


def test_a_target_that_was_never_compared_stays_where_it_is() -> None:
    before = SearchState(target=-3.0)
    after = settle_search(TargetSearch(final="quantile"), before, RETURNS, 0.1)
    assert after == replace(before, settled=True)


def test_without_any_prediction_nothing_is_compared_but_episodes_count() -> None:
    state = first_search(RETURNS, 0.1, 1.0)
    after = step(state, None, ended=Episodes(np.array([-1.0, -0.9]), np.zeros(2)))
    assert after.target == state.target
    assert sum(after.shown.counts) == pytest.approx(2.0)


def test_episodes_that_start_and_end_in_different_rollouts_still_move_the_target() -> None:
    """As in episodes of two rollouts each: one rollout has the starts, the next the ends."""
    state = start = first_search(RETURNS, 0.1, 1.0)
    generator = np.random.default_rng(5)
    for update in range(80):
        if update % 2:
            targets = generator.uniform(state.low, state.high, 400)
            state = step(state, None, ended=Episodes(targets, np.minimum(targets, -1.0)))
        else:
            state = step(state, curve(0.0, target_grid(SEARCH, state)))  # the critics are wrong
    assert state.target == pytest.approx(-1.0, abs=0.25)
    assert state.target != start.target


def test_a_weight_trades_the_mean_for_the_tail() -> None:
    means, tails = np.array([2.0, 1.0]), np.array([-4.0, -1.0])
    assert Preference(weight=0.3)(means, tails).argmax() == 0
    assert Preference(weight=0.4)(means, tails).argmax() == 1


def test_under_a_limit_the_best_mean_that_keeps_it_wins() -> None:
    """Not the safest one, which any large multiplier would choose."""
    means, tails = np.array([2.0, 1.7, 1.0]), np.array([-2.9, -1.3, 1.0])
    assert Preference(weight=5.0, limit=-1.4)(means, tails).argmax() == 1
    assert Preference(weight=5.0, limit=0.9)(means, tails).argmax() == 2
    assert Preference(weight=5.0, limit=3.0)(means, tails).argmax() == 2
    assert Preference(weight=5.0, limit=-9.0)(means, tails).argmax() == 0


def test_a_limit_has_a_price_of_its_own() -> None:
    """Not the multiplier, at which taking no risk may look as good as the best policy."""
    limited = RiskConfig(limit=-1.0, search=TargetSearch(price=3.0))
    assert preference(limited, RiskState(active=True)) == Preference(3.0, -1.0)
    fixed = RiskConfig(weight=0.7)
    assert preference(fixed, RiskState(active=True)) == Preference(0.7)
    assert preference(fixed, RiskState(active=True), 0.2) == Preference(0.2)


def seen(returns: FloatArray, explored: bool = False) -> RiskMeasurement:
    return RiskMeasurement(returns, 0 * returns, np.full(returns.shape, explored), None)


def test_the_tail_has_no_weight_before_enough_episodes_ended() -> None:
    settings = RiskConfig(alpha=0.1, weight=0.7)
    few = step_risk(settings, RiskState(), seen(RETURNS[: needed_episodes(0.1) - 1]), 0.0)
    assert (few.active, trained_weight(settings, few, 0.0)) == (False, 0.0)
    assert target_draw(settings, few, 0.0).share == 0.0
    more = step_risk(settings, few, seen(RETURNS[:1]), 0.0)
    assert (more.active, trained_weight(settings, more, 0.9)) == (True, 0.7)
    assert target_draw(settings, more, 0.0).share == 0.8


def test_the_tail_is_sharpened_until_the_target_settles() -> None:
    search = TargetSearch(sharpness=0.8, settle=0.5)
    state = RiskState(active=True)
    mild, strong = (RiskConfig(weight=w, search=search) for w in (0.3, 2.0))
    assert [trained_weight(mild, state, p) for p in (0.0, 0.49, 0.5)] == [0.8, 0.8, 0.3]
    assert [trained_weight(strong, state, p) for p in (0.0, 0.5)] == [2.0, 2.0]
    assert trained_weight(mild, state, 0.0, scheduled=0.1) == 0.1
    assert preference(mild, state) == Preference(0.3)


def test_explored_episodes_do_not_count_for_the_measured_tail() -> None:
    settings = RiskConfig(alpha=0.1, limit=-1.0, dual=DualConfig(hold=0.0))
    state = step_risk(settings, RiskState(), seen(RETURNS), 0.0)
    worse = step_risk(settings, state, seen(RETURNS - 9.0, explored=True), 0.1)
    assert worse.returns == state.returns
    assert worse.dual == state.dual
    assert step_risk(settings, state, seen(RETURNS - 9.0), 0.1).dual != state.dual
    assert worse.explored_returns == tuple((RETURNS - 9.0).tolist())
    cvar = measured_cvar(settings, worse)
    assert cvar is not None
    assert cvar.cvar == pytest.approx(np.sort(RETURNS)[:40].mean())


def test_the_scale_rises_quickly_and_falls_slowly() -> None:
    settings = RiskConfig(alpha=0.1, weight=1.0)
    state = step_risk(settings, RiskState(), seen(RETURNS), 0.0)
    wide = step_risk(settings, state, seen(np.tile(RETURNS * 10, 2)), 0.1)
    safe = step_risk(settings, state, seen(np.tile(RETURNS * 0, 2)), 0.1)
    assert wide.scale > 2 * state.scale
    assert 0.99 * state.scale < safe.scale < state.scale


def test_a_safe_target_does_not_hide_what_others_show() -> None:
    """Range and scale follow them, so that bolder targets are still drawn and compared."""
    settings = RiskConfig(alpha=0.1, weight=1.0)
    state = start = step_risk(settings, RiskState(), seen(RETURNS), 0.0)
    both = np.concatenate([RETURNS * 0 + 0.5, 3.0 * RETURNS])
    mixed = RiskMeasurement(both, 0 * both, np.arange(800) >= 400, None)
    grid = target_grid(settings.search, state.search)
    mixed = replace(mixed, curve=curve(state.search.target, grid))
    for _ in range(100):
        state = step_risk(settings, state, mixed, 0.1)
    assert state.search.low < start.search.low - 1.0
    assert state.scale > 1.9
    assert state.returns == (0.5,) * 500
    settled = step_risk(settings, state, mixed, settings.search.settle)
    assert settled.explored_returns == ()


def test_the_multiplier_is_held_while_the_policy_explores() -> None:
    settings = RiskConfig(alpha=0.1, limit=5.0, dual=DualConfig(start=0.2, hold=0.3))
    state = step_risk(settings, RiskState(), seen(RETURNS), 0.0)
    assert state.dual.multiplier == 0.2
    assert step_risk(settings, state, seen(RETURNS), 0.29).dual.multiplier == 0.2
    assert step_risk(settings, state, seen(RETURNS), 0.3).dual.multiplier > 0.2


def test_alpha_falls_from_one() -> None:
    settings = RiskConfig(alpha=0.1, weight=1.0, anneal=0.4)
    assert [alpha_now(settings, p) for p in (0.0, 0.2, 0.4, 1.0)] == pytest.approx(
        [1.0, 0.55, 0.1, 0.1]
    )
    assert alpha_now(RiskConfig(alpha=0.1, weight=1.0), 0.0) == 0.1


@pytest.mark.parametrize("focus", [0.0, 1.0])
def test_targets_are_drawn_from_all_of_the_range(focus: float) -> None:
    """Of s·u with both uniform on [0, 1], the share a - a ln a lies below a."""
    settings = RiskConfig(weight=1.0, search=TargetSearch(share=1.0, focus=focus))
    state = RiskState(active=True, search=SearchState(target=-5.0, low=-9.0, high=3.0))
    draw = target_draw(settings, state, 0.0)
    drawn, _ = draw(100_000, torch.Generator().manual_seed(0))
    assert -9.0 <= float(drawn.min()) < -8.8
    assert 2.6 < float(drawn.max()) <= 3.0
    below = drawn < -5.0
    assert float(below.double().mean()) == pytest.approx(4 / 12, abs=0.01)
    for side, reach in ((drawn[below], 4.0), (drawn[~below], 8.0)):
        for a in (0.1, 0.5):
            near = float(((side + 5.0).abs() < a * reach).double().mean())
            assert near == pytest.approx(a - focus * a * math.log(a), abs=0.01)


def test_drawn_targets_and_renewed_budgets() -> None:
    generator = torch.Generator().manual_seed(0)
    draw = TargetDraw(target=-5.0, low=-9.0, high=3.0, share=0.25)
    carry = start_budgets(4000, draw, generator)
    assert float(carry.explored.double().mean()) == pytest.approx(0.25, abs=0.03)
    assert torch.equal(carry.budget[~carry.explored].unique(), torch.tensor([-5.0]).double())
    moved = after_step(carry, torch.full((4000,), 3.0), 0.5)
    assert torch.allclose(moved.budget, (carry.budget - 3.0) / 0.5)
    done = torch.arange(4000) < 10
    new = renewed(moved, done, replace(draw, share=0.0), generator)
    assert torch.equal(new.budget[10:], moved.budget[10:])
    assert bool((new.budget[:10] == -5.0).all())
    assert new.returns[9:11].tolist() == [0.0, 3.0]
    assert new.discount[9:11].tolist() == [1.0, 0.5]
