"""How a limit on a mean cost acts on a cycle: its price before it, its multiplier after it."""

import math
from dataclasses import replace

from quantail.diagnostics.value_quality import explained_variance
from quantail.flow import CostInfo, Rollout, Targets
from quantail.risk.cost import (
    NEEDED_EPISODES,
    CostLimit,
    CostMeasurement,
    CostState,
    measured_cost,
    price_now,
    step_cost,
    weight_now,
)
from quantail.risk.dual import is_infeasible, violation
from quantail.risk.limits import Limit
from quantail.targets.cost import CostObjective


def cost_objective(settings: CostLimit | None, state: CostState) -> CostObjective | None:
    """Return how much the cost counts in this cycle; None when it does not."""
    if settings is None or weight_now(state) == 0:
        return None
    return CostObjective(weight=weight_now(state), price=price_now(settings, state))


def after_cost_cycle(
    settings: CostLimit,
    state: CostState,
    rollout: Rollout,
    targets: Targets,
    objective: CostObjective | None,
    progress: float,
) -> tuple[CostState, CostInfo]:
    """Return where the limit stands after a cycle, and what to report.

    Args:
        settings: What is wanted.
        state: Before.
        rollout: Of the cycle.
        targets: Of the cycle.
        objective: Of the cycle.
        progress: Share of training that is done.
    """
    rows, learned = rollout.cost, targets.cost
    assert rows is not None, "with a limit on a mean cost a rollout carries its costs"
    assert learned is not None, "and its targets are those of the costs too"
    seen = CostMeasurement(
        costs=rows.ended_costs.numpy(),
        mean_std=learned.mean_std,
        cost_std=learned.advantage_std,
    )
    new = step_cost(settings, state, seen, progress)
    measured = measured_cost(new)
    values = rows.values.mean()
    starts = values[rollout.episode_starts]
    explained = float(explained_variance(values, learned.returns, rollout.weights))
    info = CostInfo(
        mean=None if measured is None else measured.mean,
        standard_error=None if measured is None else measured.standard_error,
        episodes=len(new.costs),
        violation=None if measured is None else violation(-measured.mean, -settings.limit),
        multiplier=0.0 if objective is None else objective.weight,
        price=0.0 if objective is None else objective.price,
        predicted=float(starts.mean()) if starts.numel() else None,
        infeasible=is_infeasible(settings.dual, new.dual),
        advantage_std=learned.advantage_std,
        explained_variance=None if math.isnan(explained) else explained,
    )
    return new, info


def told_cost(
    settings: CostLimit, state: CostState, info: CostInfo, *, is_last: bool
) -> tuple[CostState, str | None]:
    """Return the state, and what is to be said of the limit after a cycle.

    Once that it turns out infeasible; else after the last cycle that it is broken, by two standard
    errors, or that too few episodes have ended to say so.
    """
    limit = Limit(
        name="cost.limit",
        value=settings.limit,
        measure="the mean cost",
        dual=settings.dual,
        settings="cost",
        loosen="raise cost.limit",
    )
    if is_last and not state.active:
        return state, (
            f"cost.limit = {settings.limit} had no effect: {len(state.costs)} episode(s) ended in "
            f"training, and their mean cost is measured from {NEEDED_EPISODES} on. Train longer, "
            "or end episodes by a time limit"
        )
    if state.warned_infeasible or info.mean is None or info.standard_error is None:
        return state, None
    if info.infeasible:
        return replace(state, warned_infeasible=True), limit.infeasible(info.mean)
    if is_last and (info.violation or 0.0) > 2 * info.standard_error:
        return state, limit.broken(info.mean, info.standard_error)
    return state, None
