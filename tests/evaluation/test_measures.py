import dataclasses
import math
import warnings
from pathlib import Path

import numpy as np
import pytest

from quantail.errors import DataError
from quantail.evaluation import measures as m
from quantail.evaluation.record import Measures

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it imports data readers that are not needed
    import empyrical

P = 252.0
RETURNS = {
    "quiet": np.random.default_rng(0).normal(0.0005, 0.01, 500),
    "fat tails": 0.01 * np.random.default_rng(1).standard_t(3, 750),
    "skewed": 0.02 * (1.0 - np.random.default_rng(2).exponential(1.0, 100)),
    "idle half": np.where(np.arange(300) % 2, 0.0, np.random.default_rng(3).normal(0, 0.02, 300)),
}


@pytest.fixture(params=RETURNS, ids=lambda name: name.replace(" ", "_"))
def returns(request):
    return RETURNS[request.param]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (m.total_return, empyrical.cum_returns_final),
        (lambda r: m.annual_return(r, P), lambda r: empyrical.annual_return(r, annualization=P)),
        (lambda r: m.volatility(r, P), lambda r: empyrical.annual_volatility(r, annualization=P)),
        (lambda r: m.sharpe(r, P), lambda r: empyrical.sharpe_ratio(r, annualization=P)),
        (lambda r: m.sortino(r, P), lambda r: empyrical.sortino_ratio(r, annualization=P)),
        (lambda r: m.calmar(r, P), lambda r: empyrical.calmar_ratio(r, annualization=P)),
        (m.max_drawdown, empyrical.max_drawdown),
        (lambda r: m.value_at_risk(r, 0.05), lambda r: empyrical.value_at_risk(r, 0.05)),
        (lambda r: m.value_at_risk(r, 0.01), lambda r: empyrical.value_at_risk(r, 0.01)),
    ],
    ids=[
        "total",
        "annual",
        "volatility",
        "sharpe",
        "sortino",
        "calmar",
        "drawdown",
        "var",
        "var99",
    ],
)
def test_measures_equal_those_of_empyrical(ours, theirs, returns, monkeypatch):
    # its downside risk still uses a name that numpy 2 has dropped
    monkeypatch.setattr(np, "NINF", -np.inf, raising=False)
    assert float(ours(returns)) == pytest.approx(float(theirs(returns)), rel=1e-10, abs=1e-12)


def test_cvar_equals_empyricals_where_the_tail_is_a_whole_number_of_bars():
    returns = RETURNS["skewed"]  # 100 bars: both average the 5 worst
    theirs = empyrical.conditional_value_at_risk(returns, 0.05)
    assert float(m.cvar(returns, 0.05)) == pytest.approx(theirs, rel=1e-12)


def test_cvar_counts_a_part_of_a_bar():
    returns = np.array([-4.0, 3.0, -2.0, 1.0, 5.0])
    # worst 30 % of 5 bars: one and a half bars, -4 and half of -2
    assert float(m.cvar(returns, 0.3)) == pytest.approx((-4.0 + 0.5 * -2.0) / 1.5)
    # empyrical averages int(4 * 0.3) + 1 = 2 whole bars
    assert empyrical.conditional_value_at_risk(returns, 0.3) == pytest.approx(-3.0)


def test_cvar_is_continuous_and_rises_with_alpha(returns):
    alphas = np.linspace(0.001, 1.0, 400)
    values = np.array([float(m.cvar(returns, alpha)) for alpha in alphas])
    assert (np.diff(values) >= -1e-15).all()
    assert values[-1] == pytest.approx(returns.mean())
    assert float(m.cvar(returns, 1e-6)) == pytest.approx(returns.min())


def test_drawdown_and_its_length_by_hand():
    # equity: 1.1, 0.99, 1.089, 1.1979, 1.07811, 1.185921
    returns = np.array([0.1, -0.1, 0.1, 0.1, -0.1, 0.1])
    np.testing.assert_allclose(m.drawdowns(returns), [0, -0.1, -0.01, 0, -0.1, -0.01], atol=1e-12)
    assert float(m.max_drawdown(returns)) == pytest.approx(-0.1)
    assert float(m.max_drawdown_bars(returns)) == 2.0
    # a loss in the very first bar is below the starting equity
    assert float(m.max_drawdown_bars(np.array([-0.5, 0.1, 0.1]))) == 3.0
    assert float(m.max_drawdown_bars(np.array([0.1, 0.0, 0.0]))) == 0.0


def _longest_drawdown(returns):
    equity, peak, run, longest = 1.0, 1.0, 0, 0
    for value in returns:
        equity *= 1.0 + value
        if equity >= peak:
            peak, run = equity, 0
        else:
            run += 1
            longest = max(longest, run)
    return longest


def test_drawdown_length_equals_a_plain_loop(returns):
    assert float(m.max_drawdown_bars(returns)) == _longest_drawdown(returns)


def test_hits_and_profit_factor_by_hand():
    returns = np.array([0.02, -0.01, 0.0, 0.03, -0.02])
    assert float(m.hit_rate(returns)) == pytest.approx(2 / 4)
    assert float(m.profit_factor(returns)) == pytest.approx(0.05 / 0.03)


def test_rewards_of_problems_add_up():
    rewards = np.array([1.0, -3.0, 1.0, 4.0])
    assert float(m.total_return(rewards, additive=True)) == 3.0
    assert float(m.annual_return(rewards, 1.0, additive=True)) == 0.75
    assert float(m.max_drawdown(rewards, additive=True)) == -3.0
    assert float(m.max_drawdown_bars(rewards, additive=True)) == 2.0
    # sums: -1, -2, 1; the start at 0 is a peak
    assert float(m.max_drawdown(np.array([-1.0, -1.0, 3.0]), additive=True)) == -2.0


ALL = {
    "total_return": m.total_return,
    "annual_return": lambda r: m.annual_return(r, P),
    "volatility": lambda r: m.volatility(r, P),
    "sharpe": lambda r: m.sharpe(r, P),
    "sortino": lambda r: m.sortino(r, P),
    "calmar": lambda r: m.calmar(r, P),
    "max_drawdown": m.max_drawdown,
    "max_drawdown_bars": m.max_drawdown_bars,
    "value_at_risk": lambda r: m.value_at_risk(r, 0.05),
    "cvar": lambda r: m.cvar(r, 0.05),
    "hit_rate": m.hit_rate,
    "profit_factor": m.profit_factor,
}


@pytest.mark.parametrize("name", ALL)
def test_rows_are_measured_one_by_one(name):
    rows = np.random.default_rng(5).normal(0.0, 0.01, (2, 3, 40))
    together = ALL[name](rows)
    assert together.shape == (2, 3)
    for i in range(2):
        for j in range(3):
            assert together[i, j] == pytest.approx(float(ALL[name](rows[i, j])), rel=1e-12)


NAN = math.nan


@pytest.mark.parametrize(
    ("returns", "undefined"),
    [
        # nothing happened: no risk, no loss, no gain
        (np.zeros(10), {"sharpe", "sortino", "calmar", "hit_rate", "profit_factor"}),
        # only gains, all the same
        (np.full(10, 0.01), {"sharpe", "sortino", "calmar", "profit_factor"}),
        (np.array([0.01]), {"volatility", "sharpe", "sortino", "calmar", "profit_factor"}),
        (np.zeros(0), set(ALL) - {"total_return"}),
    ],
    ids=["idle", "constant gain", "one bar", "no bar"],
)
def test_what_is_not_defined_is_nan(returns, undefined):
    found = {name for name, measure in ALL.items() if math.isnan(float(measure(returns)))}
    assert found == undefined


def test_losing_everything_is_minus_one_a_year():
    assert float(m.annual_return(np.array([0.1, -1.0, 0.5]), P)) == -1.0
    assert math.isnan(float(m.annual_return(np.array([-1.5, 0.1]), P)))


def test_levels_outside_are_refused():
    with pytest.raises(DataError, match=r"alpha must lie in \(0, 1\]; was 0"):
        m.cvar(np.zeros(3), 0.0)
    with pytest.raises(DataError, match="was 1.5"):
        m.value_at_risk(np.zeros(3), 1.5)


def test_every_measure_has_a_meaning_and_stands_in_the_documentation():
    names = [field.name for field in dataclasses.fields(Measures)]
    assert list(m.MEASURES) == names[:-2]
    text = (Path(__file__).parents[2] / "docs" / "measures.md").read_text()
    for name, info in m.MEASURES.items():
        assert f"`{name}`" in text, name
        assert info.label in text, name
