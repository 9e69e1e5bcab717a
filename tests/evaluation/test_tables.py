import dataclasses
import math

import numpy as np
import pytest

from quantail.evaluation import measures as m
from quantail.evaluation.bootstrap import BootstrapConfig
from quantail.evaluation.record import SERIES_NUMBERS, Estimate, SensitivityPoint, Series, Track
from quantail.evaluation.tables import (
    break_even,
    compare,
    measure_series,
    scaled,
    sensitivity_point,
)
from quantail.evaluation.verdict import market_verdict, problem_verdict
from tests.evaluation.example_records import example_evaluation, example_series

FEW = BootstrapConfig(samples=199)


def track_of(returns, name="agent"):
    """A track whose portfolio has the given returns."""
    columns = {key: np.zeros(len(returns)) for key in SERIES_NUMBERS}
    columns["net_return"], columns["equity"] = returns, np.cumprod(1.0 + returns)
    series = Series(np.datetime64("2024-01-01", "ns") + np.arange(len(returns)) * 10**9, **columns)
    return Track(name, name, "return", False, (), series.rows(slice(0, 0)), series)


def verdict_of(agent, market=None):
    """Judge returns; the average position earned ``market`` (nothing by default)."""
    held = np.zeros_like(agent) if market is None else market
    flat = track_of(np.zeros_like(agent), "flat")
    comparisons = [
        compare(track_of(agent), other, 252.0, FEW)
        for other in (flat, track_of(held, "average_position"))
    ]
    return market_verdict(comparisons, "test")


def test_measures_of_a_series():
    series = example_series(200, 3)
    found = measure_series(series, 252.0, FEW)
    returns = series.net_return
    assert found.sharpe.value == float(m.sharpe(returns, 252.0))
    assert found.cvar_95.value == float(m.cvar(returns, 0.05))
    assert found.cvar_99.value == float(m.cvar(returns, 0.01))
    assert found.var_99.value < found.var_95.value
    assert found.turnover.value == pytest.approx(series.turnover.mean() * 252)
    assert found.costs_paid.value == pytest.approx(series.costs.sum())
    assert found.time_in_market.value == (series.exposure > 0).mean()
    for name in ("sharpe", "var_95", "cvar_99", "hit_rate", "total_return"):
        estimate = getattr(found, name)
        assert estimate.low < estimate.value < estimate.high
    assert found.max_drawdown.low is None
    assert (found.n_bars, found.periods_per_year) == (200, 252.0)


def test_a_few_bars_give_values_without_intervals():
    found = measure_series(example_series(8, 3), 252.0, FEW)
    assert math.isfinite(found.sharpe.value)
    assert found.sharpe.low is None


def test_comparisons_are_paired():
    rng = np.random.default_rng(0)
    common = rng.normal(0.0, 0.05, 300)
    agent, base = common + 0.002 + rng.normal(0.0, 0.002, 300), common
    found = compare(track_of(agent), track_of(base, "base"), 252.0, FEW)
    assert found.baseline == "base"
    assert found.mean_difference.value == pytest.approx((agent - base).mean())
    assert found.annual_difference.value == pytest.approx(252 * (agent - base).mean())
    # alone, ten times the spread of the market hides a gain of 0.002 a bar
    assert found.is_better
    assert not compare(track_of(agent), track_of(np.zeros(300), "flat"), 252.0, FEW).is_better
    expected = float(m.sharpe(agent, 252.0) - m.sharpe(base, 252.0))
    assert found.sharpe_difference.value == pytest.approx(expected)


def test_a_baseline_that_never_trades_has_a_sharpe_ratio_of_zero():
    agent = np.random.default_rng(0).normal(0.001, 0.01, 100)
    found = compare(track_of(agent), track_of(np.zeros(100), "flat"), 252.0, FEW)
    assert found.sharpe_difference.value == pytest.approx(float(m.sharpe(agent, 252.0)))


def test_equal_tracks_do_not_differ():
    returns = np.random.default_rng(0).normal(size=100)
    found = compare(track_of(returns), track_of(returns, "same"), 252.0, FEW)
    assert (found.mean_difference.value, found.p_value) == (0.0, 1.0)
    assert not found.is_better
    assert not found.is_worse


def _point(factor, mean):
    return SensitivityPoint(factor, 0.0, Estimate(mean), Estimate(0.0))


def test_break_even_lies_between_points():
    points = (_point(0.0, 4.0), _point(1.0, 2.0), _point(2.0, -2.0), _point(4.0, -6.0))
    assert break_even(points) == 1.5
    assert break_even(points[:2]) is None
    assert break_even(points[2:]) is None


def test_sensitivity_points_and_scaling():
    series = example_series(100, 1)
    point = sensitivity_point(2.0, series, 252.0, FEW)
    assert point.total_return == pytest.approx(series.equity[-1] - 1.0)
    assert point.annual_mean.value == pytest.approx(252.0 * series.net_return.mean())
    assert point.sharpe.low < point.sharpe.value < point.sharpe.high
    assert scaled(Estimate(1.0), 3.0) == Estimate(3.0, None, None)
    assert scaled(Estimate(1.0, -1.0, 2.0), 3.0) == Estimate(3.0, -3.0, 6.0)


def test_evidence_of_skill_needs_a_gain_and_timing():
    rng = np.random.default_rng(0)
    noise = rng.normal(0.0, 0.01, 500)
    found = verdict_of(noise + 0.004)
    assert (found.level, found.evidence) == ("skill", True)
    assert found.sentence.startswith("Evidence of skill: net return +")
    assert found.numbers["annual_gain_low"] > 0.0
    assert found.numbers["p_value"] <= 0.025


def test_a_rising_market_is_no_skill():
    rng = np.random.default_rng(0)
    market = rng.normal(0.004, 0.01, 500)
    found = verdict_of(market + rng.normal(0.0, 1e-4, 500), market)
    assert (found.level, found.evidence) == ("no_evidence", False)
    assert "no larger than what its average position earned" in found.sentence


def test_an_interval_that_covers_zero_is_no_evidence_in_words():
    found = verdict_of(np.random.default_rng(0).normal(0.0, 0.01, 500))
    assert (found.level, found.evidence) == ("no_evidence", False)
    assert found.sentence.startswith("No evidence of skill: the interval includes zero")


def test_losses_beyond_chance_are_said():
    found = verdict_of(np.random.default_rng(0).normal(-0.004, 0.01, 500))
    assert (found.level, found.evidence) == ("worse", False)
    assert found.sentence.startswith("No evidence of skill: the agent lost money, beyond chance")


def test_too_few_bars_are_no_evidence():
    found = verdict_of(np.full(10, 0.05) + np.arange(10) * 1e-3)
    assert not found.evidence
    assert "too few bars" in found.sentence
    assert "annual_gain_low" not in found.numbers


def test_an_agent_that_never_trades_shows_no_skill():
    found = verdict_of(np.zeros(500))
    assert (found.level, found.evidence) == ("no_evidence", False)


def _strategies(rng, count, bars):
    """Positions that look at the past of a martingale, and what they earn; [count, bars] each."""
    moves = 0.01 * rng.standard_t(4, (count, bars))
    past = np.cumsum(moves, axis=1)
    lag = rng.integers(1, 20)
    trend = np.zeros_like(past)
    trend[:, lag + 1 :] = past[:, lag:-1] - past[:, : -lag - 1]
    sign = np.where(np.arange(count) % 2, 1.0, -1.0)[:, None]  # momentum and its opposite
    return sign * np.sign(trend), moves


def test_martingale_prices_are_taken_for_skill_at_most_at_the_stated_level():
    position, moves = _strategies(np.random.default_rng(5), 150, 250)
    found = 0
    for held, move in zip(position, moves, strict=True):
        found += verdict_of(held * move, held.mean() * move).evidence
    assert found / 150 <= 0.025 + 3 * math.sqrt(0.025 * 0.975 / 150)


def test_an_oracle_is_found_to_have_skill():
    _, moves = _strategies(np.random.default_rng(5), 20, 250)
    for move in moves:
        held = np.where(np.random.default_rng(1).random(250) < 0.75, np.sign(move), -np.sign(move))
        assert verdict_of(held * move, held.mean() * move).evidence


def test_verdicts_on_problems():
    optimum = example_evaluation().optimum
    comparison = example_evaluation().comparisons[0]
    better = dataclasses.replace(comparison, mean_difference=Estimate(0.02, 0.01, 0.03))
    found = problem_verdict(better, optimum)
    assert found.evidence
    assert "reaches 0.020 of the known optimum [-0.010, 0.050]" in found.sentence
    assert found.numbers["fraction"] == 0.02
    without = problem_verdict(better, None)
    assert without.sentence.startswith("Evidence of skill: the agent earns +0.0200 [+0.0100, +0.03")
    worse = dataclasses.replace(comparison, mean_difference=Estimate(-0.02, -0.03, -0.01))
    assert problem_verdict(worse, optimum).level == "worse"
    unclear = problem_verdict(comparison, optimum)
    assert (unclear.level, unclear.evidence) == ("no_evidence", False)
    assert "the interval includes zero" in unclear.sentence
