"""Finding ν: explored early, settled slowly, followed late.

A policy that maximizes E[G] + λ(ν - E(ν - G)⁺/α) arranges its own α-quantile near ν, so that
tracking that quantile is content with many ν, most of them poor. A policy that sees its budget can
be asked about all ν at once: its critic predicts E[G] and ν - E(ν - G)⁺/α for an episode from each.
The latter is compared, and not CVaR itself, because it has one maximum, at the α-quantile, even
while the policy does not yet answer to its budget.
"""

from dataclasses import dataclass, replace

import numpy as np

from quantail.config_class import config
from quantail.risk.config import TargetSearch
from quantail.types import FloatArray

_RANGE_RATE = 0.05
_MARGIN = 0.5


@config
class SearchState:
    """What is known about targets."""

    target: float = 0.0
    """ν."""
    low: float = 0.0
    high: float = 0.0
    """Range of the targets that are compared."""
    means: tuple[float, ...] = ()
    """Smoothed predicted mean for each target of the grid; empty before the first prediction."""
    bounds: tuple[float, ...] = ()
    """Smoothed predicted ν - E(ν - G)⁺/α, or CVaR, for each target of the grid."""


@dataclass(frozen=True, slots=True)
class TargetCurve:
    """What the critic predicts for episodes that start from each target of the grid."""

    means: FloatArray
    bounds: FloatArray
    """ν - E(ν - G)⁺/α at each target ν: at most CVaR, and CVaR where ν is the α-quantile."""
    tails: FloatArray
    """CVaR."""
    quantiles: FloatArray
    """VaR, the quantile at the level of CVaR."""


def first_search(returns: FloatArray, alpha: float, scale: float) -> SearchState:
    """Return the state after the first returns: ν is their α-quantile."""
    target = var(returns, alpha)
    low, high = _span(returns, alpha, scale)
    return SearchState(target=target, low=low, high=high)


def target_grid(settings: TargetSearch, state: SearchState) -> FloatArray:
    """Return the targets to compare, [G]."""
    return np.linspace(state.low, state.high, settings.grid)


def explore_share(settings: TargetSearch, progress: float) -> float:
    """Return the share of episodes that start from a drawn target; falls until ``settle``."""
    left = max(0.0, 1.0 - progress / settings.settle)
    return settings.rest + (settings.share - settings.rest) * left


def step_search(
    settings: TargetSearch,
    state: SearchState,
    curve: TargetCurve | None,
    returns: FloatArray,
    *,
    alpha: float,
    weight: float,
    scale: float,
    progress: float,
) -> SearchState:
    """Return the state after one more update.

    Args:
        settings: Rates.
        state: Before.
        curve: Prediction on the grid of ``state``; None when no episode started.
        returns: Recent returns of episodes that started from ν, at least one.
        alpha: α.
        weight: λ, of CVaR beside the mean.
        scale: Unit of return.
        progress: Share of training that is done.
    """
    if progress >= settings.settle:
        moved = state.target + settings.follow_rate * (var(returns, alpha) - state.target)
        return replace(state, target=moved)
    means, bounds = np.array(state.means), np.array(state.bounds)
    if curve is not None:
        rate = settings.curve_rate if means.size else 1.0
        seen = curve.bounds if settings.compare == "bound" else curve.tails
        past = (means, bounds) if means.size else (curve.means, seen)
        means = (1 - rate) * past[0] + rate * curve.means
        bounds = (1 - rate) * past[1] + rate * seen
    grid = target_grid(settings, state)
    target = _better_target(settings, grid, means + weight * bounds, state.target, scale)
    wanted = _span(returns, alpha, scale)
    low = state.low + _RANGE_RATE * (min(wanted[0], target) - state.low)
    high = state.high + _RANGE_RATE * (max(wanted[1], target) - state.high)
    moved_grid = np.linspace(low, high, settings.grid)
    if means.size:
        means, bounds = np.interp(moved_grid, grid, means), np.interp(moved_grid, grid, bounds)
    return SearchState(
        target=target,
        low=low,
        high=high,
        means=tuple(means.tolist()),
        bounds=tuple(bounds.tolist()),
    )


def var(returns: FloatArray, alpha: float) -> float:
    """Return the α-quantile of a sample: the least value with at least α of it at or below."""
    return float(np.quantile(returns, alpha, method="inverted_cdf"))


def _better_target(
    settings: TargetSearch, grid: FloatArray, scores: FloatArray, target: float, scale: float
) -> float:
    """Go some way toward the best target of the grid, if it is better by the hysteresis."""
    if not scores.size:
        return target
    best = int(scores.argmax())
    gain = scores[best] - np.interp(target, grid, scores)
    if gain <= settings.hysteresis * scale:
        return target
    return float(target + settings.rate * (grid[best] - target))


def _span(returns: FloatArray, alpha: float, scale: float) -> tuple[float, float]:
    """Range in which the best ν must lie: it is no lower than the tail, no higher than the mean."""
    low = min(var(returns, alpha), float(returns.mean()) - scale) - _MARGIN * scale
    return low, float(returns.mean()) + _MARGIN * scale
