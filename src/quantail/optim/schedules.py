"""Numbers that change during training.

Schedules of the first kind are functions of the progress that remains: 1 at the start of training
and 0 at its end, as in Stable-Baselines3, so a schedule of theirs is a schedule of ours. Their
progress is that of the present call of ``learn``, so a second call starts them anew.

Schedules of the second kind, :class:`StepLinear` and :class:`StepCosine`, count the steps of all
environments since the agent was made. They mean the same after a restart or a second ``learn``.
"""

import math
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated, Literal, TypeAlias

from annotated_types import Ge, Gt, Le

from quantail.config_class import BY_KIND, config
from quantail.errors import ConfigError

Schedule: TypeAlias = Callable[[float], float]
"""Progress remaining, from 1 to 0, to value."""


@config
class ConstantSchedule:
    """The same value throughout."""

    kind: Literal["constant"] = "constant"
    value: float

    def __call__(self, progress_remaining: float) -> float:
        """Return the value."""
        return self.value


@config
class _Progress:
    """From ``start`` to ``end`` over a share of training, then constant."""

    kind: str
    start: float
    end: float = 0.0
    duration: Annotated[float, Gt(0), Le(1)] = 1.0
    """Share of training after which ``end`` is reached."""

    def check(self) -> None:
        """Refuse a schedule that does not move."""
        _check_moves(self.start, self.end)

    def passed(self, progress_remaining: float) -> float:
        """Return the share of the duration that has passed, from 0 to 1."""
        return min(max((1.0 - progress_remaining) / self.duration, 0.0), 1.0)


@config
class LinearSchedule(_Progress):
    """Straight from ``start`` to ``end``, then constant."""

    kind: Literal["linear"] = "linear"

    def __call__(self, progress_remaining: float) -> float:
        """Return the value."""
        return _straight(self.start, self.end, self.passed(progress_remaining))


@config
class CosineSchedule(_Progress):
    """Half a cosine from ``start`` to ``end``, then constant: slow at both ends."""

    kind: Literal["cosine"] = "cosine"

    def __call__(self, progress_remaining: float) -> float:
        """Return the value."""
        return _half_cosine(self.start, self.end, self.passed(progress_remaining))


ScheduleConfig: TypeAlias = Annotated[ConstantSchedule | LinearSchedule | CosineSchedule, BY_KIND]


@config
class _Steps:
    """``start`` until ``start_step``, ``end`` from ``end_step`` on."""

    kind: str
    start: float
    end: float = 0.0
    start_step: Annotated[int, Ge(0)] = 0
    end_step: Annotated[int, Ge(1)]
    """Steps of all environments since the agent was made."""

    def check(self) -> None:
        """Refuse a schedule that does not move."""
        _check_moves(self.start, self.end)
        if self.start_step >= self.end_step:
            raise ConfigError(
                f"start_step must be less than end_step ({self.end_step}); was {self.start_step}"
            )

    def passed(self, env_steps: int) -> float:
        """Return the share of the way that has passed, from 0 to 1."""
        return min(max((env_steps - self.start_step) / (self.end_step - self.start_step), 0.0), 1.0)


@config
class StepLinear(_Steps):
    """``start`` until ``start_step``, then straight to ``end`` at ``end_step``, then constant."""

    kind: Literal["linear"] = "linear"

    def at(self, env_steps: int) -> float:
        """Return the value."""
        return _straight(self.start, self.end, self.passed(env_steps))


@config
class StepCosine(_Steps):
    """As :class:`StepLinear`, along half a cosine: slow at both ends."""

    kind: Literal["cosine"] = "cosine"

    def at(self, env_steps: int) -> float:
        """Return the value."""
        return _half_cosine(self.start, self.end, self.passed(env_steps))


StepSchedule: TypeAlias = Annotated[StepLinear | StepCosine, BY_KIND]


@config
class Schedules:
    """Coefficients by environment steps; None leaves one to the agent's own argument."""

    learning_rate: StepSchedule | None = None
    """Of the actor, and of the critics unless they have their own."""
    critic_learning_rate: StepSchedule | None = None
    clip_range: StepSchedule | None = None
    value_clip_range: StepSchedule | None = None
    entropy: StepSchedule | None = None
    value: StepSchedule | None = None
    kl_target: StepSchedule | None = None
    imitation: StepSchedule | None = None
    cvar_weight: StepSchedule | None = None

    def check(self) -> None:
        """Refuse values that a coefficient cannot have."""
        for name, schedule in self.given().items():
            least = min(schedule.start, schedule.end)
            positive = name in ("clip_range", "value_clip_range", "kl_target")
            if least < 0 or (positive and least == 0):
                rule = "greater than 0" if positive else "at least 0"
                raise ConfigError(f"schedules.{name} must stay {rule}; it reaches {least}")

    def given(self) -> dict[str, StepLinear | StepCosine]:
        """Return the schedules that are there, by the name of their coefficient."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: schedule for name, schedule in named.items() if schedule is not None}

    def at(self, env_steps: int) -> dict[str, float]:
        """Return the values of the schedules that are there."""
        return {name: schedule.at(env_steps) for name, schedule in self.given().items()}


def as_schedule(value: float | Schedule) -> Schedule:
    """Return a schedule from a number, a callable or a schedule configuration."""
    return value if callable(value) else ConstantSchedule(value=float(value))


def _straight(start: float, end: float, passed: float) -> float:
    """Return start + (end - start) x."""
    return start + (end - start) * passed


def _half_cosine(start: float, end: float, passed: float) -> float:
    """Return end + (start - end)(1 + cos πx) / 2."""
    return end + (start - end) * (1 + math.cos(math.pi * passed)) / 2


def _check_moves(start: float, end: float) -> None:
    if start == end:
        raise ConfigError(
            f"start and end must differ; both were {start}. Use a constant for a fixed value."
        )
