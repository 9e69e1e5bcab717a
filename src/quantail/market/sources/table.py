"""From a table in a file to bars: which column is which, and the settings all tables share."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem, DataError
from quantail.market.bars import Bars
from quantail.market.calendars import AlwaysOpen, CalendarConfig, check_timezone
from quantail.market.checks import PRICES, DataChecks
from quantail.market.instants import INSTANT_RULE, read_instant
from quantail.market.repair import Repair
from quantail.market.sources.times import DateOrder, parse_times
from quantail.types import FloatArray

_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "symbol": ("symbol", "ticker", "pair", "instrument", "sym"),
    "time": (
        "datetime", "timestamp", "gmttime", "localtime", "opentime", "unixtime", "unix", "ts",
        "dateutc", "timeutc", "datetimeutc", "timestamputc", "datetimestamp", "eventtime", "period",
    ),
    "open": ("open", "openprice", "o"),
    "high": ("high", "highprice", "max", "h"),
    "low": ("low", "lowprice", "min", "l"),
    "close": ("close", "closeprice", "last", "c"),
    "volume": ("volume", "vol", "v", "tickvol", "basevolume"),
    "adjusted_close": ("adjclose", "adjustedclose", "closeadj", "closeadjusted"),
    "spread": ("spread",),
    "bid": ("bid",),
    "ask": ("ask",),
    "funding": ("funding", "fundingrate"),
    "no_trade": ("notrade",),
}  # fmt: skip
"""Usual names of each column, lower case, without blanks and marks."""

_INTERVAL: Final = re.compile(r"([1-9]\d{0,5})(s|m|h|d|w)")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_LONGEST: Final = 366 * 86_400
"""Seconds of the longest bar: a year. Far longer ones would overflow as nanoseconds."""
_LONGEST_SHOWN: Final = 300
_WIDE_SPREAD: Final = 0.1
"""Fraction of the price that a spread seldom exceeds; in units of price it usually does."""
_ABSENT: Final = ("", "nan", "NaN", "NA", "N/A", "null", "NULL", "None", "-")


@config
class TableRules:
    """What every source of tables shares: how bars follow each other and what may be repaired."""

    interval: str | None = None
    """Length of a bar: a number and s, m, h, d or w (15m, 4h, 1d); null reads it off the data."""
    calendar: CalendarConfig = AlwaysOpen()
    """When the market is open; tells a hole in the data from a night or a holiday."""
    checks: DataChecks = DataChecks()
    """Findings that are declared to be real."""
    repair: Repair = Repair()
    """What may be repaired, and is then logged; nothing by default."""

    def check(self) -> None:
        """Refuse an interval that cannot be read, and findings both repaired and declared real."""
        if self.interval is not None:
            parse_interval(self.interval)
        if self.repair.splits == "apply" and self.checks.splits == "real":
            message = 'has no effect with checks.splits "real"; give one of the two'
            raise ConfigError([ConfigProblem("repair.splits", message)])
        if self.repair.gaps == "fill" and self.checks.gaps == "allow":
            message = 'has no effect with repair.gaps "fill"; give one of the two'
            raise ConfigError([ConfigProblem("checks.gaps", message)])


@config
class FileRules(TableRules):
    """What every source of files shares."""

    path: str
    """A file, a folder, or a pattern with * and ?; several files are read in order of name."""
    symbol: str | None = None
    """Name of the one symbol; null takes a symbol column or else the name of each file."""
    columns: dict[str, str] | None = None
    """Names in the file of columns with unusual names, such as {close: PX_LAST}."""
    volume: bool = True
    """Whether there is a volume; false reads files without one and books a volume of 0."""
    spread_unit: Literal["fraction", "price"] = "fraction"
    """What a spread column holds: a fraction of the price, or a difference of prices."""
    timezone: str | None = None
    """Zone of times that carry none, such as America/New_York; null is UTC."""
    date_order: DateOrder = "detect"
    """Whether 01/02/2024 is February; "detect" reads it off the data and refuses when it cannot."""

    def check(self) -> None:
        """Refuse an unknown time zone and columns that cannot be meant; and what tables refuse."""
        TableRules.check(self)
        named = set(self.columns or {})
        if not named <= set(_NAMES):
            message = f"must name some of {', '.join(_NAMES)}; had {', '.join(named - set(_NAMES))}"
            raise ConfigError([ConfigProblem("columns", message)])
        for name, given in (("volume", not self.volume), ("symbol", self.symbol is not None)):
            if name in named and given:
                message = f"names a column for {name}, which the setting {name} rules out"
                raise ConfigError([ConfigProblem("columns", f"{message}; remove one")])
        if self.timezone is not None:
            check_timezone(self.timezone)


def parse_interval(text: str) -> np.timedelta64:
    """Read a bar length such as 15m, 4h or 1d."""
    match = _INTERVAL.fullmatch(text)
    if match is None:
        message = f"must be a number and s, m, h, d or w, such as 15m, 4h or 1d; was {text!r}"
        raise ConfigError([ConfigProblem("interval", message)])
    seconds = int(match[1]) * _SECONDS[match[2]]
    if seconds > _LONGEST:
        message = f"must be at most {_LONGEST // 86_400}d; was {text!r}"
        raise ConfigError([ConfigProblem("interval", message)])
    return np.timedelta64(seconds * 1_000_000_000, "ns")


def parse_instant(text: str, name: str) -> np.datetime64:
    """Read an instant such as 2024-01-31 or 2024-01-31T22:00 (UTC) of the setting ``name``."""
    instant = read_instant(text)
    if instant is None:
        raise ConfigError([ConfigProblem(name, f"must be {INSTANT_RULE}; was {text!r}")])
    return instant


def to_bars(frame: pd.DataFrame, rules: TableRules) -> Bars:
    """Build bars from a canonical table under the rules of its source."""
    return Bars.from_frame(
        frame,
        interval=None if rules.interval is None else parse_interval(rules.interval),
        calendar=rules.calendar,
        checks=rules.checks,
        repair=rules.repair,
    )


def find_files(path: str, suffixes: Sequence[str]) -> list[Path]:
    """Return the files that a path, folder or pattern names, sorted by name."""
    try:
        found = _look_up(Path(path).expanduser(), suffixes)
    except (OSError, RuntimeError, ValueError) as error:
        # Too long or not readable, the home of nobody, a pattern with ** inside a name.
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise DataError(
            f"path {_shortened(path)} cannot be looked up: {reason.rstrip('.')}. Correct the path."
        ) from error
    if not found:
        raise DataError(
            f"path {_shortened(path)} names no file; allowed: a file, a folder with files "
            f"ending in {', '.join(suffixes)}, or a pattern with *. Correct the path."
        )
    return sorted(found)


def _look_up(given: Path, suffixes: Sequence[str]) -> list[Path]:
    if given.is_file():
        return [given]
    if given.is_dir():
        return [file for file in given.iterdir() if file.name.lower().endswith(tuple(suffixes))]
    anchor = Path(given.anchor) if given.is_absolute() else Path()
    pattern = str(given.relative_to(given.anchor)) if given.is_absolute() else str(given)
    return [file for file in anchor.glob(pattern) if file.is_file()]


def _shortened(text: str) -> str:
    return repr(text) if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]!r}..."


def read_bytes(file: Path) -> bytes:
    """Read a file, or say why it cannot be read."""
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(
            f"{file}: cannot be read: {error.strerror}. Check path and rights."
        ) from error


def tables_to_bars(tables: Mapping[Path, pa.Table], rules: FileRules) -> Bars:
    """Put the tables of several files together and build bars."""
    if rules.symbol is not None and len(tables) > 1:
        raise DataError(
            f"symbol {rules.symbol!r} is given for {len(tables)} files, which would mix them. "
            "Remove it, or give one file."
        )
    frames = [table_to_frame(table, file, rules) for file, table in tables.items()]
    return to_bars(pd.concat(frames, ignore_index=True), rules)


def table_to_frame(table: pa.Table, file: Path, rules: FileRules) -> pd.DataFrame:
    """Return the canonical table of one file: symbol, time in UTC, prices, volume and more."""
    table = _combined_date_and_time(table)
    places = find_columns(table.column_names, rules, str(file))
    if not table.num_rows:
        raise DataError(f"{file}: holds no bar, only a header; at least one row is needed.")
    content: dict[str, Any] = {}
    for name, place in places.items():
        column = table.column(place).combine_chunks()
        label = f"{file}: column {table.column_names[place]!r}"
        if name == "time":
            content[name] = parse_times(column, label, rules.timezone, rules.date_order)
        elif name == "symbol":
            content[name] = _symbols(column, label)
        elif name == "no_trade":
            content[name] = _flags(column, label)
        else:
            content[name] = _numbers(column, label)
    if not rules.volume:
        content["volume"] = 0.0
    if "spread" in content:
        content["spread"] = _as_fraction(content["spread"], content["close"], str(file), rules)
    elif rules.spread_unit == "price":
        raise DataError(
            f'{file}: spread_unit "price" has no effect without a spread column. Remove it, or '
            "name the column in columns."
        )
    frame = pd.DataFrame(content)
    if rules.symbol is not None or "symbol" not in frame:
        frame["symbol"] = rules.symbol or file.name.split(".")[0]
    return frame


def find_columns(header: Sequence[str], rules: FileRules, where: str) -> dict[str, int]:
    """Return the position of each known column; other columns are left alone.

    Raises:
        DataError: When a needed column is missing, or two columns could be the same.
    """
    given = dict(rules.columns or {})
    found: dict[str, list[int]] = {name: [] for name in _NAMES}
    for place, title in enumerate(header):
        plain = _plain(title)
        for name, usual in _NAMES.items():
            hit = (
                given[name] == title
                if name in given
                else plain in usual and title not in given.values()
            )
            if hit:
                found[name].append(place)
    if "time" not in given and not found["time"]:
        found["time"] = [
            p for p, title in enumerate(header) if _plain(title) in ("date", "time", "day")
        ]
    if not rules.volume and found["volume"]:
        raise DataError(
            f"{where}: volume is set to false, but the file has one; remove the setting."
        )
    if rules.symbol is not None and found["symbol"]:
        raise DataError(f"{where}: symbol is set, but the file has a symbol column; remove one.")
    _refuse_columns(header, found, rules, where)
    return {name: places[0] for name, places in found.items() if places}


def _refuse_columns(
    header: Sequence[str], found: Mapping[str, list[int]], rules: FileRules, where: str
) -> None:
    needed = ["time", *PRICES, *(["volume"] if rules.volume else []), *(rules.columns or {})]
    absent = [name for name in needed if not found[name]]
    shown = ", ".join(repr(title[:30]) for title in list(header)[:12])
    if absent:
        hint = " or set volume to false" if absent == ["volume"] else ""
        raise DataError(
            f"{where}: no column for {', '.join(dict.fromkeys(absent))}; the first line has "
            f"{shown}. Name them in columns, such as {{{absent[0]}: name in the file}},{hint} or "
            "check that the file has a header and the right delimiter."
        )
    for name, places in found.items():
        if len(places) > 1:
            titles = ", ".join(repr(header[place]) for place in places)
            raise DataError(
                f"{where}: {titles} could all be {name}. Name the right one in columns, such as "
                f"{{{name}: {header[places[0]]}}}."
            )


def _plain(title: str) -> str:
    """Lower case without marks: 'Adj Close', '<CLOSE>' and '4. close' become plain words."""
    return re.sub(r"[^a-z]", "", re.sub(r"^\d+\.", "", title.strip().lower()))


def _combined_date_and_time(table: pa.Table) -> pa.Table:
    """Join a date column and a time-of-day column, as some terminals write them."""
    plain = [_plain(title) for title in table.column_names]
    if plain.count("date") != 1 or plain.count("time") != 1:
        return table
    date, clock = plain.index("date"), plain.index("time")
    parts = [table.column(place) for place in (date, clock)]
    if not all(pa.types.is_string(part.type) for part in parts):
        return table
    joined = pc.binary_join_element_wise(*parts, " ")
    return table.set_column(date, "datetime", joined).remove_column(clock)


def _numbers(column: "pa.Array[Any]", label: str) -> Any:
    """Read numbers [R]; an empty cell becomes NaN, which the bars then refuse with its time."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        text = pc.utf8_trim_whitespace(column)
        absent = pc.is_in(text, pa.array(_ABSENT, text.type))
        filled = pc.if_else(absent, pa.scalar("nan", text.type), text)
        try:
            column = pc.cast(filled, pa.float64())
        except pa.ArrowInvalid:
            raise DataError(_no_number(filled, label)) from None
    elif not (
        pa.types.is_integer(column.type)
        or pa.types.is_floating(column.type)
        or pa.types.is_decimal(column.type)
    ):
        raise DataError(f"{label} must hold numbers; was {column.type}. Name another in columns.")
    return pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def _as_fraction(spread: FloatArray, close: FloatArray, where: str, rules: FileRules) -> FloatArray:
    """Return spreads [R] as fractions of the price; refuse those that are none on their face."""
    if rules.spread_unit == "price":
        with np.errstate(divide="ignore", invalid="ignore"):  # the bars refuse such a close
            return spread / close
    if 2 * np.count_nonzero(spread > _WIDE_SPREAD) > len(spread):
        raise DataError(
            f"{where}: spread must be a fraction of the price, such as 0.0002; more than half of "
            f'them exceed {_WIDE_SPREAD:g}. Set spread_unit to "price" if they are differences of '
            "prices; give bid and ask if the market is that wide."
        )
    return spread


def _no_number(text: "pa.Array[Any]", label: str) -> str:
    numeric = r"^[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?$|^[-+]?(?i:nan|inf|infinity)$"
    good = pc.match_substring_regex(text, numeric).to_numpy(zero_copy_only=False)
    bad = np.flatnonzero(~good)
    row = int(bad[0]) if len(bad) else 0
    return (
        f"{label} must hold numbers; {max(len(bad), 1)} do not, first in row {row + 1} "
        f'({text[row].as_py()[:40]!r}). Correct them, or set decimal to "," for decimal commas.'
    )


def _symbols(column: "pa.Array[Any]", label: str) -> Any:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        raise DataError(f"{label} must hold text; was {column.type}. Name another in columns.")
    text = pc.fill_null(pc.utf8_trim_whitespace(column), "")
    if bool(pc.any(pc.equal(text, "")).as_py()):
        raise DataError(f"{label} must name a symbol in every row; some are empty. Correct them.")
    return np.asarray(text.to_pylist(), dtype=object)


def _flags(column: "pa.Array[Any]", label: str) -> Any:
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        text = pc.utf8_lower(pc.utf8_trim_whitespace(column))
        if not bool(
            pc.all(pc.is_in(text, pa.array(["true", "false", "1", "0"], text.type))).as_py()
        ):
            raise DataError(f"{label} must hold true, false, 1 or 0 in every row. Correct it.")
        column = pc.is_in(text, pa.array(["true", "1"], text.type))
    if column.null_count or not (
        pa.types.is_boolean(column.type) or pa.types.is_integer(column.type)
    ):
        raise DataError(f"{label} must hold true or false in every row; was {column.type}.")
    return column.to_numpy(zero_copy_only=False)
