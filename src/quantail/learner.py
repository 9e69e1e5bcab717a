"""One update: what a rollout teaches, from targets to gradient steps.

The whole algorithm is :func:`update`; everything it calls is a pure function of what it is given,
except the optimizer steps and the two moves of statistics that belong to the policy (value scale,
observation scale), which happen once per cycle, here.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor
from torch.optim import Optimizer

from quantail.config import LearnerConfig
from quantail.control import (
    Cycle,
    after_cycle,
    coefficients_now,
    count_acting,
    count_learning,
    kl_of,
)
from quantail.cost_control import after_cost_cycle, cost_objective
from quantail.diagnostics.drift import drift, moments
from quantail.diagnostics.value_quality import explained_variance, grouped_explained_variance
from quantail.flow import (
    Coefficients,
    CostInfo,
    Minibatch,
    RiskInfo,
    Rollout,
    Targets,
    UpdateResult,
)
from quantail.gradient import StopRule, distance, gradient_step
from quantail.losses.imitation import Cloning
from quantail.nets.actor_critic import ActorCritic
from quantail.nets.observations import map_observation
from quantail.optim.groups import set_learning_rates
from quantail.optim.guard import NonFiniteError
from quantail.optim.kl_control import epochs_now, judge
from quantail.optim.safety import Snapshot, undoing
from quantail.rollout.demonstrations import (
    DemonstrationRows,
    Demonstrations,
    draw_chunks,
    replayed_states,
)
from quantail.rollout.sequences import chunk_length, minibatches
from quantail.rollout.states import chunk_states, replayed_values
from quantail.state import TrainState
from quantail.tail_control import after_tail_cycle, tail_objective
from quantail.targets.compute import compute_targets
from quantail.targets.twin import twin_mean


@dataclass(frozen=True, slots=True)
class Extras:
    """What an update may be given besides."""

    demonstrations: Demonstrations | None = None
    healthy: Snapshot | None = None
    """Weights to go back to when too much is not finite."""


def update(
    policy: ActorCritic,
    optimizer: Optimizer,
    rollout: Rollout,
    settings: LearnerConfig,
    now: Coefficients,
    state: TrainState,
    generator: Generator,
    extras: Extras = Extras(),  # noqa: B008 - frozen
) -> tuple[UpdateResult, TrainState]:
    """Learn from one rollout.

    Args:
        policy: Changed in place.
        optimizer: Of the policy's parameters; its learning rates are set here and nowhere else.
        rollout: As acted by this policy with these weights.
        settings: How to learn.
        now: The numbers of this cycle as given; schedules and controllers change them.
        state: Where training stands.
        generator: Draws target atoms and the order of minibatches.
        extras: Demonstrations and the like.

    Returns:
        What happened, and where training stands now.

    Raises:
        NonFiniteError: Too much was not finite in a row.
    """
    now, entropy = coefficients_now(settings, now, state)
    set_learning_rates(optimizer, now.learning_rate, now.critic_learning_rate)
    counted = count_acting(settings.guard, state, rollout)
    tail = tail_objective(settings.tail_risk, state.risk, now)
    spent = cost_objective(settings.cost, state.cost)
    twin = policy.config.twin
    targets = compute_targets(rollout, settings.targets, twin, generator, tail, spent)
    _update_scales(policy, rollout, targets)
    cycle = run_epochs(
        policy, optimizer, rollout, targets, settings, now, counted, generator, extras
    )
    early = explained_variance(twin_mean(rollout.values, twin), targets.returns, rollout.weights)
    late, grouped = _explained_now(policy, settings, rollout, targets)
    moved = _update_normalizer(policy, rollout)
    judged = early if late is None else late
    advanced, control = after_cycle(settings, now, entropy, state, cycle, rollout, judged, moved)
    risk: RiskInfo | None = None
    if settings.tail_risk is not None:
        risk_state, risk = after_tail_cycle(
            settings.tail_risk, state.risk, policy, rollout, targets, tail, now, generator
        )
        advanced = replace(advanced, risk=risk_state)
    cost: CostInfo | None = None
    if settings.cost is not None:
        cost_state, cost = after_cost_cycle(
            settings.cost, state.cost, rollout, targets, spent, now.progress
        )
        advanced = replace(advanced, cost=cost_state)
    result = UpdateResult(
        coefficients=now,
        advantages=targets.info,
        steps=tuple(cycle.steps),
        explained_variance=early,
        explained_variance_after=late,
        explained_variance_grouped=grouped,
        control=control,
        epochs=cycle.epochs,
        stopped_early=cycle.stopped,
        risk=risk,
        cost=cost,
    )
    return result, advanced


def run_epochs(
    policy: ActorCritic,
    optimizer: Optimizer,
    rollout: Rollout,
    targets: Targets,
    settings: LearnerConfig,
    now: Coefficients,
    state: TrainState,
    generator: Generator,
    extras: Extras,
) -> Cycle:
    """Go over the rollout several times, until the epochs or a controller end it."""
    n_epochs = epochs_now(settings.kl_control, state.kl, settings.n_epochs)
    has_memory = policy.config.core.kind != "none"
    length = chunk_length(settings.n_steps, settings.batch_size, settings.chunk_length, has_memory)
    per_epoch = math.ceil(rollout.rewards.numel() / settings.batch_size)
    draw = _demonstrated(policy, settings, length, generator, extras.demonstrations)
    cycle = Cycle(epochs_planned=n_epochs, guard=state.guard)
    undo = before = _nothing
    while cycle.epochs < n_epochs:
        cycle = cycle.begin_epoch()
        states = chunk_states(policy, rollout, length, settings.refresh_states, settings.burn_in)
        batches = minibatches(rollout, targets, states, length, settings.batch_size, generator)
        for index, batch in enumerate(batches, start=1):
            if settings.undoes_steps and not cycle.stopped:
                undo, before = before, undoing(optimizer, dict(policy.named_parameters()))
            step = gradient_step(
                policy,
                optimizer,
                batch,
                settings,
                now,
                actor=not cycle.stopped,
                stop=_stop_rule(settings, now, cycle, per_epoch if index == per_epoch else 0),
                shown=draw(),
            )
            counted, problem = count_learning(settings.guard, state, cycle, step)
            kl = kl_of(settings.kl_control, step.losses.ratio)
            cycle = cycle.with_step(step, counted, kl)
            if step.stop:
                undo()
            if problem is not None:
                return _back_to_health(policy, optimizer, settings, cycle, extras, problem)
            if cycle.stopped and not settings.critics_go_on:
                return cycle
    if settings.undoes_steps and not cycle.stopped:
        cycle = _judge_last_step(policy, batch, settings, now, cycle, undo=before)
    return cycle


def _judge_last_step(
    policy: ActorCritic,
    batch: Minibatch,
    settings: LearnerConfig,
    now: Coefficients,
    cycle: Cycle,
    undo: Callable[[], None],
) -> Cycle:
    """Undo the last step of a cycle if it went too far; no later minibatch would tell."""
    rule = _stop_rule(settings, now, cycle, 0)
    if rule is None:
        return cycle
    ratio = distance(policy, batch, settings, now)
    if not rule(ratio):
        return cycle
    undo()
    kl = kl_of(settings.kl_control, ratio)
    return replace(cycle, stopped=True, divergences=(*cycle.divergences, kl))


def _nothing() -> None:
    """Undo nothing: no step was taken before."""


def _stop_rule(
    settings: LearnerConfig, now: Coefficients, cycle: Cycle, epoch: int
) -> StopRule | None:
    control, target = settings.kl_control, now.kl_target
    if control is None or target is None:
        return None
    seen = cycle.divergences
    return lambda ratio: judge(control.stop, target, (*seen, kl_of(control, ratio)), epoch)


def _demonstrated(
    policy: ActorCritic,
    settings: LearnerConfig,
    length: int,
    generator: Generator,
    demos: Demonstrations | None,
) -> Callable[[], DemonstrationRows | None]:
    """Return what draws the demonstrations of one step."""
    if demos is None or not isinstance(settings.imitation, Cloning):
        return lambda: None
    size = settings.imitation.batch_size
    states = replayed_states(policy, demos, length)
    return lambda: draw_chunks(demos, states, length, size, generator)


def _back_to_health(
    policy: ActorCritic,
    optimizer: Optimizer,
    settings: LearnerConfig,
    cycle: Cycle,
    extras: Extras,
    problem: Mapping[str, Any],
) -> Cycle:
    """Put the last healthy weights back and end the cycle, or stop the run."""
    if extras.healthy is None or cycle.guard.rollbacks >= settings.guard.rollbacks:
        raise NonFiniteError(problem)
    extras.healthy.put_back(policy, optimizer)
    guard = replace(cycle.guard, rollbacks=cycle.guard.rollbacks + 1, learning_row=0)
    return replace(cycle, guard=guard, rolled_back=True)


def _explained_now(
    policy: ActorCritic, settings: LearnerConfig, rollout: Rollout, targets: Targets
) -> tuple[Tensor | None, dict[str, float]]:
    """Return the explained variance of the updated critics, over all rows and by group."""
    if not settings.explained_variance.after_update:
        return None, {}
    values = twin_mean(replayed_values(policy, rollout), policy.config.twin)
    rows = (values, targets.returns, rollout.weights)
    if rollout.groups is None:
        return explained_variance(*rows), {}
    return explained_variance(*rows), grouped_explained_variance(*rows, rollout.groups)


def _update_scales(policy: ActorCritic, rollout: Rollout, targets: Targets) -> None:
    """Move the scale of every critic to the new targets; no prediction moves."""
    rows = rollout.weights.flatten()
    policy.update_scale(targets.atoms.flatten(0, 1), targets.atom_weights, rows)
    if targets.cost is not None:
        policy.update_cost_scale(targets.cost.returns.flatten(), rows)


def _update_normalizer(policy: ActorCritic, rollout: Rollout) -> tuple[float, float] | None:
    """Take in the observations of the rollout, without those that stand in for bad ones.

    Returns:
        How far means and deviations moved; None without a normalizer.
    """
    before = moments(_normalizer_state(policy))
    faults = rollout.faults
    kept = ~torch.zeros_like(rollout.terminated) if faults is None else ~faults.rows
    policy.update_normalizer(map_observation(rollout.observations, lambda part: part[kept]))
    return drift(before, moments(_normalizer_state(policy)))


def _normalizer_state(policy: ActorCritic) -> dict[str, Tensor] | None:
    return None if policy.normalizer is None else policy.normalizer.state_dict()
