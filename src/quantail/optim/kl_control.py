"""Keeps the policy near the one that acted: early stop, fewer epochs, penalty, learning rate.

All of it reads KL(acting || new) of the minibatches. Decisions within a cycle are made by
:func:`judge`, those between cycles by :func:`step`; both are pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from quantail.config_class import config
from quantail.errors import ConfigError

StopReason = Literal["", "absolute", "consecutive", "fraction"]
"""Why the actor's steps ended early; empty when they did not."""

_FLOOR_OF_BAND, _CEILING_OF_BAND = 0.5, 2.0
"""KL within this many times the target leaves the learning rate alone."""


@config
class KlStop:
    """When the actor's steps of a cycle end before their time."""

    factor: Annotated[float, Ge(1)] | None = 1.5
    """End when the KL of one minibatch exceeds this times the target; None never does."""
    consecutive: Annotated[int, Ge(2)] | None = None
    """End when so many minibatches in a row exceed the target."""
    fraction: Annotated[float, Gt(0), Le(1)] | None = None
    """End after an epoch in which this share of the minibatches or more exceeded the target."""
    after: Literal["end", "critics"] = "end"
    """What then happens: the cycle ends, or the critics go on alone."""
    undo: bool = False
    """Undo the step that went too far. The last step of a cycle is judged as well, by one more
    pass over its minibatch, so that no cycle ends beyond the limit there."""

    def check(self) -> None:
        """Refuse a stop that never stops."""
        if self.factor is None and self.consecutive is None and self.fraction is None:
            raise ConfigError(
                "stop needs factor, consecutive or fraction; all were None, so it would never "
                "stop. Set one, or stop = None"
            )


@config
class EpochFactor:
    """Fewer epochs after a cycle that was stopped, more again after calm ones."""

    decay: Annotated[float, Gt(0), Lt(1)] = 0.5
    """The number of epochs is multiplied by this after a stopped cycle; at least one is left."""
    recovery: Annotated[float, Gt(1)] = 1.25
    """And by this after a cycle that was not stopped, up to the full number."""


@config
class KlPenalty:
    """β KL(acting || new) in the loss, with β from a PID controller on the relative error.

    e = KL / target - 1;   β = clip(initial + kp e + ki Σe + kd Δe, least, greatest)

    The sum grows only until β is at the bound that the error pushes toward, so that β leaves the
    bound as soon as the error changes its sign. It is held within ±(greatest - least) / ki; with
    ki = 0 it is 0.
    """

    initial: Annotated[float, Ge(0)] = 0.01
    least: Annotated[float, Ge(0)] = 0.0
    greatest: Annotated[float, Gt(0)] = 1.0
    kp: Annotated[float, Ge(0)] = 0.05
    ki: Annotated[float, Ge(0)] = 0.01
    kd: Annotated[float, Ge(0)] = 0.0

    def check(self) -> None:
        """Refuse bounds that are not in order, and a penalty that is never there."""
        if not self.least < self.greatest:
            raise ConfigError(
                f"penalty.least must be less than greatest ({self.greatest}); was {self.least}"
            )
        if not self.least <= self.initial <= self.greatest:
            raise ConfigError(
                f"penalty.initial must lie in [least, greatest] = [{self.least}, {self.greatest}]; "
                f"was {self.initial}"
            )
        if self.initial == self.kp == self.ki == self.kd == 0:
            raise ConfigError(
                "penalty with initial, kp, ki and kd of 0 has no effect; leave it out"
            )


@config
class KlLearningRate:
    """A factor on the learning rates, which falls when the KL is high and rises when it is low.

    After a cycle that was stopped, or with KL > 2 target, the factor is divided by ``change``;
    after one with KL < target / 2 it is multiplied by it; within [least, greatest]. A stopped cycle
    counts as too far whatever its KL, which the stop has cut short.
    """

    change: Annotated[float, Gt(1)] = 1.5
    least: Annotated[float, Gt(0), Le(1)] = 0.01
    greatest: Annotated[float, Ge(1)] = 1.0

    def check(self) -> None:
        """Refuse a factor that cannot move."""
        if self.least == self.greatest:
            raise ConfigError(
                "learning_rate.least and greatest must differ, or the factor cannot move; both "
                f"were {self.least}"
            )


@config
class KlControl:
    """How far one cycle may move the policy, and what happens when it goes further."""

    target: Annotated[float, Gt(0)] = 0.02
    """KL(acting || new) that a cycle should stay below, in nats."""
    estimator: Literal["analytic", "k3"] = "analytic"
    """From the laws themselves, or from the sampled actions."""
    stop: KlStop | None = KlStop()
    epochs: EpochFactor | None = None
    penalty: KlPenalty | None = None
    learning_rate: KlLearningRate | None = None

    def check(self) -> None:
        """Refuse parts that have no effect."""
        if self.stop is None and self.epochs is not None:
            raise ConfigError(
                "kl_control.epochs has no effect with stop = None: only a stopped cycle lowers the "
                "number of epochs. Leave it out, or set stop"
            )
        if self.stop is None and self.penalty is None and self.learning_rate is None:
            raise ConfigError(
                "kl_control without stop, penalty and learning_rate has no effect; set one of "
                "them, or leave kl_control out"
            )


@config
class KlState:
    """What the controller remembers from cycle to cycle."""

    epoch_factor: float = 1.0
    rate_factor: float = 1.0
    beta: float | None = None
    """None before the first cycle: the initial one."""
    integral: float = 0.0
    previous_error: float | None = None


@dataclass(frozen=True, slots=True)
class PenaltyTerms:
    """Shares of the controller's parts in β, before the bounds."""

    error: float
    proportional: float
    integral: float
    derivative: float


def judge(stop: KlStop | None, target: float, seen: Sequence[float], epoch: int) -> StopReason:
    """Say whether the actor must stop now.

    Args:
        stop: The rules; None never stops.
        target: In nats.
        seen: KL of the cycle's minibatches so far, the present one last.
        epoch: Minibatches of this epoch if the present one is its last, else 0.
    """
    if stop is None:
        return ""
    if stop.factor is not None and seen[-1] > stop.factor * target:
        return "absolute"
    over = [kl > target for kl in seen]
    if stop.consecutive is not None and sum(over[-stop.consecutive :]) == stop.consecutive:
        return "consecutive"
    if stop.fraction is not None and epoch and sum(over[-epoch:]) >= stop.fraction * epoch:
        return "fraction"
    return ""


def epochs_now(control: KlControl | None, state: KlState, n_epochs: int) -> int:
    """Return the epochs of this cycle, from 1 to ``n_epochs``."""
    if control is None or control.epochs is None:
        return n_epochs
    return max(1, round(n_epochs * state.epoch_factor))


def beta_now(control: KlControl | None, state: KlState) -> float:
    """Return the penalty's coefficient of this cycle."""
    if control is None or control.penalty is None:
        return 0.0
    return control.penalty.initial if state.beta is None else state.beta


def step(
    control: KlControl | None,
    state: KlState,
    target: float,
    kl: float,
    stopped: bool,
    n_epochs: int,
) -> tuple[KlState, PenaltyTerms | None]:
    """Return the state for the next cycle, and what moved the penalty.

    Args:
        control: None leaves the state alone.
        state: Of the cycle that ends.
        target: In nats, as scheduled for this cycle.
        kl: Mean over the actor's last epoch.
        stopped: Whether the actor stopped early.
        n_epochs: The full number, which bounds the factor from below.
    """
    if control is None:
        return state, None
    if control.epochs is not None:
        factor = state.epoch_factor
        factor *= control.epochs.decay if stopped else control.epochs.recovery
        state = replace(state, epoch_factor=min(max(factor, 1 / n_epochs), 1.0))
    if control.learning_rate is not None:
        factor = _rate_factor(control.learning_rate, state.rate_factor, kl / target, stopped)
        state = replace(state, rate_factor=factor)
    return (state, None) if control.penalty is None else _pid(control.penalty, state, kl / target)


def _rate_factor(config: KlLearningRate, factor: float, relative: float, stopped: bool) -> float:
    if stopped or relative > _CEILING_OF_BAND:
        factor /= config.change
    elif relative < _FLOOR_OF_BAND:
        factor *= config.change
    return min(max(factor, config.least), config.greatest)


def _pid(config: KlPenalty, state: KlState, relative: float) -> tuple[KlState, PenaltyTerms]:
    error = relative - 1
    proportional = config.kp * error
    previous = error if state.previous_error is None else state.previous_error
    derivative = config.kd * (error - previous)
    integral = 0.0
    if config.ki > 0:
        limit = (config.greatest - config.least) / config.ki
        integral = min(max(state.integral + error, -limit), limit)
        others = config.initial + proportional + derivative
        wanted = others + config.ki * integral
        # Anti-windup: an error that pushes beyond a bound is summed up to the bound only.
        if wanted > config.greatest and error > 0:
            integral = max(state.integral, (config.greatest - others) / config.ki)
        elif wanted < config.least and error < 0:
            integral = min(state.integral, (config.least - others) / config.ki)
    wanted = config.initial + proportional + config.ki * integral + derivative
    beta = min(max(wanted, config.least), config.greatest)
    terms = PenaltyTerms(error, proportional, config.ki * integral, derivative)
    return replace(state, beta=beta, integral=integral, previous_error=error), terms
