"""What tail risk asks of the next cycle, given what the last one showed."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from quantail.config_class import config
from quantail.risk.budget import TargetDraw
from quantail.risk.config import RiskConfig
from quantail.risk.cvar import EmpiricalCVaR, empirical_cvar
from quantail.risk.dual import DualState, first_dual, step_dual
from quantail.risk.search import (
    Episodes,
    Preference,
    SearchState,
    TargetCurve,
    explore_share,
    first_search,
    settle_search,
    step_search,
)
from quantail.types import BoolArray, FloatArray

# The scale of returns rises quickly, so that no budget saturates, and falls slowly, so that a
# policy that has become safe does not lose the unit in which its budget is measured.
_SCALE_UP, _SCALE_DOWN = 0.2, 0.005
_LEAST_TAIL = 50


@config
class RiskState:
    """Where the control of tail risk stands."""

    active: bool = False
    """Enough episodes have ended to know the scale of returns; before, the tail has no weight."""
    scale: float = 1.0
    """Spread of episode returns, those from drawn targets included: the unit of budgets and
    violations."""
    returns: tuple[float, ...] = ()
    """Recent discounted raw returns of episodes that started from the target."""
    explored_returns: tuple[float, ...] = ()
    """The same of episodes that started from a drawn target."""
    search: SearchState = SearchState()
    dual: DualState = DualState()
    warned_infeasible: bool = False
    ended: int = 0
    """Episodes so far."""
    cut: int = 0
    """Those of them that were cut (truncated)."""
    warned_cut: bool = False


def of_weights(state: RiskState, target: float, scale: float) -> RiskState:
    """Return the state with the target and scale that the policy's weights were trained with.

    They are the policy's and travel with its weights, so that those of another agent bring theirs.
    """
    if (state.search.target, state.scale) == (target, scale):
        return state
    return replace(state, scale=scale, search=replace(state.search, target=target))


def begun_anew(settings: RiskConfig, state: RiskState) -> RiskState:
    """Return the state of an agent of which something else is wanted from now on.

    The multiplier and what was said of the limit start anew; target, scale and search stay.
    """
    is_limited = state.active and settings.limit is not None
    dual = first_dual(settings.dual) if is_limited else DualState()
    return replace(state, dual=dual, warned_infeasible=False)


@dataclass(frozen=True, slots=True)
class RiskMeasurement:
    """What one cycle showed."""

    returns: FloatArray
    """[E], discounted raw returns of the episodes that ended."""
    targets: FloatArray
    """[E], from which they had started."""
    explored: BoolArray
    """[E], which of them had started from a drawn target."""
    curve: TargetCurve | None
    """Prediction on the grid of the state before; None when no episode started."""
    cut: int = 0
    """How many of them were cut."""


def alpha_now(settings: RiskConfig, progress: float) -> float:
    """Return α, which falls linearly from 1 during the annealed part of training."""
    if settings.anneal == 0:
        return settings.alpha
    left = max(0.0, 1.0 - progress / settings.anneal)
    return settings.alpha + (1.0 - settings.alpha) * left


def weight_now(settings: RiskConfig, state: RiskState, scheduled: float | None = None) -> float:
    """Return λ, the weight of CVaR beside the mean; a scheduled one takes over."""
    if scheduled is not None:
        return scheduled
    return state.dual.multiplier if settings.weight is None else settings.weight


def trained_weight(
    settings: RiskConfig, state: RiskState, progress: float, scheduled: float | None = None
) -> float:
    """Return the weight of the tail in this cycle's advantages: λ, sharpened until settling.

    A scheduled weight is taken as it is.
    """
    if not state.active:
        return 0.0
    weight = weight_now(settings, state, scheduled)
    if scheduled is not None or progress >= settings.search.settle:
        return weight
    return max(weight, settings.search.sharpness)


def preference(
    settings: RiskConfig, state: RiskState, scheduled: float | None = None
) -> Preference:
    """Return which targets are better.

    Under a limit it is the one with the best mean among those that keep it, and others pay a price:
    the choice then does not hang on a multiplier that is still being found, and at which a policy
    without any risk may look as good as the best one.
    """
    if settings.limit is None:
        return Preference(weight_now(settings, state, scheduled))
    return Preference(settings.search.price, settings.limit)


def target_draw(settings: RiskConfig, state: RiskState, progress: float) -> TargetDraw:
    """Return from which targets the next episodes start."""
    share = explore_share(settings.search, progress) if state.active else 0.0
    search, focus = state.search, settings.search.focus
    return TargetDraw(search.target, search.low, search.high, share, focus)


def needed_episodes(alpha: float) -> int:
    """Return how many episodes must have ended before the tail gets any weight."""
    return max(10, math.ceil(2 / alpha))


def measured_cvar(settings: RiskConfig, state: RiskState) -> EmpiricalCVaR | None:
    """Return CVaR of the recent episodes from the target, or None when there is none."""
    if not state.returns:
        return None
    return empirical_cvar(torch.tensor(state.returns, dtype=torch.float64), settings.alpha)


def step_risk(
    settings: RiskConfig,
    state: RiskState,
    seen: RiskMeasurement,
    progress: float,
    scheduled: float | None = None,
) -> RiskState:
    """Return the state after one more cycle.

    Args:
        settings: What is wanted.
        state: Before.
        seen: What the cycle showed.
        progress: Share of training that is done.
        scheduled: Weight that a schedule puts in place of the fixed one.
    """
    fresh, drawn = seen.returns[~seen.explored], seen.returns[seen.explored]
    measured = math.ceil(_LEAST_TAIL / settings.alpha)
    kept = max(measured, fresh.size)
    explored = (*state.explored_returns, *drawn.tolist())[-kept:]
    state = replace(
        state,
        returns=(*state.returns, *fresh.tolist())[-kept:],
        explored_returns=explored if progress < settings.search.settle else (),
        ended=state.ended + seen.returns.size,
        cut=state.cut + seen.cut,
    )
    returns = np.array(state.returns)
    if not state.active:
        if returns.size < needed_episodes(settings.alpha):
            return state
        return _activated(settings, state, returns)
    # With a target that has become safe, only episodes from others still show what is possible.
    possible = np.concatenate([returns, state.explored_returns])
    spread = _spread(possible)
    rate = _SCALE_UP if spread > state.scale else _SCALE_DOWN
    state = replace(state, scale=state.scale + rate * (spread - state.scale))
    if settings.limit is not None and fresh.size and progress >= settings.dual.hold:
        cvar = empirical_cvar(torch.from_numpy(returns), settings.alpha).cvar
        new = min(1.0, fresh.size / measured)
        dual = step_dual(settings.dual, state.dual, cvar, settings.limit, state.scale, new)
        state = replace(state, dual=dual)
    if progress >= settings.search.settle:
        search = settle_search(settings.search, state.search, returns, settings.alpha)
        return replace(state, search=search)
    search = step_search(
        settings.search,
        state.search,
        seen.curve,
        Episodes(seen.targets, seen.returns),
        possible,
        preference(settings, state, scheduled),
        alpha=alpha_now(settings, progress),
        scale=state.scale,
    )
    return replace(state, search=search)


def _activated(settings: RiskConfig, state: RiskState, returns: FloatArray) -> RiskState:
    """Return the first state in which the tail has weight.

    Target and scale that came with the weights are those that the policy answers to, and stay.
    """
    given: float | None = None
    scale = _spread(returns)
    if (state.search.target, state.scale) != (SearchState().target, RiskState().scale):
        given, scale = state.search.target, state.scale
    search = first_search(returns, settings.alpha, scale, settings.limit, given)
    return begun_anew(settings, replace(state, active=True, scale=scale, search=search))


def _spread(returns: FloatArray) -> float:
    """Return the standard deviation; where all returns agree, a small unit of their size."""
    least = 1e-3 * max(float(np.abs(returns).max()), 1e-9)
    return max(float(returns.std()), least)
