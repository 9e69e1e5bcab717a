"""Measures of a series of net simple returns; conventions and differences: docs/measures.md.

Every function takes returns [..., T] along the last axis and returns [...], so that one call covers
all resamples of a bootstrap. A measure that is not defined is NaN: no bars, no spread, no losing
bar. Losses are negative numbers throughout: VaR, CVaR and drawdown are at most zero when there is a
loss. Rewards of a problem add up instead of compounding; that is what ``additive`` says.
"""

import math
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from quantail.errors import DataError
from quantail.types import FloatArray

_TINY: Final = 1e-15
"""A spread below this fraction of the largest return is rounding, not risk."""


@dataclass(frozen=True, slots=True)
class MeasureInfo:
    """How a measure is shown."""

    label: str
    unit: Literal["fraction", "ratio", "bars", "per year"]
    better: Literal["higher", "lower", "neither"]
    meaning: str


MEASURES: Final[dict[str, MeasureInfo]] = {
    "total_return": MeasureInfo(
        "Total return", "fraction", "higher", "product of (1 + r) minus 1, net of all costs"
    ),
    "annual_return": MeasureInfo(
        "Annual return", "fraction", "higher", "(1 + total)^(bars per year / bars) - 1"
    ),
    "volatility": MeasureInfo(
        "Volatility", "fraction", "lower", "standard deviation (ddof 1), per year"
    ),
    "sharpe": MeasureInfo(
        "Sharpe ratio", "ratio", "higher", "mean over standard deviation (ddof 1), per year"
    ),
    "sortino": MeasureInfo(
        "Sortino ratio", "ratio", "higher", "mean over root mean square of losses, per year"
    ),
    "calmar": MeasureInfo(
        "Calmar ratio", "ratio", "higher", "annual return over the depth of the largest drawdown"
    ),
    "max_drawdown": MeasureInfo(
        "Largest drawdown", "fraction", "higher", "lowest equity over its highest before, minus 1"
    ),
    "max_drawdown_bars": MeasureInfo(
        "Longest drawdown", "bars", "lower", "longest run of bars below an earlier peak"
    ),
    "var_95": MeasureInfo("VaR 95%", "fraction", "higher", "5 % quantile of a bar's return"),
    "cvar_95": MeasureInfo(
        "CVaR 95%", "fraction", "higher", "mean of the worst 5 % of bars, exact partial weights"
    ),
    "var_99": MeasureInfo("VaR 99%", "fraction", "higher", "1 % quantile of a bar's return"),
    "cvar_99": MeasureInfo(
        "CVaR 99%", "fraction", "higher", "mean of the worst 1 % of bars, exact partial weights"
    ),
    "hit_rate": MeasureInfo(
        "Hit rate", "fraction", "higher", "share of gains among bars with a gain or a loss"
    ),
    "profit_factor": MeasureInfo(
        "Profit factor", "ratio", "higher", "sum of gains over sum of losses"
    ),
    "turnover": MeasureInfo(
        "Turnover", "per year", "lower", "traded notional over equity, per year"
    ),
    "exposure": MeasureInfo(
        "Exposure", "fraction", "neither", "mean absolute notional over equity"
    ),
    "costs_paid": MeasureInfo(
        "Costs paid", "fraction", "lower", "sum over bars of all costs over equity before the bar"
    ),
    "time_in_market": MeasureInfo(
        "Time in market", "fraction", "neither", "share of bars that end with a position"
    ),
}
"""Every measure of :class:`~quantail.evaluation.record.Measures`, in the order of a table."""


def equity_curve(returns: FloatArray, additive: bool = False) -> FloatArray:
    """Return E_t = Π (1 + r), or Σ r if additive, [..., T]."""
    curve = np.cumsum(returns, axis=-1) if additive else np.cumprod(1.0 + returns, axis=-1)
    return np.asarray(curve, np.float64)


def total_return(returns: FloatArray, additive: bool = False) -> FloatArray:
    """Return Π (1 + r) − 1, or Σ r if additive."""
    if additive:
        return np.asarray(returns.sum(axis=-1))
    return np.asarray(np.prod(1.0 + returns, axis=-1) - 1.0)


def annual_return(
    returns: FloatArray, periods_per_year: float, additive: bool = False
) -> FloatArray:
    """Return (1 + total)^(P/T) − 1, or P times the mean if additive.

    An account that has lost everything has −1; below that a rate of growth does not exist.
    """
    count = returns.shape[-1]
    if additive:
        return _mean(returns) * periods_per_year
    growth = 1.0 + total_return(returns)
    known = np.where((growth >= 0.0) & (count > 0), growth, np.nan)
    return np.asarray(known ** (periods_per_year / max(count, 1)) - 1.0)


def volatility(returns: FloatArray, periods_per_year: float) -> FloatArray:
    """Return √P times the standard deviation with ddof 1; NaN for fewer than two bars."""
    return math.sqrt(periods_per_year) * _deviation(returns)


def sharpe(returns: FloatArray, periods_per_year: float) -> FloatArray:
    """Return √P · mean / standard deviation (ddof 1); no risk-free rate is taken off.

    NaN without spread: a constant return has no risk to be paid for.
    """
    return math.sqrt(periods_per_year) * _ratio(_mean(returns), _spread_or_nan(returns))


def sortino(returns: FloatArray, periods_per_year: float) -> FloatArray:
    """Return √P · mean / √(mean of min(r, 0)²) over all bars; NaN without a losing bar."""
    downside = np.sqrt(_mean(np.minimum(returns, 0.0) ** 2))
    return math.sqrt(periods_per_year) * _ratio(_mean(returns), downside)


def drawdowns(returns: FloatArray, additive: bool = False) -> FloatArray:
    """Return E_t / max(1, E_1 … E_t) − 1, or E_t − max(0, E_1 … E_t) if additive, [..., T]."""
    equity = equity_curve(returns, additive)
    start = 0.0 if additive else 1.0
    peak = np.maximum(np.maximum.accumulate(equity, axis=-1), start)
    return np.asarray(equity - peak if additive else equity / peak - 1.0)


def max_drawdown(returns: FloatArray, additive: bool = False) -> FloatArray:
    """Return the least of :func:`drawdowns`, at most 0."""
    if not returns.shape[-1]:
        return np.full(returns.shape[:-1], np.nan)
    return np.asarray(drawdowns(returns, additive).min(axis=-1))


def max_drawdown_bars(returns: FloatArray, additive: bool = False) -> FloatArray:
    """Return the length of the longest run of bars that end below an earlier peak.

    The bar that reaches a peak again ends the run and is not counted; a run that lasts to the end
    is counted as far as it goes.
    """
    count = returns.shape[-1]
    if not count:
        return np.full(returns.shape[:-1], np.nan)
    # Rounding must not make a flat stretch at a peak look like a drawdown.
    below = drawdowns(returns, additive) < -1e-12
    step = np.arange(1, count + 1)
    latest_peak = np.maximum.accumulate(np.where(below, 0, step), axis=-1)
    return np.asarray((step - latest_peak).max(axis=-1), np.float64)


def calmar(returns: FloatArray, periods_per_year: float) -> FloatArray:
    """Return annual return / |largest drawdown|; NaN without a drawdown."""
    return _ratio(annual_return(returns, periods_per_year), -max_drawdown(returns))


def value_at_risk(returns: FloatArray, alpha: float) -> FloatArray:
    """Return the α-quantile of the returns, linear between order statistics (negative: a loss)."""
    _check_alpha(alpha)
    if not returns.shape[-1]:
        return np.full(returns.shape[:-1], np.nan)
    return np.asarray(np.quantile(returns, alpha, axis=-1))


def cvar(returns: FloatArray, alpha: float) -> FloatArray:
    """Return the mean of the worst α share: (1/αT)·(Σ of the ⌊αT⌋ worst + the rest's part).

    The share is exact: when αT is no whole number, the next worst bar counts with the part that is
    left, so that the measure is continuous in α.
    """
    _check_alpha(alpha)
    count = returns.shape[-1]
    if not count:
        return np.full(returns.shape[:-1], np.nan)
    size = alpha * count
    n_worst = min(math.ceil(size), count)
    worst = np.sort(np.partition(returns, n_worst - 1, axis=-1)[..., :n_worst], axis=-1)
    weights = np.ones(n_worst)
    weights[-1] = size - (n_worst - 1)
    return np.asarray(worst @ weights / size)


def hit_rate(returns: FloatArray) -> FloatArray:
    """Return gains / (gains + losses), counted in bars; bars without change do not count."""
    gains, losses = (returns > 0.0).sum(axis=-1), (returns < 0.0).sum(axis=-1)
    return _ratio(gains.astype(np.float64), (gains + losses).astype(np.float64))


def profit_factor(returns: FloatArray) -> FloatArray:
    """Return Σ max(r, 0) / Σ max(−r, 0); NaN without a losing bar."""
    gains, losses = np.maximum(returns, 0.0).sum(axis=-1), np.maximum(-returns, 0.0).sum(axis=-1)
    return _ratio(gains, losses)


def _mean(values: FloatArray) -> FloatArray:
    if not values.shape[-1]:
        return np.full(values.shape[:-1], np.nan)
    return np.asarray(values.mean(axis=-1))


def _deviation(values: FloatArray) -> FloatArray:
    if values.shape[-1] < 2:
        return np.full(values.shape[:-1], np.nan)
    return np.asarray(values.std(axis=-1, ddof=1))


def _spread_or_nan(values: FloatArray) -> FloatArray:
    spread = _deviation(values)
    if not values.shape[-1]:
        return spread
    largest = np.abs(values).max(axis=-1)
    return np.where(spread > _TINY * largest, spread, np.nan)


def _ratio(top: NDArray[Any], bottom: NDArray[Any]) -> FloatArray:
    """Return top / bottom, NaN where bottom is not above zero."""
    known = np.asarray(bottom) > 0.0
    return np.where(known, top / np.where(known, bottom, 1.0), np.nan)


def _check_alpha(alpha: float) -> None:
    if not 0.0 < alpha <= 1.0:
        raise DataError(f"alpha must lie in (0, 1]; was {alpha}.")
