"""What can be wrong with bars: every check as a pure function over one symbol's columns.

A check returns problems instead of raising, so that a table is refused once, with everything that
is wrong with it: which symbol, what, how often, when first, and what to do.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import pandas as pd

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem, DataError
from quantail.market.calendars import CalendarConfig
from quantail.market.instants import YEARS, read_instant
from quantail.types import BoolArray, FloatArray, TimeArray

PRICES: Final = ("open", "high", "low", "close")
PRICE_RANGE: Final = (1e-12, 1e12)
"""Prices outside overflow or vanish in products; they are corrupt, not cheap."""
MAX_VOLUME: Final = 1e20

_SHOWN: Final = 3
_SPLIT_TOLERANCE: Final = 0.10
"""Relative distance of an overnight price ratio from n:1 that still looks like a split."""
_FACTOR_TOLERANCE: Final = 0.02
"""The same for a step of the adjustment factor, which carries no market move, only a dividend."""
_ADJUSTED_SHARE: Final = 0.1
"""Share of rows with the close alone outside low..high from which on it looks adjusted."""


@config
class DataChecks:
    """Which findings the user declares to be real; everything else is refused."""

    gaps: Literal["refuse", "allow"] = "refuse"
    """Whether required bars may be missing; features and simulator then step over the hole."""
    splits: Literal["refuse", "real"] = "refuse"
    """What a jump near n:1 is: an unadjusted split to refuse, or always a real market move."""
    real_moves: tuple[str, ...] = ()
    """Single jumps that are real market moves, as SYMBOL@time: AAPL@2000-09-29."""

    def check(self) -> None:
        """Refuse a list of moves that has no effect, and entries without a symbol or a time."""
        if self.real_moves and self.splits == "real":
            message = 'has no effect with splits "real"; give one of the two'
            raise ConfigError([ConfigProblem("real_moves", message)])
        for text in self.real_moves:
            _, at, when = text.rpartition("@")
            if not at or read_instant(when) is None:
                message = (
                    "must read SYMBOL@time in UTC, such as AAPL@2000-09-29, between "
                    f"{YEARS[0]} and {YEARS[1]}; was {text!r}"
                )
                raise ConfigError([ConfigProblem("real_moves", message)])

    def declared(self, symbol: str) -> TimeArray:
        """Return the times declared as real moves of ``symbol``."""
        pairs = (text.rpartition("@") for text in self.real_moves)
        return np.array([when for name, _, when in pairs if name == symbol], dtype="datetime64[ns]")


@dataclass(frozen=True, slots=True)
class SymbolRows:
    """The columns of one symbol, each [T]."""

    symbol: str
    time: TimeArray
    columns: Mapping[str, FloatArray]
    """open, high, low, close, volume and, where given, spread, funding, adjusted_close."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One kind of fault in one symbol."""

    symbol: str
    what: str
    times: TimeArray
    """Times of the offending rows, all of them."""
    remedy: str

    def __str__(self) -> str:
        shown = ", ".join(_shown(time) for time in self.times[:_SHOWN])
        more = ", ..." if len(self.times) > _SHOWN else ""
        return (
            f"{self.symbol}: {len(self.times)} {self.what}, first at {shown}{more}. {self.remedy}"
        )


def refuse(problems: Sequence[Problem]) -> None:
    """Raise one DataError that lists every problem; do nothing when there is none."""
    if problems:
        kinds = f"{len(problems)} kind{'s' if len(problems) != 1 else ''} of problem"
        raise DataError(f"Bars have {kinds}:" + "".join(f"\n  {problem}" for problem in problems))


def find_problems(
    rows: SymbolRows, interval: np.timedelta64, calendar: CalendarConfig, checks: DataChecks
) -> list[Problem]:
    """Return everything that is wrong with one symbol's rows, in a fixed order."""
    order = list(_time_problems(rows))
    if not order:
        order += _calendar_problems(rows, interval, calendar, checks)
    values = list(_value_problems(rows))
    if not values:
        values += _shape_problems(rows)
    if not order and not values:
        values += _split_problems(rows, checks)
    return order + values


def _time_problems(rows: SymbolRows) -> Iterator[Problem]:
    missing = np.isnat(rows.time)
    if missing.any():
        what = "row(s) without a time"
        yield Problem(
            rows.symbol, what, rows.time[missing], 'Drop them with repair.bad_rows "drop".'
        )
        return
    steps = np.diff(rows.time)
    zero = np.timedelta64(0, "ns")
    backward = np.flatnonzero(steps < zero) + 1
    if len(backward):
        what = "bar(s) earlier than the one before"
        yield Problem(rows.symbol, what, rows.time[backward], "Sort by time, or set repair.sort.")
    same = rows.time[repeated(rows.time)]
    if len(same):
        remedy = 'Keep one bar per time, or set repair.duplicates to "first", "last" or "equal".'
        yield Problem(rows.symbol, "bar(s) with a time already seen", same, remedy)


def repeated(time: TimeArray) -> BoolArray:
    """Whether each time [T] already occurred in an earlier row."""
    _, first = np.unique(time, return_index=True)
    result = np.ones(len(time), bool)
    result[first] = False
    return result


def _calendar_problems(
    rows: SymbolRows, interval: np.timedelta64, calendar: CalendarConfig, checks: DataChecks
) -> Iterator[Problem]:
    audit = calendar.audit(rows.time, interval)
    length = show_interval(interval)
    if len(audit.missing) and checks.gaps == "refuse":
        yield Problem(
            rows.symbol,
            f"bar(s) of {length} missing (calendar {calendar.kind!r})",
            audit.missing,
            "Fetch them, choose the calendar that fits, declare closures, set repair.gaps to "
            '"fill" or checks.gaps to "allow".',
        )
    if len(audit.closed):
        remedy = "Choose the calendar that fits the market, or check the time zone of the data."
        what = f"bar(s) while the market is closed (calendar {calendar.kind!r})"
        yield Problem(rows.symbol, what, audit.closed, remedy)
    if len(audit.off_grid):
        remedy = "Give the interval that the data has, or resample the data to it."
        what = f"bar(s) that do not follow in whole steps of {length}"
        yield Problem(rows.symbol, what, audit.off_grid, remedy)


def bad_value(name: str, values: FloatArray) -> BoolArray:
    """Whether each value [T] of a column is impossible by itself.

    Prices must be finite, positive and within :data:`PRICE_RANGE`; volume at least 0; spread in
    [0, 1); funding in (-1, 1). A NaN is always impossible.
    """
    low, high = {
        "volume": (0.0, MAX_VOLUME),
        "spread": (0.0, np.nextafter(1.0, 0.0)),
        "funding": (np.nextafter(-1.0, 0.0), np.nextafter(1.0, 0.0)),
    }.get(name, PRICE_RANGE)
    return np.asarray(~((values >= low) & (values <= high)))


_ALLOWED: Final = {
    "volume": f"between 0 and {MAX_VOLUME:g}",
    "spread": "a fraction of the price in [0, 1)",
    "funding": "a fraction in (-1, 1)",
}


def _value_problems(rows: SymbolRows) -> Iterator[Problem]:
    for name, values in rows.columns.items():
        bad = bad_value(name, values)
        if bad.any():
            allowed = _ALLOWED.get(
                name, "finite, positive and between {:g} and {:g}".format(*PRICE_RANGE)
            )
            worst = f"{values[bad][0]:g}"
            what = f"value(s) of {name} that must be {allowed} (the first was {worst})"
            remedy = 'Correct the data, or drop the rows with repair.bad_rows "drop".'
            yield Problem(rows.symbol, what, rows.time[bad], remedy)


def outside_range(columns: Mapping[str, FloatArray]) -> BoolArray:
    """Whether each row [T] breaks low <= open, close <= high."""
    low, high = columns["low"], columns["high"]
    inside = (low <= columns["open"]) & (columns["open"] <= high)
    return ~(inside & (low <= columns["close"]) & (columns["close"] <= high))


def _shape_problems(rows: SymbolRows) -> Iterator[Problem]:
    bad = outside_range(rows.columns)
    if not bad.any():
        return
    low, high, opened = (rows.columns[name] for name in ("low", "high", "open"))
    # Adjusting the close alone moves it below the low of almost every bar before a dividend, while
    # open, high and low still agree with each other; a corrupt row breaks more than the close.
    alone = bad & (low <= opened) & (opened <= high)
    if alone.sum() >= max(_SHOWN, _ADJUSTED_SHARE * len(bad)):
        yield Problem(
            rows.symbol,
            "bar(s) whose close alone lies outside low..high: the close is adjusted for splits or "
            "dividends and open, high, low are not",
            rows.time[alone],
            "Use the unadjusted close and give the adjusted one as adjusted_close, or adjust open, "
            "high and low too.",
        )
        bad = bad & ~alone
    if bad.any():
        what = "bar(s) that break low <= open, close <= high"
        remedy = 'Correct the data, or drop the rows with repair.bad_rows "drop".'
        yield Problem(rows.symbol, what, rows.time[bad], remedy)


def split_ratios(rows: SymbolRows, checks: DataChecks) -> FloatArray:
    """Return the split ratio at each bar [T]: n for n:1, 1/n for 1:n, and 1 where there is none.

    With an adjusted close, a split is a step of the factor adjusted_close / close by a whole ratio
    (or 3:2), which tells it from a crash of the same size. Without one, an open that is near 1/n or
    n times the close before counts, because nothing else can tell.
    """
    ratios = np.ones(len(rows.time))
    if checks.splits == "real" or len(ratios) < 2:
        return ratios
    close = rows.columns["close"]
    adjusted = rows.columns.get("adjusted_close")
    if adjusted is None:
        jump = close[:-1] / rows.columns["open"][1:]
        ratios[1:] = _nearest_split(jump, _SPLIT_TOLERANCE)
    else:
        factor = adjusted / close
        jump = factor[1:] / factor[:-1]
        ratios[1:] = _nearest_split(jump, _FACTOR_TOLERANCE, three_for_two=True)
    ratios[np.isin(rows.time, checks.declared(rows.symbol))] = 1.0
    return ratios


def refuse_idle_moves(table: Sequence[SymbolRows], checks: DataChecks) -> None:
    """Refuse a declared real move that excuses nothing: a typing error, or other data than meant.

    Args:
        table: All symbols as loaded; a part of them may well lack the bars that are declared.
        checks: The declarations.
    """
    undeclared = DataChecks()
    jumps = {
        rows.symbol: rows.time[split_ratios(rows, undeclared) != 1.0]
        for rows in (table if checks.real_moves else ())
    }
    for text in checks.real_moves:
        symbol, _, when = text.rpartition("@")
        if symbol not in jumps:
            shown = ", ".join([*jumps][:5])
            raise DataError(
                f"checks.real_moves: {text!r} names no symbol of the data; it holds {shown}. "
                "Correct or remove the entry."
            )
        if read_instant(when) not in jumps[symbol]:
            shown = ", ".join(_shown(time) for time in jumps[symbol][:_SHOWN]) or "none"
            raise DataError(
                f"checks.real_moves: {text!r} names no bar with a jump near n:1; jumps of "
                f"{symbol}: {shown}. Correct or remove the entry."
            )


def _nearest_split(jump: FloatArray, tolerance: float, three_for_two: bool = False) -> FloatArray:
    """Round jumps [T] to n or 1/n with n >= 2, or to 1 where none is within the tolerance."""
    up = np.maximum(jump, 1.0 / jump)
    whole = np.rint(up)
    is_split = (whole >= 2) & (np.abs(up / np.maximum(whole, 1.0) - 1.0) <= tolerance)
    size = np.where(is_split, whole, 1.0)
    if three_for_two:
        size = np.where(np.abs(up / 1.5 - 1.0) <= tolerance, 1.5, size)
    return np.where(jump >= 1.0, size, 1.0 / size)


def _split_problems(rows: SymbolRows, checks: DataChecks) -> Iterator[Problem]:
    ratios = split_ratios(rows, checks)
    found = np.flatnonzero(ratios != 1.0)
    if len(found):
        first = ratios[found[0]]
        told = f"{first:g}:1" if first > 1 else f"1:{1 / first:g}"
        yield Problem(
            rows.symbol,
            f"price jump(s) that look like an unadjusted split (the first like {told})",
            rows.time[found],
            'Adjust with repair.splits "apply", or declare a real move in checks.real_moves.',
        )


def show_interval(interval: np.timedelta64) -> str:
    """Write a bar length as settings do: 15m, 4h, 1d."""
    seconds, rest = divmod(int(interval / np.timedelta64(1, "ns")), 1_000_000_000)
    for length, letter in ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")):
        if not rest and seconds % length == 0:
            return f"{seconds // length}{letter}"
    return str(interval)


def _shown(time: np.datetime64) -> str:
    if np.isnat(time):
        return "no time"
    text = str(pd.Timestamp(time))
    return text.removesuffix(" 00:00:00")
