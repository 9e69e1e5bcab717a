"""Numbers that change during training, as functions of the progress that remains.

Progress remaining is 1 at the start of training and 0 at its end, as in Stable-Baselines3, so a
schedule of theirs is a schedule of ours.
"""

import math
from collections.abc import Callable
from typing import Annotated, Literal, TypeAlias

from annotated_types import Gt, Le

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
class LinearSchedule:
    """Straight from ``start`` to ``end``, then constant."""

    kind: Literal["linear"] = "linear"
    start: float
    end: float = 0.0
    duration: Annotated[float, Gt(0), Le(1)] = 1.0
    """Share of training after which ``end`` is reached."""

    def __call__(self, progress_remaining: float) -> float:
        """Return start + (end - start) x, where x is the share of the duration that has passed."""
        passed = _passed(progress_remaining, self.duration)
        return self.start + (self.end - self.start) * passed

    def check(self) -> None:
        """Refuse a schedule that does not move."""
        _check_moves(self.start, self.end)


@config
class CosineSchedule:
    """Half a cosine from ``start`` to ``end``, then constant: slow at both ends."""

    kind: Literal["cosine"] = "cosine"
    start: float
    end: float = 0.0
    duration: Annotated[float, Gt(0), Le(1)] = 1.0
    """Share of training after which ``end`` is reached."""

    def __call__(self, progress_remaining: float) -> float:
        """Return end + (start - end)(1 + cos πx) / 2."""
        passed = _passed(progress_remaining, self.duration)
        return self.end + (self.start - self.end) * (1 + math.cos(math.pi * passed)) / 2

    def check(self) -> None:
        """Refuse a schedule that does not move."""
        _check_moves(self.start, self.end)


ScheduleConfig: TypeAlias = Annotated[ConstantSchedule | LinearSchedule | CosineSchedule, BY_KIND]


def as_schedule(value: float | Schedule) -> Schedule:
    """Return a schedule from a number, a callable or a schedule configuration."""
    return value if callable(value) else ConstantSchedule(value=float(value))


def _passed(progress_remaining: float, duration: float) -> float:
    """Return the share of the duration that has passed, from 0 to 1."""
    return min(max((1.0 - progress_remaining) / duration, 0.0), 1.0)


def _check_moves(start: float, end: float) -> None:
    if start == end:
        raise ConfigError(
            f"start and end must differ; both were {start}. Use a constant for a fixed value."
        )
