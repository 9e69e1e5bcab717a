"""How the controllers act on a cycle: its coefficients before it, their states after it."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any, Self

from torch import Tensor

from quantail.config import LearnerConfig
from quantail.flow import Coefficients, ControlInfo, RatioInfo, Rollout, StepInfo
from quantail.losses.reduction import weighted_mean
from quantail.nets.actors import base_entropy
from quantail.optim import entropy_control, guard, kl_control
from quantail.optim.entropy_control import EntropyCoefficient
from quantail.optim.guard import Guard, GuardState, NonFiniteError
from quantail.optim.kl_control import KlControl
from quantail.state import TrainState


@dataclass(frozen=True, slots=True)
class Cycle:
    """The steps of one cycle so far."""

    epochs_planned: int
    guard: GuardState
    steps: tuple[StepInfo, ...] = ()
    epochs: int = 0
    """Begun."""
    stopped: bool = False
    """The actor has stopped."""
    rolled_back: bool = False
    epoch_first: int = 0
    """Index of the first step of the present epoch."""
    divergences: tuple[float, ...] = ()
    """KL of the actor's steps."""

    def begin_epoch(self) -> Self:
        """Return the cycle with one more epoch begun."""
        return replace(self, epochs=self.epochs + 1, epoch_first=len(self.steps))

    def with_step(self, step: StepInfo, counted: GuardState, kl: float) -> Self:
        """Return the cycle with one more step."""
        return replace(
            self,
            steps=(*self.steps, step),
            stopped=self.stopped or step.stop != "",
            guard=counted,
            divergences=(*self.divergences, kl) if step.actor else self.divergences,
        )


def coefficients_now(
    settings: LearnerConfig, given: Coefficients, state: TrainState
) -> tuple[Coefficients, EntropyCoefficient]:
    """Return the numbers of a cycle: as given, then scheduled, then controlled."""
    now = replace(given, **settings.schedules.at(state.env_steps))
    if settings.kl_control is not None and now.kl_target is None:
        now = replace(now, kl_target=settings.kl_control.target)
    if settings.imitation is not None and settings.imitation.coefficient is not None:
        now = replace(now, imitation=settings.imitation.coefficient)
    critic = now.critic_learning_rate
    if critic is None:
        critic = settings.critic_learning_rate
    factor = state.kl.rate_factor
    entropy = entropy_control.coefficient(
        settings.entropy_control, state.entropy, now.entropy, state.updates
    )
    now = replace(
        now,
        learning_rate=now.learning_rate * factor,
        critic_learning_rate=None if critic is None else critic * factor,
        entropy=entropy.used,
        kl_penalty=kl_control.beta_now(settings.kl_control, state.kl),
    )
    return now, entropy


def count_acting(config: Guard, state: TrainState, rollout: Rollout) -> TrainState:
    """Return the state with the bad rows of a rollout counted.

    Raises:
        NonFiniteError: Too many steps in a row were bad.
    """
    faults = rollout.faults
    outcomes = (None,) if faults is None else faults.steps
    counted, exceeded = guard.count(config, state.guard, outcomes, acting=True)
    if faults is not None:
        counted = guard.add(counted, faults.counts)
        if exceeded:
            place = next(place for place in faults.steps if place is not None)
            raise NonFiniteError(guard.report(config, counted, place, faults.first, _where(state)))
    return replace(state, guard=counted)


def count_learning(
    config: Guard, state: TrainState, cycle: Cycle, step: StepInfo
) -> tuple[GuardState, Mapping[str, Any] | None]:
    """Count what was bad in a step; return also the report, when the limit is reached."""
    counted, exceeded = guard.count(config, cycle.guard, step.outcomes, acting=False)
    if not exceeded:
        return counted, None
    place = next(place for place in step.outcomes if place is not None)
    where = {**_where(state), "epoch": cycle.epochs, "step": len(cycle.steps) + 1}
    return counted, guard.report(config, counted, place, step.first_bad, where)


def after_cycle(
    settings: LearnerConfig,
    now: Coefficients,
    entropy: EntropyCoefficient,
    state: TrainState,
    cycle: Cycle,
    rollout: Rollout,
    explained_variance: Tensor,
    drift: tuple[float, float] | None,
) -> tuple[TrainState, ControlInfo]:
    """Return the state for the next cycle, and what the controllers did in this one.

    Args:
        settings: How to learn.
        now: What the cycle used.
        entropy: The stages of its entropy coefficient.
        state: Before the cycle.
        cycle: What happened.
        rollout: What was learned from.
        explained_variance: Of this cycle.
        drift: Of the policy's normalizer.
    """
    law_entropy = float(weighted_mean(base_entropy(rollout.policy), rollout.weights))
    last_epoch = cycle.divergences[cycle.epoch_first :] or cycle.divergences[-1:]
    kl_state, terms = state.kl, None
    if settings.kl_control is not None and now.kl_target is not None:
        kl_state, terms = kl_control.step(
            settings.kl_control,
            state.kl,
            now.kl_target,
            sum(last_epoch) / len(last_epoch),
            cycle.stopped,
            settings.n_epochs,
        )
    told = entropy_control.observe(
        settings.entropy_control,
        state.entropy,
        state.updates,
        law_entropy,
        float(explained_variance),
    )
    advanced = replace(
        state,
        env_steps=state.env_steps + rollout.rewards.numel(),
        updates=state.updates + 1,
        kl=kl_state,
        entropy=told,
        guard=cycle.guard,
    )
    target = now.kl_target or float("inf")
    before = state.guard.counted()
    info = ControlInfo(
        entropy_raw=entropy.raw,
        entropy_nominal=entropy.nominal,
        policy_entropy=law_entropy,
        entropy_slope=told.slope,
        decay_start=told.decay_start,
        has_entropy_control=settings.entropy_control is not None,
        epochs_planned=cycle.epochs_planned,
        epoch_factor=kl_state.epoch_factor,
        rate_factor=state.kl.rate_factor,
        kl_exceeded=sum(kl > target for kl in cycle.divergences) / len(cycle.divergences),
        penalty_terms=None if terms is None else astuple(terms),
        faults={place: n - before[place] for place, n in cycle.guard.counted().items()},
        rolled_back=cycle.rolled_back,
        normalizer_drift=drift,
    )
    return advanced, info


def kl_of(control: KlControl | None, ratio: RatioInfo) -> float:
    """Return the KL of a step that decisions read."""
    sampled = control is not None and control.estimator == "k3"
    return float(ratio.sampled_kl if sampled else ratio.approx_kl)


def _where(state: TrainState) -> dict[str, int]:
    return {"cycle": state.updates, "env_steps": state.env_steps}
