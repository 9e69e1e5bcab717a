"""How tail risk acts on a cycle: its weight before it, its target and multiplier after it."""

from dataclasses import replace

from torch import Generator

from quantail.flow import Coefficients, RiskInfo, Rollout, Targets
from quantail.nets.actor_critic import ActorCritic
from quantail.risk.config import RiskConfig
from quantail.risk.control import (
    RiskMeasurement,
    RiskState,
    alpha_now,
    measured_cvar,
    needed_episodes,
    of_weights,
    step_risk,
    target_draw,
    trained_weight,
)
from quantail.risk.dual import is_infeasible, violation
from quantail.risk.limits import Limit
from quantail.risk.search import TargetCurve, target_grid
from quantail.rollout.target_curve import StartTail, start_tail, target_curve
from quantail.state import TrainState
from quantail.targets.compute import TailObjective
from quantail.types import FloatArray

_FEW_EPISODES = 5


def tail_objective(
    settings: RiskConfig | None, state: RiskState, now: Coefficients
) -> TailObjective | None:
    """Return how much the tail counts in this cycle; None when it does not."""
    if settings is None:
        return None
    weight = trained_weight(settings, state, now.progress, now.cvar_weight)
    if weight == 0:
        return None
    return TailObjective(alpha=alpha_now(settings, now.progress), weight=weight)


def after_tail_cycle(
    settings: RiskConfig,
    state: RiskState,
    policy: ActorCritic,
    rollout: Rollout,
    targets: Targets,
    objective: TailObjective | None,
    now: Coefficients,
    generator: Generator,
) -> tuple[RiskState, RiskInfo]:
    """Return where tail risk stands after a cycle, and what to report.

    The policy's budget is moved to the new target.

    Args:
        settings: What is wanted.
        state: Before.
        policy: After the cycle's steps.
        rollout: Of the cycle.
        targets: Of the cycle.
        objective: Of the cycle.
        now: Numbers of the cycle.
        generator: Draws atoms, where a critic needs it.
    """
    assert rollout.budget is not None, "with tail risk a rollout carries its budgets"
    assert policy.budget is not None, "with tail risk a policy has a budget"
    state = of_weights(state, float(policy.budget.target), float(policy.budget.scale))
    target, twin = state.search.target, policy.config.twin
    predicted = start_tail(rollout, target, settings.alpha, twin, generator)
    curve: TargetCurve | None = None
    if state.active and now.progress < settings.search.settle:
        grid = target_grid(settings.search, state.search)
        curve = target_curve(policy, rollout, grid, generator)
    seen = RiskMeasurement(
        returns=rollout.budget.ended_returns.numpy(),
        targets=rollout.budget.ended_targets.numpy(),
        explored=rollout.budget.ended_explored.numpy(),
        curve=curve,
        cut=int(rollout.budget.ended_cut.sum()),
    )
    new = step_risk(settings, state, seen, now.progress, now.cvar_weight)
    policy.budget.move(new.search.target, new.scale)
    info = _info(settings, state, new, seen, predicted, targets, objective, now.progress)
    return new, info


def _info(
    settings: RiskConfig,
    before: RiskState,
    after: RiskState,
    seen: RiskMeasurement,
    predicted: StartTail | None,
    targets: Targets,
    objective: TailObjective | None,
    progress: float,
) -> RiskInfo:
    measured = measured_cvar(settings, after)
    weight = 0.0 if objective is None else objective.weight
    broken: float | None = None
    if settings.limit is not None and measured is not None:
        broken = violation(measured.cvar, settings.limit)
    return RiskInfo(
        alpha=alpha_now(settings, progress),
        weight=weight,
        target=before.search.target,
        scale=after.scale,
        cvar=None if measured is None else measured.cvar,
        cvar_error=None if measured is None else measured.standard_error,
        tail_episodes=None if measured is None else measured.tail_count,
        predicted_cvar=None if predicted is None else predicted.cvar,
        coverage=_coverage(seen, predicted),
        violation=broken,
        constraint_term=None if broken is None else before.dual.multiplier * broken / after.scale,
        infeasible=settings.limit is not None and is_infeasible(settings.dual, after.dual),
        explore_share=target_draw(settings, before, progress).share,
        tail_share=None if targets.tail is None else float(targets.tail.tail_share),
        advantage_std=None if targets.tail is None else float(targets.tail.advantages.std()),
    )


def _coverage(seen: RiskMeasurement, predicted: StartTail | None) -> float | None:
    """Return the share of episodes from the target that fell to the predicted α-quantile or below.

    The critics had not learned from these episodes when they predicted it. In a calibrated critic's
    case the share is α, or more where the quantile has mass of its own.
    """
    fresh: FloatArray = seen.returns[~seen.explored]
    if predicted is None or not fresh.size:
        return None
    return float((fresh <= predicted.quantile).mean())


def told_infeasible(
    settings: RiskConfig, state: TrainState, info: RiskInfo
) -> tuple[TrainState, str | None]:
    """Return the state, and a sentence the first time that a limit turns out infeasible."""
    if not info.infeasible or state.risk.warned_infeasible:
        return state, None
    assert info.cvar is not None, "an infeasible limit was measured"
    advice = _limit(settings).infeasible(info.cvar)
    return replace(state, risk=replace(state.risk, warned_infeasible=True)), advice


def told_at_end(settings: RiskConfig, state: TrainState, info: RiskInfo) -> str | None:
    """Return a sentence for the last cycle: tail risk was never on, or a limit is broken.

    Nothing is said of a limit that was called infeasible.
    """
    risk = state.risk
    if not risk.active:
        return (
            f"tail risk had no effect: {len(risk.returns)} episodes ended, and "
            f"{needed_episodes(settings.alpha)} are needed to know a tail of {settings.alpha}. "
            "Train longer, use shorter episodes or a larger cvar_alpha"
        )
    if settings.limit is None:
        return None if risk.search.means else _unsearched(settings, risk)
    if risk.warned_infeasible or info.cvar is None or info.cvar_error is None:
        return None
    if (info.tail_episodes or 0) < _FEW_EPISODES:
        return (
            f"cvar_limit = {settings.limit} cannot be judged: CVaR of the last episodes is "
            f"{info.cvar:.4g}, from {info.tail_episodes or 0:.3g} episodes in the tail. Train "
            "longer, use shorter episodes or a larger cvar_alpha"
        )
    if info.violation is None or info.violation <= 2 * info.cvar_error:
        return None
    return _limit(settings).broken(info.cvar, info.cvar_error)


def _unsearched(settings: RiskConfig, risk: RiskState) -> str | None:
    """Return a sentence about a target that never was compared with others, if others count."""
    if settings.search.share == 0:
        return None
    return (
        f"the target of tail risk ({risk.search.target:.4g}) was not compared with others: too few "
        f"episodes had ended before search.settle ({settings.search.settle}) of training. Train "
        "longer, use shorter episodes, a larger cvar_alpha or a later search.settle"
    )


def told_cut(state: TrainState) -> tuple[TrainState, str | None]:
    """Return the state, and a sentence the first time that most episodes turn out to be cut."""
    risk = state.risk
    if risk.warned_cut or not risk.active or 2 * risk.cut <= risk.ended:
        return state, None
    advice = (
        f"{risk.cut} of {risk.ended} episodes were cut (truncated) and did not end: CVaR is "
        "measured over their returns up to the cut, while the critics also value what would "
        "follow it, so the policy answers to another tail than the measured one. Let episodes end "
        "(terminated) at their horizon, in the market simulator by episodes.end 'final'; ignore "
        "this if an episode is only a window on a task without end"
    )
    return replace(state, risk=replace(risk, warned_cut=True)), advice


def _limit(settings: RiskConfig) -> Limit:
    assert settings.limit is not None, "there is a limit to speak of"
    return Limit("cvar_limit", settings.limit, "CVaR", settings.dual, "risk", "lower cvar_limit")
