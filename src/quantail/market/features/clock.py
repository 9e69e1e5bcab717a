"""Time of day, time of week, and time since trading was interrupted."""

import math
from functools import partial
from typing import Annotated, Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas as pd
from annotated_types import Ge

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem
from quantail.market.features.columns import Columns, Feature
from quantail.types import FloatArray, TimeArray

_DAY: Final = np.timedelta64(86_400_000_000_000, "ns")
_WEEK: Final = 7 * _DAY
_MONDAY: Final = np.datetime64("1969-12-29", "ns")
"""The start of a week at or before every time since 1970; weeks are counted from here."""


@config
class TimeOfDay:
    """Phase of the day at the bar's open, as sine and cosine, so that midnight has no edge."""

    kind: Literal["time_of_day"] = "time_of_day"
    timezone: str = "UTC"
    """Whose clock; an exchange's own zone keeps its session still when clocks change."""

    def check(self) -> None:
        """Refuse an unknown time zone."""
        _check_zone(self.timezone)

    def build(self) -> Feature:
        """Two columns."""
        names = ("time_of_day_sin", "time_of_day_cos")
        return Feature(names, 0, partial(_phase, period=_DAY, timezone=self.timezone))


@config
class TimeOfWeek:
    """Phase of the week at the bar's open, from Monday 00:00, as sine and cosine."""

    kind: Literal["time_of_week"] = "time_of_week"
    timezone: str = "UTC"
    """Whose clock."""

    def check(self) -> None:
        """Refuse an unknown time zone."""
        _check_zone(self.timezone)

    def build(self) -> Feature:
        """Two columns."""
        names = ("time_of_week_sin", "time_of_week_cos")
        return Feature(names, 0, partial(_phase, period=_WEEK, timezone=self.timezone))


@config
class TimeSinceGap:
    """Bars since trading last paused, as a fraction of ``limit``.

    A pause is a step between two bars that is longer than the bar interval: a night, a weekend, a
    holiday, an outage.
    """

    kind: Literal["time_since_gap"] = "time_since_gap"
    limit: Annotated[int, Ge(1)] = 100
    """Bars after which the pause no longer matters; the value stays at 1 from there."""

    def build(self) -> Feature:
        """One column; the warm-up is ``limit``, since before that the last pause is unknown."""
        return Feature(
            (f"time_since_gap_{self.limit}",),
            self.limit,
            lambda bars: time_since_gap(bars.time, bars.interval, self.limit),
        )


def clock_phase(time: TimeArray, period: np.timedelta64, timezone: str = "UTC") -> FloatArray:
    """Sine and cosine of ``2π·(time since a Monday 00:00 on the wall clock)/period``.

    Args:
        time: Instants [T], UTC.
        period: Duration of a turn.
        timezone: Name of the zone whose wall clock is read.

    Returns:
        Sine and cosine [T, 2].
    """
    if timezone != "UTC":
        index = pd.DatetimeIndex(time).tz_localize("UTC").tz_convert(timezone)
        time = index.tz_localize(None).to_numpy()
    # Whole nanoseconds: the remainder is exact and quicker than one of floats.
    turn = int(period.astype("timedelta64[ns]").astype(np.int64))
    elapsed = (time - _MONDAY).astype("timedelta64[ns]").astype(np.int64) % turn
    angle = elapsed * (2.0 * math.pi / turn)
    phase = np.empty((len(time), 2))
    np.sin(angle, out=phase[:, 0])
    np.cos(angle, out=phase[:, 1])
    return phase


def time_since_gap(time: TimeArray, interval: np.timedelta64, limit: int) -> FloatArray:
    """``min(bars since the last pause, limit) / limit``; 0 for the first bar after a pause.

    Args:
        time: Open times [T], increasing.
        interval: Nominal bar interval.
        limit: Bars, at least 1.

    Returns:
        Fractions [T] in [0, 1]; NaN while the last pause may lie before the first bar.
    """
    row = np.arange(len(time))
    pause = np.zeros(len(time), dtype=bool)
    pause[1:] = np.diff(time) > interval
    last = np.maximum.accumulate(np.where(pause, row, -1))
    since = np.minimum(row - last, limit).astype(np.float64)
    since[(last < 0) & (row < limit)] = np.nan
    return since / limit


def _phase(bars: Columns, period: np.timedelta64, timezone: str) -> FloatArray:
    return clock_phase(bars.time, period, timezone)


def _check_zone(timezone: str) -> None:
    try:
        ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(
            [
                ConfigProblem(
                    "timezone",
                    f"must be a time zone's name such as 'UTC' or 'America/New_York'; "
                    f"was {timezone!r}",
                )
            ]
        ) from None
