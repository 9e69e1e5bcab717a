"""When a market is open, so that a hole in the data can be told from a night or a holiday.

A calendar compares a symbol's bar times with those it expects. A bar that the market is open for
throughout is *required*; one that is open for a part only may be there or not; one that is closed
throughout must not be there. Declared ``closures`` (holidays, maintenance) count as closed.

Bars of a day or longer are labeled with their date at 00:00 UTC, so calendars compare dates for
them and ignore time zones; shorter bars are compared as instants.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas as pd
from annotated_types import Ge, Lt

from quantail.config_class import BY_KIND, config
from quantail.errors import ConfigError, ConfigProblem, DataError
from quantail.market.instants import YEARS, read_instant
from quantail.types import BoolArray, IntArray, TimeArray

_DAY: Final = np.timedelta64(1, "D")
_TICK: Final = np.timedelta64(1, "ns")
_MAX_EXPECTED: Final = 20_000_000
"""Bars looked for inside holes; more means that the interval is wrong."""


@dataclass(frozen=True, slots=True)
class CalendarAudit:
    """What a calendar finds in the bar times of one symbol."""

    missing: TimeArray
    """Times of required bars that are not there."""
    closed: TimeArray
    """Times of bars for which the market is closed throughout."""
    off_grid: TimeArray
    """Times of bars that do not start a whole number of intervals after the one before."""


@config
class AlwaysOpen:
    """Around the clock, every day: crypto."""

    kind: Literal["always"] = "always"
    closures: tuple[str, ...] = ()
    """Times without trading, as ISO 8601 intervals in UTC: 2024-01-01T00:00/2024-01-01T06:00."""

    def check(self) -> None:
        """Refuse closures that are not intervals."""
        _parse_closures(self.closures)

    def audit(self, time: TimeArray, interval: np.timedelta64) -> CalendarAudit:
        """Compare bar times [T] with the calendar; see :class:`CalendarAudit`."""
        return _audit_grid(
            time, interval, lambda instants: np.ones(len(instants), bool), self.closures
        )


@config
class Weekdays:
    """Monday to Friday without a break, in one time zone: foreign exchange, or daily bars."""

    kind: Literal["weekdays"] = "weekdays"
    timezone: str = "UTC"
    """Zone whose days are meant; for bars shorter than a day."""
    eve_hours: Annotated[int, Ge(0), Lt(24)] = 0
    """Hours before midnight at which a trading day begins; foreign exchange has 7 in New York."""
    closures: tuple[str, ...] = ()
    """Times without trading, as ISO 8601 intervals in UTC: 2017-12-25T08:00/2017-12-25T22:00."""

    def check(self) -> None:
        """Refuse an unknown time zone and closures that are not intervals."""
        check_timezone(self.timezone)
        _parse_closures(self.closures)

    def audit(self, time: TimeArray, interval: np.timedelta64) -> CalendarAudit:
        """Compare bar times [T] with the calendar; see :class:`CalendarAudit`."""
        by_date = interval >= _DAY
        if by_date and (self.timezone != "UTC" or self.eve_hours):
            raise DataError(
                f"calendar.timezone {self.timezone!r} and eve_hours {self.eve_hours} have no "
                "effect on bars of a day or longer, which are labeled with their date. Remove them."
            )
        if interval > _DAY:
            return _audit_grid(time, interval, lambda t: np.ones(len(t), bool), self.closures)

        def is_open(instants: TimeArray) -> BoolArray:
            local = pd.DatetimeIndex(instants)
            if not by_date:
                local = local.tz_localize("UTC").tz_convert(self.timezone).tz_localize(None)
                local += pd.Timedelta(hours=self.eve_hours)
            return np.asarray(local.day_of_week < 5)

        return _audit_grid(time, interval, is_open, self.closures)


@config
class ExchangeSessions:
    """The sessions of a stock exchange, holidays and half days included (needs an extra)."""

    kind: Literal["exchange"] = "exchange"
    exchange: str
    """Name in exchange_calendars: XNYS for New York, XLON for London, XETR for Frankfurt."""
    closures: tuple[str, ...] = ()
    """Further times without trading, as ISO 8601 intervals in UTC."""

    def check(self) -> None:
        """Refuse closures that are not intervals."""
        _parse_closures(self.closures)

    def audit(self, time: TimeArray, interval: np.timedelta64) -> CalendarAudit:
        """Compare bar times [T] with the calendar; see :class:`CalendarAudit`."""
        labels, opens, closes = _sessions(self.exchange, time[0], time[-1])
        if interval > _DAY:
            return _audit_grid(time, interval, lambda t: np.ones(len(t), bool), self.closures)
        if interval == _DAY:
            expected, ends = labels, labels + _DAY
        else:
            expected, ends = _session_bars(opens, closes, interval)
        inside = (expected >= time[0]) & (expected <= time[-1])
        required = inside & ~_overlaps_closure(expected, ends, self.closures)
        strange = time[~np.isin(time, expected)]
        covered = (
            _covered(strange, opens, closes) if interval < _DAY else np.zeros(len(strange), bool)
        )
        shut = _inside_closure(time, time + interval, self.closures)
        return CalendarAudit(
            missing=expected[required & ~np.isin(expected, time)],
            closed=np.union1d(strange[~covered], time[shut]),
            off_grid=strange[covered],
        )


CalendarConfig: TypeAlias = Annotated[AlwaysOpen | Weekdays | ExchangeSessions, BY_KIND]


def check_timezone(name: str) -> None:
    """Refuse a name that the time zone database does not know."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        message = f"must be a name of the time zone database such as America/New_York; was {name!r}"
        raise ConfigError([ConfigProblem("timezone", message)]) from None


def _audit_grid(
    time: TimeArray,
    interval: np.timedelta64,
    is_open: Callable[[TimeArray], BoolArray],
    closures: tuple[str, ...],
) -> CalendarAudit:
    """Compare times [T] with a grid of whole intervals that starts anew after every bar."""
    steps = np.diff(time)
    off_grid = time[1:][steps % interval != np.timedelta64(0, "ns")]
    candidates = _between(time[:-1], (steps - _TICK) // interval, interval)
    ends = candidates + interval
    required = is_open(candidates) & is_open(ends - _TICK)
    required &= ~_overlaps_closure(candidates, ends, closures)
    closed = ~is_open(time) & ~is_open(time + interval - _TICK)
    closed |= _inside_closure(time, time + interval, closures)
    return CalendarAudit(candidates[required], time[closed], off_grid)


def _between(start: TimeArray, count: IntArray, interval: np.timedelta64) -> TimeArray:
    """Return start + interval, ..., start + count·interval of every start, concatenated."""
    total = int(count.sum())
    if total > _MAX_EXPECTED:
        raise DataError(
            f"the bar times leave room for {total:,} more bars of {pd.Timedelta(interval)}; at "
            f"most {_MAX_EXPECTED:,} are looked for. Give the interval that the data really has."
        )
    within = np.arange(total) - np.repeat(np.cumsum(count) - count, count)
    return np.asarray(np.repeat(start, count) + (within + 1) * interval)


def _parse_closures(closures: tuple[str, ...]) -> list[tuple[np.datetime64, np.datetime64]]:
    """Return start and stop of each ISO 8601 interval."""
    spans: list[tuple[np.datetime64, np.datetime64]] = []
    for text in closures:
        start, _, stop = text.partition("/")
        first, last = read_instant(start), read_instant(stop)
        if first is None or last is None or not first < last:
            message = (
                "must read start/stop in UTC, such as 2024-01-01T00:00/2024-01-02T00:00, between "
                f"{YEARS[0]} and {YEARS[1]}; was {text!r}"
            )
            raise ConfigError([ConfigProblem("closures", message)])
        spans.append((first, last))
    return spans


def _overlaps_closure(start: TimeArray, stop: TimeArray, closures: tuple[str, ...]) -> BoolArray:
    result = np.zeros(len(start), bool)
    for first, last in _parse_closures(closures):
        result |= (start < last) & (stop > first)
    return result


def _inside_closure(start: TimeArray, stop: TimeArray, closures: tuple[str, ...]) -> BoolArray:
    result = np.zeros(len(start), bool)
    for first, last in _parse_closures(closures):
        result |= (start >= first) & (stop <= last)
    return result


def _sessions(
    exchange: str, first: np.datetime64, last: np.datetime64
) -> tuple[TimeArray, TimeArray, TimeArray]:
    """Return labels (dates), opens and closes [D] of the exchange's sessions around a span."""
    library = _calendar_library(exchange)
    first_day, last_day = pd.Timestamp(first).date(), pd.Timestamp(last).date()
    try:
        # Whole years, so that the symbols of a table and its windows share one table of sessions.
        return _session_table(exchange, f"{first_day.year}-01-01", f"{last_day.year}-12-31")
    except library.errors.InvalidCalendarName as error:
        raise DataError(
            f"calendar.exchange must be a name that exchange_calendars knows, such as XNYS or "
            f"XLON; was {exchange!r}. Correct the name."
        ) from error
    except ValueError:
        # A year may reach beyond what the exchange has announced; the data itself may not.
        return _exact_sessions(exchange, str(first_day), str(last_day))


def _exact_sessions(
    exchange: str, first_day: str, last_day: str
) -> tuple[TimeArray, TimeArray, TimeArray]:
    try:
        return _session_table(exchange, first_day, last_day)
    except ValueError as error:
        raise DataError(
            f"calendar {exchange!r} does not cover {first_day} to {last_day}: {error}. Use data "
            'inside its span, or the calendar of kind "weekdays" with closures.'
        ) from error


def _calendar_library(exchange: str) -> Any:
    try:
        return importlib.import_module("exchange_calendars")
    except ModuleNotFoundError as error:
        raise DataError(
            f"calendar {exchange!r} needs the package exchange_calendars, which is not installed; "
            "run: pip install 'quantail[calendars]'"
        ) from error


@lru_cache(maxsize=16)
def _session_table(exchange: str, start: str, stop: str) -> tuple[TimeArray, TimeArray, TimeArray]:
    """Return labels, opens and closes [D] from one day to another.

    A pure function whose result is kept, because building a calendar takes a tenth of a second and
    a table of stocks has hundreds of symbols; the arrays are read-only.
    """
    schedule = _calendar_library(exchange).get_calendar(exchange, start=start, end=stop).schedule
    columns = (
        schedule.index,
        schedule["open"].dt.tz_convert(None),
        schedule["close"].dt.tz_convert(None),
    )
    labels, opens, closes = (np.array(column, dtype="datetime64[ns]") for column in columns)
    for array in (labels, opens, closes):
        array.setflags(write=False)
    return labels, opens, closes


def _session_bars(
    opens: TimeArray, closes: TimeArray, interval: np.timedelta64
) -> tuple[TimeArray, TimeArray]:
    """Return start and end of every bar counted from the open of each session."""
    count = (closes - opens - _TICK) // interval + 1
    starts = _between(opens - interval, count, interval)
    return starts, np.minimum(starts + interval, np.repeat(closes, count))


def _covered(time: TimeArray, opens: TimeArray, closes: TimeArray) -> BoolArray:
    """Whether each instant [T] lies inside a session."""
    last_open = np.searchsorted(opens, time, side="right") - 1
    return np.asarray((last_open >= 0) & (time < closes[np.maximum(last_open, 0)]))
