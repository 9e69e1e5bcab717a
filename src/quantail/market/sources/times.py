"""Reading a column of times: epochs by their range, day-first dates by the data, zones to UTC.

Nothing is guessed. A column that could mean two things is refused with the setting that decides.
"""

from typing import Any, Final, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from quantail.errors import DataError
from quantail.types import TimeArray

DateOrder = Literal["detect", "day_first", "month_first"]

# Smallest value of each unit: 1e8 s is March 1973, and 1000 times more is the next unit's 1973.
_EPOCH_UNITS: Final = ((1e8, "s"), (1e11, "ms"), (1e14, "us"), (1e17, "ns"))
_EPOCH_END: Final = 9.2e18

_DIGITS: Final = r"^\d+(\.0*)?$"
_ISO: Final = r"^\d{4}-\d{1,2}-\d{1,2}([T ].*)?$"
_YEAR_FIRST: Final = r"^\d{4}([/.])\d{1,2}[/.]\d{1,2}"
_YEAR_LAST: Final = r"^\d{1,2}([-/.])\d{1,2}[-/.]\d{4}"
_MONTH_NAME: Final = r"^\d{1,2}[- ][A-Za-z]{3}[- ]\d{4}"
_HAS_ZONE: Final = r":\d{2}(?:\.\d+)?\s?(?:Z|(?:UTC|GMT)?[+-]\d{2}:?\d{2}|UTC|GMT)$"
_MIDNIGHT: Final = r"[T ]0?0:00(?::00(?:\.0+)?)?\s?(?:Z|(?:UTC|GMT)?[+-]\d{2}:?\d{2}|UTC|GMT)?$"
_CLOCKS: Final = (
    (r"^$", ""),
    (r"^\d{1,2}:\d{2}$", "%H:%M"),
    (r"^\d{1,2}:\d{2}:\d{2}$", "%H:%M:%S"),
    (r"^\d{1,2}:\d{2}:\d{2}\.\d+$", "%H:%M:%S.%f"),
    (r"^\d{1,2}:\d{2} ?[AaPp][Mm]$", "%I:%M %p"),
    (r"^\d{1,2}:\d{2}:\d{2} ?[AaPp][Mm]$", "%I:%M:%S %p"),
)


def parse_times(
    column: "pa.Array[Any]", name: str, timezone: str | None, order: DateOrder
) -> TimeArray:
    """Return a column of times [R] in UTC.

    Args:
        column: Numbers (epochs, or dates as 20240131), timestamps, dates or text.
        name: The column's name in the file, for messages.
        timezone: Zone of times that carry none; None is UTC. Times that all are midnights of their
            own zone are dates; dates are labels and take no zone.
        order: Whether 01/02/2024 is February; "detect" reads it off the data.

    Raises:
        DataError: When the column is not one kind of time throughout, or could mean two things.
    """
    if column.null_count:
        first = int(np.flatnonzero(pc.is_null(column).to_numpy(zero_copy_only=False))[0])
        raise DataError(
            f"{name}: {column.null_count} time(s) are missing, first in row {first + 1}."
        )
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        return _from_typed(column, name, timezone)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return _from_numbers(column.to_numpy(zero_copy_only=False), name, timezone)
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise DataError(f"{name}: must hold times, numbers or text; was {column.type}.")
    text = pc.utf8_trim_whitespace(column)
    _refuse_odd_rows(text, name)
    if _all_match(text, _DIGITS):
        digits = pc.replace_substring_regex(text, r"\.0*$", "")
        try:
            return _from_numbers(pc.cast(digits, pa.int64()).to_numpy(), name, timezone)
        except pa.ArrowInvalid as error:
            raise DataError(f"{name}: holds a number too large for a time; {error}.") from error
    return _from_text(text, name, timezone, order)


def _from_typed(column: "pa.Array[Any]", name: str, timezone: str | None) -> TimeArray:
    zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
    _refuse_idle_zone(name, timezone, zoned or pa.types.is_date(column.type))
    kind = pa.timestamp("ns", column.type.tz) if zoned else pa.timestamp("ns")
    try:
        instants = pc.cast(column, kind)
    except pa.ArrowInvalid as error:
        raise DataError(f"{name}: holds a time outside 1677 to 2262; {error}.") from error
    # Arrow stores zoned timestamps as UTC instants, so the stored number is the answer.
    naive = pc.cast(instants, pa.int64()).to_numpy().astype("datetime64[ns]")
    if zoned:
        local = pd.DatetimeIndex(naive).tz_localize("UTC").tz_convert(column.type.tz)
        dates = local.tz_localize(None).to_numpy("datetime64[ns]")
        return dates if (dates == dates.astype("datetime64[D]")).all() else naive
    return naive if timezone is None else _localized(naive, name, timezone)


def _from_numbers(values: Any, name: str, timezone: str | None) -> TimeArray:
    if not np.isfinite(values).all():
        raise DataError(f"{name}: holds a number that is not finite; correct it.")
    low, high = float(values.min()), float(values.max())
    if low >= 19000101 and high <= 22001231:
        return _calendar_numbers(values, name, timezone)
    _refuse_idle_zone(name, timezone, carries_zone=True)
    units = {_epoch_unit(low), _epoch_unit(high)}
    if len(units) != 1 or None in units:
        raise DataError(
            f"{name}: numbers must be epochs of one unit (s, ms, us or ns) after March 1973, or "
            f"dates as 20240131; they run from {low:g} to {high:g}. Write times as ISO 8601."
        )
    unit = str(units.pop())
    scale = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}[unit]
    if np.issubdtype(values.dtype, np.integer):
        return np.asarray(values.astype(np.int64) * scale).astype("datetime64[ns]")
    whole = np.floor(values)
    nanoseconds = whole.astype(np.int64) * scale
    nanoseconds += np.rint((values - whole) * scale).astype(np.int64)
    return np.asarray(nanoseconds).astype("datetime64[ns]")


def _epoch_unit(value: float) -> str | None:
    if not _EPOCH_UNITS[0][0] <= value <= _EPOCH_END:
        return None
    return [unit for least, unit in _EPOCH_UNITS if value >= least][-1]


def _calendar_numbers(values: Any, name: str, timezone: str | None) -> TimeArray:
    _refuse_idle_zone(name, timezone, carries_zone=True)
    text = pd.Series(values).astype("int64").astype(str)
    return _strict(text, "%Y%m%d", name)


def _from_text(
    text: "pa.Array[Any]", name: str, timezone: str | None, order: DateOrder
) -> TimeArray:
    zoned = pc.match_substring_regex(text, _HAS_ZONE).to_numpy(zero_copy_only=False)
    if zoned.any() and not zoned.all():
        row = int(np.flatnonzero(zoned != zoned[0])[0])
        raise DataError(
            f"{name}: {int(zoned.sum())} of {len(zoned)} times carry a time zone and the others do "
            f"not; they differ first in row {row + 1} ({text[row].as_py()!r}). Write one kind."
        )
    if _all_match(text, _MIDNIGHT):
        text = pc.replace_substring_regex(text, r"[T ]0?0:00.*$", "")
        zoned = np.zeros(len(text), bool)
    dates_only = not bool(pc.any(pc.match_substring(text, ":")).as_py())
    _refuse_idle_zone(name, timezone, bool(zoned.all()) or dates_only)
    if zoned.all():
        text = pc.replace_substring_regex(text, r"\s?(?:UTC|GMT)([+-])", r"\1")
        text = pc.replace_substring_regex(text, r"\s?(?:Z|UTC|GMT)$", "+00:00")
        text = pc.replace_substring_regex(text, r"\s([+-]\d{2}:?\d{2})$", r"\1")
    series = pd.Series(text.to_pandas())
    if _all_match(text, _ISO):
        if order != "detect":
            raise DataError(f"{name}: date_order has no effect on year-first dates; remove it.")
        naive = _strict(series, "ISO8601", name)
    else:
        naive = _with_date_formats(series, name, order, zoned=bool(zoned.all()))
    if zoned.all() or dates_only or timezone is None:
        return naive
    return _localized(naive, name, timezone)


def _with_date_formats(
    series: "pd.Series[Any]", name: str, order: DateOrder, *, zoned: bool
) -> TimeArray:
    first = str(series.iloc[0])
    rest = _clock_format(first, name, zoned=zoned)
    if pd.Series([first]).str.match(_YEAR_LAST).item():
        mark = next(char for char in first if char in "-/.")
        return _day_or_month_first(series, name, mark, rest, order)
    if order != "detect":
        raise DataError(f"{name}: date_order has no effect on dates such as {first!r}; remove it.")
    if pd.Series([first]).str.match(_YEAR_FIRST).item():
        mark = next(char for char in first if char in "/.")
        return _strict(series, f"%Y{mark}%m{mark}%d{rest}", name)
    if pd.Series([first]).str.match(_MONTH_NAME).item():
        mark = next(char for char in first if char in "- ")
        return _strict(series, f"%d{mark}%b{mark}%Y{rest}", name)
    raise DataError(
        f"{name}: {first!r} is not a date that can be read. Write times as ISO 8601, such as "
        "2024-01-31T22:00:00Z."
    )


def _clock_format(first: str, name: str, *, zoned: bool) -> str:
    """Return the format of what follows the date in the first value."""
    date, mark, clock = first.partition("T" if "T" in first else " ")
    if not date.count("-") and date.isalnum():  # a date such as 31 Jan 2024 holds two blanks
        parts = first.split(" ", 3)
        mark, clock = (" ", parts[3]) if len(parts) > 3 else ("", "")
    zone = ""
    if zoned:
        clock, zone = (
            pd.Series([clock]).str.replace(r"[+-]\d{2}:?\d{2}$", "", regex=True).item(),
            "%z",
        )
    for pattern, code in _CLOCKS:
        if pd.Series([clock]).str.match(pattern).item():
            return f"{mark}{code}{zone}"
    raise DataError(
        f"{name}: {first!r} does not end in a time of day that can be read. Write times as ISO "
        "8601, such as 2024-01-31T22:00:00Z."
    )


def _day_or_month_first(
    series: "pd.Series[Any]", name: str, mark: str, rest: str, order: DateOrder
) -> TimeArray:
    formats = {
        "day_first": f"%d{mark}%m{mark}%Y{rest}",
        "month_first": f"%m{mark}%d{mark}%Y{rest}",
    }
    if order != "detect":
        return _strict(series, formats[order], name)
    parsed = {key: _lenient(series, code) for key, code in formats.items()}
    bad = {key: int(np.isnat(times).sum()) for key, times in parsed.items()}
    fitting = [key for key, count in bad.items() if count == 0]
    if len(fitting) == 1:
        return parsed[fitting[0]]
    if not fitting:
        return _strict(series, formats[min(bad, key=lambda key: bad[key])], name)
    if bool((parsed["day_first"] == parsed["month_first"]).all()):
        return parsed["day_first"]
    raise DataError(
        f"{name}: every date could be day-first or month-first, for example {series.iloc[0]!r}. "
        'Set date_order to "day_first" or "month_first".'
    )


def _strict(series: "pd.Series[Any]", code: str, name: str) -> TimeArray:
    try:
        parsed = pd.to_datetime(series, format=code, utc=True).dt.tz_convert(None)
        return parsed.astype("datetime64[ns]").to_numpy("datetime64[ns]")
    except (ValueError, OverflowError) as error:
        bad = np.isnat(_lenient(series, code))
        row = int(np.flatnonzero(bad)[0]) if bad.any() else 0
        raise DataError(
            f"{name}: {max(int(bad.sum()), 1)} of {len(series)} times do not read as the others "
            f"do, first in row {row + 1} ({str(series.iloc[row])[:60]!r}). Correct them, or write "
            "times as ISO 8601."
        ) from error


def _lenient(series: "pd.Series[Any]", code: str) -> TimeArray:
    parsed = pd.to_datetime(series, format=code, utc=True, errors="coerce").dt.tz_convert(None)
    years = parsed.dt.year
    inside = parsed.where((years > 1677) & (years < 2262))
    return inside.astype("datetime64[ns]").to_numpy("datetime64[ns]")


def _localized(naive: TimeArray, name: str, timezone: str) -> TimeArray:
    try:
        local = pd.DatetimeIndex(naive).tz_localize(
            timezone, ambiguous="raise", nonexistent="raise"
        )
    except ValueError as error:
        raise DataError(
            f"{name}: a time exists twice or not at all in {timezone} because clocks change: "
            f"{error}. Write times with their offset, or in UTC."
        ) from error
    return local.tz_convert("UTC").tz_localize(None).to_numpy("datetime64[ns]")


def _refuse_idle_zone(name: str, timezone: str | None, carries_zone: bool) -> None:
    if timezone is not None and carries_zone:
        raise DataError(
            f"{name}: timezone {timezone!r} has no effect, because these times are epochs, dates "
            "or carry a zone already. Remove the setting."
        )


def _refuse_odd_rows(text: "pa.Array[Any]", name: str) -> None:
    """Refuse the rows that are unlike most: an empty cell, or a header repeated among the bars."""
    for pattern in (_ISO, _DIGITS, _YEAR_LAST, _YEAR_FIRST, _MONTH_NAME):
        good = pc.match_substring_regex(text, pattern).to_numpy(zero_copy_only=False)
        count = int(good.sum())
        if count == len(good):
            return
        if 2 * count > len(good):
            row = int(np.argmin(good))
            raise DataError(
                f"{name}: {len(good) - count} of {len(good)} times do not read as the others do, "
                f"first in row {row + 1} ({text[row].as_py()[:60]!r}). Correct or remove the rows."
            )


def _all_match(text: "pa.Array[Any]", pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(text, pattern)).as_py())
