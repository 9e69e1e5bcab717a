"""From tracks to tables: measures with intervals, paired comparisons."""

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np

from quantail.evaluation import measures as m
from quantail.evaluation.bootstrap import (
    BootstrapConfig,
    Statistic,
    block_length,
    intervals,
    mean_test,
)
from quantail.evaluation.record import (
    Comparison,
    Estimate,
    Measures,
    SensitivityPoint,
    Series,
    Track,
)
from quantail.types import FloatArray

_Measure = Callable[[FloatArray], FloatArray]


def measure_series(series: Series, periods_per_year: float, settings: BootstrapConfig) -> Measures:
    """Return all measures of a series of compounding returns.

    Intervals are given for what a resample of bars can show. Total and annual return, volatility,
    Sharpe, Sortino, VaR, CVaR, hit rate and profit factor have one; a drawdown depends on the order
    of all bars, which resampling destroys, and turnover, exposure and costs are facts.
    """
    returns, periods = series.net_return, periods_per_year
    statistics: dict[str, _Measure] = {
        "total_return": m.total_return,
        "annual_return": partial(m.annual_return, periods_per_year=periods),
        "volatility": partial(m.volatility, periods_per_year=periods),
        "sharpe": partial(m.sharpe, periods_per_year=periods),
        "sortino": partial(m.sortino, periods_per_year=periods),
        "var_95": partial(m.value_at_risk, alpha=0.05),
        "cvar_95": partial(m.cvar, alpha=0.05),
        "var_99": partial(m.value_at_risk, alpha=0.01),
        "cvar_99": partial(m.cvar, alpha=0.01),
        "hit_rate": m.hit_rate,
        "profit_factor": m.profit_factor,
    }
    uncertain = intervals(
        returns[None, :],
        {name: _first(statistic) for name, statistic in statistics.items()},
        block_length(returns),
        settings,
    )
    return Measures(
        **uncertain,
        calmar=_fact(m.calmar(returns, periods)),
        max_drawdown=_fact(m.max_drawdown(returns)),
        max_drawdown_bars=_fact(m.max_drawdown_bars(returns)),
        turnover=_fact(series.turnover.mean() * periods if len(series) else math.nan),
        exposure=_fact(series.exposure.mean() if len(series) else math.nan),
        costs_paid=_fact(series.costs.sum()),
        time_in_market=_fact((series.exposure > 0.0).mean() if len(series) else math.nan),
        n_bars=len(series),
        periods_per_year=periods,
    )


def compare(
    agent: Track, baseline: Track, periods_per_year: float, settings: BootstrapConfig
) -> Comparison:
    """Return agent minus baseline over the bars that both portfolios have, which are all."""
    ours, theirs = agent.portfolio, baseline.portfolio
    assert np.array_equal(ours.time, theirs.time), "tracks of one task share their bars"
    test = mean_test(ours.net_return - theirs.net_return, settings)
    pair = np.stack([ours.net_return, theirs.net_return])
    ratio = intervals(
        pair, {"sharpe": partial(_sharpe_difference, periods=periods_per_year)},
        test.block_length, settings,
    )  # fmt: skip
    return Comparison(
        baseline=baseline.name,
        mean_difference=test.mean,
        annual_difference=scaled(test.mean, periods_per_year),
        sharpe_difference=ratio["sharpe"],
        p_value=test.p_value,
        block_length=test.block_length,
        confidence=settings.confidence,
    )


def sensitivity_point(
    factor: float, portfolio: Series, periods_per_year: float, settings: BootstrapConfig
) -> SensitivityPoint:
    """Return the figures of one point of a sensitivity curve."""
    returns = portfolio.net_return
    test = mean_test(returns, settings)
    ratio = intervals(
        returns[None, :],
        {"sharpe": _first(partial(m.sharpe, periods_per_year=periods_per_year))},
        test.block_length,
        settings,
    )
    return SensitivityPoint(
        factor=factor,
        total_return=float(m.total_return(returns)),
        annual_mean=scaled(test.mean, periods_per_year),
        sharpe=ratio["sharpe"],
    )


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """Return an estimate times a positive number."""
    low, high = (
        None if bound is None else bound * factor for bound in (estimate.low, estimate.high)
    )
    return Estimate(estimate.value * factor, low, high)


def break_even(points: tuple[SensitivityPoint, ...]) -> float | None:
    """Return the factor at which the mean return falls to zero, linear between points."""
    for here, there in pairwise(points):
        high, low = here.annual_mean.value, there.annual_mean.value
        if high > 0.0 >= low:
            return here.factor + (there.factor - here.factor) * high / (high - low)
    return None


def _first(statistic: _Measure) -> Statistic:
    return lambda columns: statistic(columns[..., 0, :])


def _sharpe_difference(columns: FloatArray, periods: float) -> FloatArray:
    ratios = m.sharpe(columns, periods)
    # An account that never trades has no risk and no return; its ratio is taken as 0.
    idle = np.ptp(columns, axis=-1) == 0.0
    ratios = np.where(idle, 0.0, ratios)
    return np.asarray(ratios[..., 0] - ratios[..., 1])


def _fact(value: float | FloatArray) -> Estimate:
    return Estimate(float(value))
