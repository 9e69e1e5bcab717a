"""Finding ν: all targets are explored and compared, then one stays.

A policy that maximizes E[G] + λ(ν - E(ν - G)⁺/α) arranges its own α-quantile near ν, so that
tracking that quantile is content with many ν, most of them poor. A policy that sees its budget can
be asked about all ν at once. Of an episode from ν

    E[G]   and   C(ν) = ν - E(ν - G)⁺/α <= CVaR_α(G)

are means over episodes, so that they are easily predicted and measured, and the best ν is the one
with the best E + λC, or under a limit d the best E with C >= d: there C is CVaR.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch

from quantail.config_class import config
from quantail.risk.config import TargetSearch
from quantail.risk.cvar import empirical_cvar
from quantail.risk.shown import ShownByTarget, add_episodes, corrected, on_grid
from quantail.types import FloatArray

# The range of targets widens quickly and shrinks slowly: policies that have become safe do not show
# which bolder targets would be worth it.
_WIDEN, _SHRINK = 0.05, 0.002
_LOW_MARGIN, _HIGH_MARGIN = 0.5, 0.1


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
    shortfalls: tuple[float, ...] = ()
    """Smoothed predicted E(ν - G)⁺ for each target of the grid."""
    shown: ShownByTarget = ShownByTarget()
    """What recent episodes show of both."""
    settled: bool = False
    """The target is not compared with others any more."""


@dataclass(frozen=True, slots=True)
class TargetCurve:
    """What the critic predicts for episodes that start from each target of the grid."""

    means: FloatArray
    """E[G]"""
    shortfalls: FloatArray
    """E(ν - G)⁺"""


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

    def __call__(self, means: FloatArray, tails: FloatArray) -> FloatArray:
        """Return E + λC, or with a limit d the mean less λ (d - C)⁺."""
        if self.limit is None:
            return means + self.weight * tails
        return means - self.weight * np.maximum(self.limit - tails, 0.0)


def first_search(
    returns: FloatArray,
    alpha: float,
    scale: float,
    limit: float | None = None,
    given: float | None = None,
) -> SearchState:
    """Return the state after the first returns.

    ν is the ``given`` one, with which the weights were trained elsewhere, unless it lies below the
    limit, which it could not keep. Else it is the limit, unless that lies above the range, as a
    policy that never falls short of it keeps it; without a limit it is their α-quantile.
    """
    low, high = _span(returns, alpha, scale, limit)
    if given is not None and (limit is None or given >= limit):
        return SearchState(target=given, low=min(low, given), high=max(high, given))
    if limit is not None:
        return SearchState(target=min(limit, high), low=low, high=high)
    target = empirical_cvar(torch.from_numpy(returns), alpha).var
    return SearchState(target=target, low=low, high=high)


def target_grid(settings: TargetSearch, state: SearchState) -> FloatArray:
    """Return the targets to compare, [G]."""
    return np.linspace(state.low, state.high, settings.grid)


def explore_share(settings: TargetSearch, progress: float) -> float:
    """Return the share of episodes that start from a drawn target."""
    return settings.share if progress < settings.settle else 0.0


def settle_search(
    settings: TargetSearch, state: SearchState, returns: FloatArray, alpha: float
) -> SearchState:
    """Return the state when the target has settled; once settled, nothing changes.

    For a given policy E[G] + λ(ν - E(ν - G)⁺/α) is greatest at the α-quantile of G.

    Args:
        settings: What becomes of the target.
        state: Before.
        returns: Recent returns of episodes from the target, at least one.
        alpha: α.
    """
    if state.settled:
        return state
    if settings.final == "kept" or not state.means:
        return replace(state, settled=True)
    quantile = empirical_cvar(torch.from_numpy(returns), alpha).var
    return replace(state, settled=True, target=quantile)


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
) -> SearchState:
    """Return the state after one more update before the target settles.

    Args:
        settings: Rates.
        state: Before.
        curve: Prediction on the grid of ``state``; None when no episode started.
        ended: Episodes of this update, maybe none.
        returns: Recent returns of episodes from all targets, at least one.
        prefer: Which targets are better.
        alpha: α.
        scale: Unit of return.
    """
    state = replace(state, settled=False)
    grid, rate = target_grid(settings, state), settings.episode_rate
    shown = add_episodes(state.shown, grid, ended.targets, ended.returns, rate)
    curves = _smoothed(settings, state, curve)
    if curves is None:
        return replace(state, shown=shown)
    means, shortfalls = corrected(shown, curves)
    scores = prefer(means, grid - np.maximum(shortfalls, 0.0) / alpha)
    target = _better_target(settings, grid, scores, state.target, scale)
    wanted = _span(returns, alpha, scale, prefer.limit)
    down, up = min(wanted[0], target) - state.low, max(wanted[1], target) - state.high
    low = state.low + (_WIDEN if down < 0 else _SHRINK) * down
    high = state.high + (_WIDEN if up > 0 else _SHRINK) * up
    moved = replace(state, target=target, low=low, high=high)
    places = target_grid(settings, moved)
    shown = on_grid(shown, grid, places)
    means, shortfalls = (np.interp(places, grid, row).tolist() for row in curves)
    return replace(moved, means=tuple(means), shortfalls=tuple(shortfalls), shown=shown)


def _smoothed(
    settings: TargetSearch, state: SearchState, curve: TargetCurve | None
) -> FloatArray | None:
    """Return smoothed means and shortfalls, [2, G]; None before the first prediction."""
    past = np.array([state.means, state.shortfalls]) if state.means else None
    if curve is None:
        return past
    now = np.stack([curve.means, curve.shortfalls])
    return now if past is None else past + settings.curve_rate * (now - past)


def _better_target(
    settings: TargetSearch, grid: FloatArray, scores: FloatArray, target: float, scale: float
) -> float:
    """Go some way toward the best target, if it is better by the hysteresis.

    Args:
        settings: Rates.
        grid: [G]
        scores: [G]
        target: ν before.
        scale: Unit of return.
    """
    best, now = int(scores.argmax()), float(np.interp(target, grid, scores))
    if scores[best] <= now + settings.hysteresis * scale:
        return target
    return float(target + settings.rate * (grid[best] - target))


def _span(
    returns: FloatArray, alpha: float, scale: float, limit: float | None
) -> tuple[float, float]:
    """Range in which the best ν must lie: no lower than the tail, no higher than the middle.

    A limit is part of it: a policy that takes little risk so far does not show how much it may.
    """
    quantile = empirical_cvar(torch.from_numpy(returns), alpha).var
    mean = float(returns.mean())
    low = min(quantile, mean - scale) - _LOW_MARGIN * scale
    high = max(quantile, mean) + _HIGH_MARGIN * scale
    return low if limit is None else min(low, limit), high
