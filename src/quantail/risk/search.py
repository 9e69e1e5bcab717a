"""Finding ν: all targets are explored and compared, then one stays.

A policy that maximizes E[G] + λ(ν - E(ν - G)⁺/α) arranges its own α-quantile near ν, so that
tracking that quantile is content with many ν, most of them poor. A policy that sees its budget can
be asked about all ν at once: its critic predicts E[G], CVaR and the α-quantile of an episode from
each. The best ν is the α-quantile of its own episodes; one that lies above it asks for a shortfall
in more than a share α of them, where the policy gambles, and is no candidate.
"""

from dataclasses import dataclass, replace

import numpy as np

from quantail.config_class import config
from quantail.risk.config import TargetSearch
from quantail.risk.correction import CurveError, fitted_error, moved_error, step_error
from quantail.types import FloatArray

# The range of targets widens quickly and shrinks slowly: policies that have become safe do not show
# which bolder targets would be worth it.
_WIDEN, _SHRINK = 0.05, 0.002
_LOW_MARGIN, _HIGH_MARGIN = 0.5, 0.1
_ABOVE = 0.1
"""Return scales by which a candidate may lie above its own quantile."""


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
    tails: tuple[float, ...] = ()
    """Smoothed predicted CVaR for each target of the grid."""
    quantiles: tuple[float, ...] = ()
    """Smoothed predicted α-quantile for each target of the grid."""
    error: CurveError = CurveError()
    """By how much episodes missed these predictions."""


@dataclass(frozen=True, slots=True)
class TargetCurve:
    """What the critic predicts for episodes that start from each target of the grid."""

    means: FloatArray
    tails: FloatArray
    """CVaR."""
    quantiles: FloatArray
    """VaR, the quantile at the level of CVaR."""


@dataclass(frozen=True, slots=True)
class Episodes:
    """Episodes that ended, with the targets from which they had started."""

    targets: FloatArray
    """[E]"""
    returns: FloatArray
    """[E]"""


@dataclass(frozen=True, slots=True)
class Preference:
    """Which targets are better."""

    weight: float
    """λ, of CVaR beside the mean; with a limit, the price of missing it."""
    limit: float | None = None

    def __call__(self, targets: FloatArray, means: FloatArray, tails: FloatArray) -> FloatArray:
        """Return E + λ CVaR, or with a limit d the mean less λ (d - min(CVaR, ν))⁺.

        A policy that has learned its target falls as deep as that allows, so a target below the
        limit will break it, whatever CVaR it has so far: where a limit binds, the α-quantile ν lies
        above CVaR = d.
        """
        if self.limit is None:
            return means + self.weight * tails
        return means - self.weight * np.maximum(self.limit - np.minimum(tails, targets), 0.0)


def first_search(
    returns: FloatArray, alpha: float, scale: float, limit: float | None = None
) -> SearchState:
    """Return the state after the first returns.

    ν is the limit, unless it lies above them all, as a policy that never falls short of it keeps
    it; without a limit it is their α-quantile.
    """
    low, high = _span(returns, alpha, scale, limit)
    target = var(returns, alpha) if limit is None else min(limit, high)
    return SearchState(target=target, low=low, high=high)


def target_grid(settings: TargetSearch, state: SearchState) -> FloatArray:
    """Return the targets to compare, [G]."""
    return np.linspace(state.low, state.high, settings.grid)


def explore_share(settings: TargetSearch, progress: float) -> float:
    """Return the share of episodes that start from a drawn target."""
    return settings.share if progress < settings.settle else 0.0


def step_search(
    settings: TargetSearch,
    state: SearchState,
    curve: TargetCurve | None,
    ended: Episodes,
    returns: FloatArray,
    prefer: Preference,
    *,
    alpha: float,
    scale: float,
    progress: float,
) -> SearchState:
    """Return the state after one more update; a settled target stays.

    Args:
        settings: Rates.
        state: Before.
        curve: Prediction on the grid of ``state``; None when no episode started.
        ended: Episodes of this update.
        returns: Recent returns of episodes from all targets, at least one.
        prefer: Which targets are better.
        alpha: α.
        scale: Unit of return.
        progress: Share of training that is done.
    """
    if progress >= settings.settle or curve is None:
        return state
    grid, rate = target_grid(settings, state), settings.curve_rate
    curves = np.stack([curve.means, curve.tails, curve.quantiles])
    if state.means:
        past = np.array([state.means, state.tails, state.quantiles])
        curves = (1 - rate) * past + rate * curves
    error = step_error(
        state.error,
        grid,
        ended.targets,
        _missed(ended, grid, curves, alpha),
        settings.error_rate,
    )
    means, tails, quantiles = curves
    more_mean, more_tail = fitted_error(error)
    scores = prefer(grid, means + more_mean, tails + more_tail)
    scores = np.where(grid <= quantiles + _ABOVE * scale, scores, -np.inf)
    target = _better_target(settings, grid, scores, state.target, scale)
    wanted = _span(returns, alpha, scale, prefer.limit)
    down, up = min(wanted[0], target) - state.low, max(wanted[1], target) - state.high
    low = state.low + (_WIDEN if down < 0 else _SHRINK) * down
    high = state.high + (_WIDEN if up > 0 else _SHRINK) * up
    moved = replace(state, target=target, low=low, high=high)
    places = target_grid(settings, moved)
    error = moved_error(error, grid, places)
    means, tails, quantiles = (tuple(np.interp(places, grid, row).tolist()) for row in curves)
    return replace(moved, means=means, tails=tails, quantiles=quantiles, error=error)


def var(returns: FloatArray, alpha: float) -> float:
    """Return the α-quantile of a sample: the least value with at least α of it at or below."""
    return float(np.quantile(returns, alpha, method="inverted_cdf"))


def _missed(ended: Episodes, grid: FloatArray, curves: FloatArray, alpha: float) -> FloatArray:
    """Return what episodes show less what was predicted for their targets, [E, 2].

    An episode shows CVaR by q - (q - G)⁺/α, whose mean is CVaR if q is the α-quantile and below it
    if not.

    Args:
        ended: E episodes.
        grid: [G]
        curves: [3, G], predicted mean, CVaR and quantile.
        alpha: α.
    """
    mean, tail, quantile = (np.interp(ended.targets, grid, row) for row in curves)
    shown = quantile - np.maximum(quantile - ended.returns, 0.0) / alpha
    return np.stack([ended.returns - mean, shown - tail], axis=1)


def _better_target(
    settings: TargetSearch, grid: FloatArray, scores: FloatArray, target: float, scale: float
) -> float:
    """Go some way toward the best candidate, if it is better by the hysteresis.

    Args:
        settings: Rates.
        grid: [G]
        scores: [G], -inf where a target is no candidate.
        target: ν before.
        scale: Unit of return.
    """
    best, now = int(scores.argmax()), int(np.abs(grid - target).argmin())
    if not scores[best] > scores[now] + settings.hysteresis * scale:
        return target
    return float(target + settings.rate * (grid[best] - target))


def _span(
    returns: FloatArray, alpha: float, scale: float, limit: float | None
) -> tuple[float, float]:
    """Range in which the best ν must lie: no lower than the tail, no higher than the middle.

    A limit is part of it: a policy that takes little risk so far does not show how much it may.
    """
    quantile, mean = var(returns, alpha), float(returns.mean())
    low = min(quantile, mean - scale) - _LOW_MARGIN * scale
    high = max(quantile, mean) + _HIGH_MARGIN * scale
    return low if limit is None else min(low, limit), high
