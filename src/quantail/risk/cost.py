"""A limit on the mean cost of an episode: its multiplier, and what a unit of cost is worth.

    maximize E[G]   subject to   E[C] <= limit,   C = Σ γ^t c_t

The control is that of :mod:`quantail.risk.dual`, fed with -E[C] and -limit. Costs have units of
their own, so the price μ of a unit of cost is found in spreads of the two advantages,

    μ = w σ(A_mean) / σ(A_cost),   w = 0.01 (exp(m) - 1)

and the control moves m, that is, μ by factors: the spread of A_mean is mostly noise of rewards
which no action can change, so nobody knows beforehand whether the right w is 1 or 0.01.
"""

import math
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from quantail.config_class import config
from quantail.errors import ConfigError
from quantail.risk.config import DualConfig
from quantail.risk.dual import DualState, first_dual, step_dual
from quantail.types import FloatArray

NEEDED_EPISODES = 10
"""That must have ended before the cost gets any weight."""
_KEPT = 100
"""Recent episodes behind the measured mean; all of a rollout that has more."""
_SPREAD_RATE = 0.1
_FINEST = 0.01
"""Weight below which the control is linear, so that it can reach 0 and come back from there."""

# As for the scale of returns: what a careless policy has shown stays the unit for long.
_UNIT_UP, _UNIT_DOWN = 0.2, 0.005
_LEAST_UNIT = 0.1
"""Share of the limit below which the unit of violations does not fall."""
_LEAST_SPREAD = 1e-3
"""The same for the spread of the cost's advantages: below it is the critic's noise."""


@config
class CostDual(DualConfig):
    """PID control of m, in spreads of episode costs.

    Unlike CVaR's it acts from the first episodes on: a mean is known from few of them, and no
    target must be found first. If it went too far while the policy explored, it comes back as
    quickly, because a violation counts at most as one spread.
    """

    start: Annotated[float, Ge(0)] = 3.7
    """m at first, a weight of 0.4. From 0 it comes back in 200 updates at a full violation."""
    hold: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Share of training in which m stays at ``start``."""
    proportional: Annotated[float, Ge(0)] = 0.7
    """m per smoothed violation."""
    integral: Annotated[float, Ge(0)] = 0.015
    """m per violation and update."""
    smoothing: Annotated[float, Ge(0), Lt(1)] = 0.5
    """Weight of the past in the smoothed violation."""
    relief: Annotated[float, Gt(0), Le(1)] = 1.0
    """Factor on the error of a limit that is over-fulfilled."""
    cap: Annotated[float, Gt(0)] = 7.5
    """Largest m, a weight of 18."""


@config
class CostLimit:
    """A limit on the mean of an episode's discounted costs, which come in ``info["cost"]``."""

    limit: float
    """E[C] must be at most this, in discounted cost of an episode."""
    dual: CostDual = CostDual()
    """How the price is found."""

    def check(self) -> None:
        """Refuse a control that would never act."""
        if self.dual.start == 0 and self.dual.integral == 0:
            raise ConfigError(
                "cost.dual.start and cost.dual.integral were both 0, so a limit could be kept only "
                "while it is broken; set one of them"
            )


@config
class CostState:
    """Where the control of a mean cost stands."""

    active: bool = False
    """Enough episodes have ended to measure their mean; before, the cost has no weight."""
    costs: tuple[float, ...] = ()
    """Discounted costs of recent episodes."""
    unit: float = 1.0
    """Spread of episode costs, the unit of violations."""
    mean_std: float = 1.0
    """Smoothed spread of the advantages of the mean return."""
    cost_std: float = 1.0
    """Smoothed spread of the advantages of the cost."""
    dual: DualState = DualState()
    warned_infeasible: bool = False


@dataclass(frozen=True, slots=True)
class CostMeasurement:
    """What one cycle showed."""

    costs: FloatArray
    """[E], discounted costs of the episodes that ended."""
    mean_std: float
    """Spread of the advantages of the mean return."""
    cost_std: float
    """Spread of the advantages of the cost."""


@dataclass(frozen=True, slots=True)
class MeanCost:
    """The mean over a sample of episodes."""

    mean: float
    standard_error: float
    count: int


def measured_cost(state: CostState) -> MeanCost | None:
    """Return the mean cost of recent episodes, or None when there are less than two."""
    count = len(state.costs)
    if count < 2:
        return None
    costs = np.array(state.costs)
    return MeanCost(float(costs.mean()), float(costs.std(ddof=1)) / math.sqrt(count), count)


def weight_now(state: CostState) -> float:
    """Return w, the weight of the cost beside the mean, both in their own spreads."""
    return _FINEST * math.expm1(state.dual.multiplier) if state.active else 0.0


def price_now(settings: CostLimit, state: CostState) -> float:
    """Return μ, in return per cost."""
    least = _LEAST_SPREAD * max(abs(settings.limit), state.unit)
    return weight_now(state) * state.mean_std / max(state.cost_std, least)


def step_cost(
    settings: CostLimit, state: CostState, seen: CostMeasurement, progress: float
) -> CostState:
    """Return the state after one more cycle.

    Args:
        settings: What is wanted.
        state: Before.
        seen: What the cycle showed.
        progress: Share of training that is done.
    """
    kept = max(_KEPT, seen.costs.size)
    state = replace(state, costs=(*state.costs, *seen.costs.tolist())[-kept:])
    costs = np.array(state.costs)
    if not state.active:
        if costs.size < NEEDED_EPISODES:
            return state
        return replace(
            state,
            active=True,
            unit=_spread(costs, settings.limit),
            mean_std=seen.mean_std,
            cost_std=seen.cost_std,
            dual=first_dual(settings.dual),
        )
    wanted = _spread(costs, settings.limit)
    rate = _UNIT_UP if wanted > state.unit else _UNIT_DOWN
    state = replace(
        state,
        unit=state.unit + rate * (wanted - state.unit),
        mean_std=state.mean_std + _SPREAD_RATE * (seen.mean_std - state.mean_std),
        cost_std=state.cost_std + _SPREAD_RATE * (seen.cost_std - state.cost_std),
    )
    if not seen.costs.size or progress < settings.dual.hold:
        return state
    mean = float(costs.mean())
    # A unit no smaller than the distance holds the error within ±1.
    unit = max(state.unit, abs(mean - settings.limit))
    new = min(1.0, seen.costs.size / _KEPT)
    dual = step_dual(settings.dual, state.dual, -mean, -settings.limit, unit, new)
    return replace(state, dual=dual)


def _spread(costs: FloatArray, limit: float) -> float:
    """Return the standard deviation, but no less than a small unit of the size of the costs."""
    size = max(abs(limit), 1e-2 * float(np.abs(costs).max()), 1e-9)
    return max(float(costs.std()), _LEAST_UNIT * size)
