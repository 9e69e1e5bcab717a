"""The multiplier of a limit: its formula, its rests, its cap."""

from dataclasses import replace

import numpy as np
import pytest

from quantail.errors import ConfigError
from quantail.risk.config import DualConfig, RiskConfig, TargetSearch, risk_config
from quantail.risk.control import RiskMeasurement, RiskState, step_risk
from quantail.risk.dual import DualState, first_dual, is_infeasible, step_dual, violation
from tests.catalogue import catalogue

PLAIN = DualConfig(
    start=0.0, proportional=0.0, integral=0.1, derivative=0.0, slack=0.0, relief=1.0, cap=1.0
)


@catalogue("F37")
def test_violation_is_positive_when_cvar_is_below_its_limit() -> None:
    assert violation(-0.03, -0.02) == pytest.approx(0.01)
    assert violation(-0.01, -0.02) == 0.0


@catalogue("F36")
def test_multiplier_rises_while_the_limit_is_broken_and_falls_to_zero_after() -> None:
    state = first_dual(PLAIN)
    risen = []
    for _ in range(5):
        state = step_dual(PLAIN, state, cvar=-3.0, limit=-2.0, scale=2.0)
        risen.append(state.multiplier)
    assert risen == pytest.approx([0.05, 0.10, 0.15, 0.20, 0.25])
    for _ in range(20):
        state = step_dual(PLAIN, state, cvar=-1.0, limit=-2.0, scale=2.0)
        assert 0.0 <= state.multiplier <= 1.0
    assert state.multiplier == 0.0


def test_all_three_terms() -> None:
    settings = DualConfig(
        start=0.0, proportional=2.0, integral=0.5, derivative=3.0, smoothing=0.5, slack=0.0, cap=9.0
    )
    # e = 1: smoothed .5, integral .5, growth .5
    first = step_dual(settings, first_dual(settings), -2.0, -1.0, 1.0)
    assert first.multiplier == pytest.approx(2 * 0.5 + 0.5 + 3 * 0.5)
    # e = 0: smoothed .25, integral .5, growth below 0 counts as 0; no trace of the last multiplier
    second = step_dual(settings, first, -1.0, -1.0, 1.0)
    assert second.multiplier == pytest.approx(2 * 0.25 + 0.5)


def test_the_integral_does_not_wind_up_at_the_cap() -> None:
    state = first_dual(PLAIN)
    for _ in range(500):
        state = step_dual(PLAIN, state, -10.0, 0.0, 1.0)
    assert state.multiplier == 1.0
    state = step_dual(PLAIN, state, 1.0, 0.0, 1.0)
    assert state.multiplier == pytest.approx(0.9)


def test_a_proportional_push_to_the_cap_leaves_the_integral_alone() -> None:
    settings = replace(PLAIN, proportional=10.0, smoothing=0.0)
    state = step_dual(settings, first_dual(settings), -1.0, 0.0, 1.0)
    held = step_dual(settings, state, -1.0, 0.0, 1.0)
    assert held.multiplier == 1.0
    assert held.integral == state.integral


def test_a_little_too_safe_is_left_alone() -> None:
    settings = replace(PLAIN, slack=0.05)
    state = DualState(multiplier=0.4, integral=0.4)
    assert step_dual(settings, state, -0.96, -1.0, 1.0).multiplier == pytest.approx(0.4)
    assert step_dual(settings, state, -0.85, -1.0, 1.0).multiplier == pytest.approx(0.39)
    assert step_dual(settings, state, -1.04, -1.0, 1.0).multiplier == pytest.approx(0.404)


def test_the_multiplier_falls_more_slowly_than_it_rises() -> None:
    settings = replace(PLAIN, relief=0.2)
    state = DualState(multiplier=0.4, integral=0.4)
    assert step_dual(settings, state, 0.0, 1.0, 1.0).multiplier == pytest.approx(0.5)
    assert step_dual(settings, state, 1.0, 0.0, 1.0).multiplier == pytest.approx(0.38)


def test_a_measurement_that_is_partly_new_counts_in_part() -> None:
    settings = DualConfig(proportional=0.1, integral=0.2, derivative=0.0, smoothing=0.5)
    state = DualState(multiplier=0.4, integral=0.4, error=0.2)
    found = step_dual(settings, state, -1.0, 0.0, 1.0, new=0.05)  # a quarter of the integral gain
    assert found.error == pytest.approx(0.2 + 0.25 * 0.5 * 0.8)
    assert found.integral == pytest.approx(0.4 + 0.05)
    assert found.multiplier == pytest.approx(0.1 * 0.3 + 0.45)
    whole = step_dual(settings, state, -1.0, 0.0, 1.0)
    assert step_dual(settings, state, -1.0, 0.0, 1.0, new=0.2) == whole


@pytest.mark.parametrize(("fresh", "updates"), [(1, 2000), (8, 500), (200, 300)])
def test_the_multiplier_does_not_run_ahead_of_few_episodes(fresh: int, updates: int) -> None:
    """Returns N(s/2, s) with s = 1/(1 + λ) keep a CVaR of -.386 at λ = 1; they answer at once."""
    dual = DualConfig(hold=0.0, slack=0.0, relief=1.0)
    settings = RiskConfig(alpha=0.25, limit=-0.3856, dual=dual)
    rng, state, highest = np.random.default_rng(0), RiskState(), 0.0
    nothing = np.zeros(fresh)
    for _ in range(updates):
        spread = 1 / (1 + state.dual.multiplier)
        returns = rng.normal(0.5 * spread, spread, fresh)
        seen = RiskMeasurement(returns, nothing, nothing.astype(bool), None)
        state = step_risk(settings, state, seen, 1.0)
        highest = max(highest, state.dual.multiplier)
    assert state.dual.multiplier == pytest.approx(1.0, abs=0.2)
    assert highest < 1.4


def test_infeasible_after_patience_at_the_cap() -> None:
    settings = replace(PLAIN, patience=3)
    state = DualState(multiplier=1.0, integral=1.0)
    flags = []
    for cvar in (-1.0, -1.0, -1.0, 0.5, -1.0):
        state = step_dual(settings, state, cvar, 0.0, 1.0)
        flags.append(is_infeasible(settings, state))
    assert flags == [False, False, True, False, False]


def test_refusals() -> None:
    with pytest.raises(ConfigError, match="exactly one of cvar_weight .* and cvar_limit"):
        RiskConfig()
    with pytest.raises(ConfigError, match=r"were 0\.5 and -1\.0"):
        RiskConfig(weight=0.5, limit=-1.0)
    with pytest.raises(ConfigError, match=r"risk\.dual has no effect with a fixed cvar_weight"):
        RiskConfig(weight=0.5, dual=DualConfig(cap=3.0))
    late = TargetSearch(settle=0.9)
    RiskConfig(weight=0.5, anneal=0.9, search=late)
    with pytest.raises(ConfigError, match=r"anneal must be at most search\.settle \(0\.5\).*0\.6"):
        RiskConfig(weight=0.5, anneal=0.6)
    with pytest.raises(ConfigError, match=r"anneal must be at most dual\.hold \(0\.5\).*was 0\.6"):
        RiskConfig(limit=-1.0, anneal=0.6, search=late)
    with pytest.raises(ConfigError, match=r"search\.focus has no effect with search\.share 0"):
        TargetSearch(share=0.0, focus=1.0)
    with pytest.raises(ConfigError, match="would never rise"):
        DualConfig(proportional=0.0, integral=0.0)
    with pytest.raises(ConfigError, match=r"dual\.start must be at most dual\.cap \(0\.1\)"):
        DualConfig(cap=0.1)
    with pytest.raises(ConfigError, match="alpha"):
        RiskConfig(alpha=0.0, weight=1.0)


@catalogue("X37")
def test_everyday_arguments_and_the_full_configuration_exclude_each_other() -> None:
    assert risk_config(None, None, None, None) is None
    assert risk_config(0.1, -2.0, None, None) == RiskConfig(alpha=0.1, limit=-2.0)
    full = RiskConfig(weight=0.3)
    assert risk_config(None, None, None, full) is full
    with pytest.raises(ConfigError, match="cvar_alpha, cvar_weight has no effect beside risk"):
        risk_config(0.1, None, 0.5, full)
    with pytest.raises(ConfigError, match="exactly one"):
        risk_config(0.1, None, None, None)
