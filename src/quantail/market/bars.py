"""Bars: what the market did, checked once, when they are built.

The rows of all symbols stand one after another (ragged), so symbols of different length need no
padding. Everything downstream may rely on what the constructor checks.
"""

import hashlib
from collections import Counter
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from quantail.errors import DataError
from quantail.market.calendars import AlwaysOpen, CalendarConfig
from quantail.market.checks import (
    PRICES,
    DataChecks,
    SymbolRows,
    find_problems,
    refuse,
    refuse_idle_moves,
)
from quantail.market.instants import INSTANT_RULE, read_instant
from quantail.market.repair import NO_REPAIR, Repair, RepairAction, repair_frame
from quantail.types import BoolArray, FloatArray, IntArray, TimeArray

OPTIONAL: Final = ("spread", "funding", "adjusted_close")
_FLOATS: Final = (*PRICES, "volume", *OPTIONAL)
_ALWAYS_OPEN: Final = AlwaysOpen()
_ALL_CHECKS: Final = DataChecks()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Bars:
    """Bars of one or many symbols; the constructor is the one place of data checks.

    Arrays are copied and made read-only. ``R`` is the number of rows of all symbols together.

    Raises:
        DataError: With every kind of problem of every symbol, never only the first.
    """

    symbols: tuple[str, ...]
    offsets: IntArray
    """[S+1]; the rows of symbol s are offsets[s]:offsets[s+1]."""
    time: TimeArray
    """[R] opening time of each bar in UTC, strictly increasing inside a symbol."""
    open: FloatArray
    high: FloatArray
    low: FloatArray
    close: FloatArray
    volume: FloatArray
    interval: np.timedelta64
    """Nominal length of a bar."""
    calendar: CalendarConfig = _ALWAYS_OPEN
    spread: FloatArray | None = None
    """[R] full bid-ask spread as a fraction of the price."""
    funding: FloatArray | None = None
    """[R] rate charged on the position held over the bar; positive: longs pay."""
    adjusted_close: FloatArray | None = None
    """[R] close adjusted for splits and dividends by the provider."""
    no_trade: BoolArray | None = None
    """[R] True: trading is not allowed in this bar."""
    checks: DataChecks = _ALL_CHECKS
    """Which findings were declared to be real."""
    repairs: tuple[RepairAction, ...] = ()
    """What was done to the data before it became bars."""

    def __post_init__(self) -> None:
        self._freeze()
        self._check_layout()
        problems = []
        for symbol in self.symbols:
            rows = self._symbol_rows(symbol)
            problems += find_problems(rows, self.interval, self.calendar, self.checks)
        refuse(problems)

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor, so that copies sent to other processes are read-only too.
        return _rebuild, ({field.name: getattr(self, field.name) for field in fields(self)},)

    @property
    def n_bars(self) -> int:
        """Rows of all symbols together."""
        return len(self.time)

    @property
    def n_symbols(self) -> int:
        """Number of symbols."""
        return len(self.symbols)

    def rows(self, symbol: str) -> slice:
        """Return the rows of one symbol."""
        if symbol not in self.symbols:
            known = ", ".join(self.symbols)
            raise DataError(f"symbol must be one of {known}; was {symbol!r}. Correct the name.")
        index = self.symbols.index(symbol)
        return slice(int(self.offsets[index]), int(self.offsets[index + 1]))

    def of(self, symbol: str) -> "Bars":
        """Return the bars of one symbol alone."""
        part = self.rows(symbol)
        mask = np.zeros(self.n_bars, bool)
        mask[part] = True
        return self._select(mask)

    def window(self, start: np.datetime64 | str, stop: np.datetime64 | str) -> "Bars":
        """Return the bars with start <= time < stop; symbols without one are left out."""
        first, last = (read_instant(str(instant)) for instant in (start, stop))
        if first is None or last is None:
            raise DataError(f"window: must be {INSTANT_RULE}; was {start!s} to {stop!s}.")
        mask = np.asarray((self.time >= first) & (self.time < last))
        if not mask.any():
            raise DataError(
                f"window {first} to {last} holds no bar; the data runs from {self.time.min()} to "
                f"{self.time.max()}. Choose a window inside."
            )
        return self._select(mask)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        interval: np.timedelta64 | None = None,
        calendar: CalendarConfig = _ALWAYS_OPEN,
        checks: DataChecks = _ALL_CHECKS,
        repair: Repair = NO_REPAIR,
    ) -> Self:
        """Build bars from a table with one row per bar.

        Args:
            frame: Columns symbol, time, open, high, low, close, volume and, optionally, spread (or
                bid and ask), funding, adjusted_close, no_trade. The rows of a symbol must stand
                together. ``time`` is in UTC, with or without a zone.
            interval: Length of a bar; None takes the most frequent step between rows.
            calendar: When the market is open; around the clock by default.
            checks: Which findings are real; by default every finding is refused.
            repair: What may be repaired; nothing by default.
        """
        frame = _canonical(frame)
        if interval is None:
            interval = infer_interval(frame["symbol"].to_numpy(), _times(frame["time"]))
        frame, actions = repair_frame(frame, interval, calendar, checks, repair)
        if frame.empty:
            raise DataError("the table holds no bar; at least one row is needed. Check the source.")
        symbols, offsets = _runs(frame["symbol"].to_numpy())
        columns = {name: frame[name].to_numpy(float) for name in _FLOATS if name in frame}
        if "no_trade" in frame:
            columns["no_trade"] = _flags(frame["no_trade"])
        bars = cls(
            symbols=symbols, offsets=offsets, time=_times(frame["time"]), interval=interval,
            calendar=calendar, checks=checks, repairs=actions, **columns,
        )  # fmt: skip
        refuse_idle_moves([bars._symbol_rows(symbol) for symbol in symbols], checks)
        return bars

    def to_frame(self) -> pd.DataFrame:
        """Return a table that :meth:`from_frame` reads back; ``time`` carries the zone UTC."""
        names = [name for name in (*_FLOATS, "no_trade") if getattr(self, name) is not None]
        columns = {
            "symbol": np.repeat(np.array(self.symbols, dtype=object), np.diff(self.offsets)),
            "time": pd.DatetimeIndex(self.time, tz="UTC"),
        }
        return pd.DataFrame(columns | {name: getattr(self, name) for name in names})

    def fingerprint(self) -> str:
        """Return the SHA-256 of the content: equal exactly for equal bars."""
        digest = hashlib.sha256(repr((self.symbols, self.interval.astype("m8[ns]"))).encode())
        for name in ("offsets", "time", *_FLOATS, "no_trade"):
            values = getattr(self, name)
            digest.update(f"{name}:{'none' if values is None else len(values)}".encode())
            if values is not None:
                digest.update(values.tobytes())
        return digest.hexdigest()

    def _symbol_rows(self, symbol: str) -> SymbolRows:
        part = self.rows(symbol)
        found = {name: getattr(self, name) for name in _FLOATS}
        columns = {name: values[part] for name, values in found.items() if values is not None}
        return SymbolRows(symbol, self.time[part], columns)

    def _select(self, mask: BoolArray) -> "Bars":
        """Return the rows where ``mask`` [R] holds; symbols without one are left out."""
        owner = np.repeat(np.arange(self.n_symbols), np.diff(self.offsets))[mask]
        counts = np.bincount(owner, minlength=self.n_symbols)
        kept = tuple(symbol for symbol, n in zip(self.symbols, counts, strict=True) if n)
        columns: dict[str, Any] = {
            name: None if getattr(self, name) is None else getattr(self, name)[mask]
            for name in ("time", *_FLOATS, "no_trade")
        }
        offsets = np.concatenate(([0], np.cumsum(counts[counts > 0])))
        return replace(self, symbols=kept, offsets=offsets, **columns)

    def _freeze(self) -> None:
        """Replace every array by a read-only copy of the right type."""
        kinds = {"offsets": "int64", "time": "datetime64[ns]", "no_trade": "bool"}
        for field in fields(self):
            kind = kinds.get(field.name, "float64" if field.name in _FLOATS else None)
            value = getattr(self, field.name)
            if kind is None or value is None:
                continue
            if field.name == "no_trade":
                value = _flags(value)
            elif field.name in _FLOATS:
                _refuse_complex(value, field.name)
            try:
                array = np.array(value, dtype=kind)
            except (TypeError, ValueError) as error:
                raise DataError(f"{field.name} must be an array of {kind}; {error}.") from error
            array.setflags(write=False)
            object.__setattr__(self, field.name, array)
        object.__setattr__(self, "interval", np.timedelta64(self.interval, "ns"))

    def _check_layout(self) -> None:
        """Refuse arrays whose shapes do not fit together: nothing else could be checked."""
        for name in ("time", *_FLOATS, "no_trade"):
            values = getattr(self, name)
            if values is not None and values.shape != (len(self.time),):
                raise DataError(f"{name} must have shape ({len(self.time)},); was {values.shape}.")
        if len(set(self.symbols)) != len(self.symbols) or not self.symbols:
            raise DataError(f"symbols must be different and at least one; were {self.symbols!r}.")
        good = self.offsets.shape == (len(self.symbols) + 1,) and self.offsets[0] == 0
        good = (
            good and self.offsets[-1] == len(self.time) and bool(np.all(np.diff(self.offsets) > 0))
        )
        if not good:
            raise DataError(
                f"offsets must rise from 0 to {len(self.time)} in {len(self.symbols)} steps, at "
                f"least one row per symbol; were {self.offsets.tolist()}."
            )
        if not self.interval > np.timedelta64(0, "ns"):
            raise DataError(f"interval must be longer than nothing; was {self.interval}.")


def _rebuild(values: dict[str, Any]) -> Bars:
    return Bars(**values)


def infer_interval(symbol: NDArray[Any], time: TimeArray) -> np.timedelta64:
    """Return the most frequent step between the times [R] of one symbol, whatever their order.

    Raises:
        DataError: When no symbol has two bars.
    """
    codes = pd.factorize(np.asarray(symbol, dtype=object))[0]
    order = np.lexsort((time, codes))
    steps = np.diff(time[order])[np.diff(codes[order]) == 0]
    steps = steps[~np.isnat(steps) & (steps > np.timedelta64(0, "ns"))]
    if not len(steps):
        raise DataError(
            "interval cannot be read off the data, because no symbol has two bars. "
            "Give it, for example 1h."
        )
    values, counts = np.unique(steps, return_counts=True)
    return np.timedelta64(values[np.argmax(counts)], "ns")


def _times(column: "pd.Series[pd.Timestamp]") -> TimeArray:
    return column.to_numpy("datetime64[ns]")


def _flags(values: Any) -> BoolArray:
    """Return no_trade [R] as booleans; NaN, text and other numbers have no truth to read."""
    array = np.asarray(values)
    if array.dtype.kind == "O":
        kinds = (bool, int, float, np.bool_, np.integer, np.floating)
        good = np.array([isinstance(v, kinds) and v in (0, 1) for v in array.flat], bool)
    elif array.dtype.kind in "biuf":
        good = np.asarray((array == 0) | (array == 1)).reshape(-1)
    else:
        good = np.zeros(array.size, bool)
    if not good.all():
        row = int(np.argmin(good))
        raise DataError(
            f"no_trade must be true, false, 1 or 0 in every row; {int((~good).sum())} are not, "
            f"first in row {row + 1} ({str(array.reshape(-1)[row])[:40]!r}). Correct them."
        )
    return array.astype(bool)


def _refuse_complex(values: Any, name: str) -> None:
    if np.iscomplexobj(np.asarray(values)):
        raise DataError(f"{name} must hold real numbers; was complex. Take the real part.")


def _canonical(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a copy with known columns only, time without a zone in UTC, bid and ask as spread."""
    needed = ["symbol", "time", *PRICES, "volume"]
    absent = [name for name in needed if name not in frame]
    known = {*needed, *OPTIONAL, "no_trade", "bid", "ask"}
    unknown = [str(name) for name in frame.columns if name not in known]
    if absent or unknown:
        raise DataError(
            f"the table must have the columns {', '.join(needed)}; missing: {absent}, unknown: "
            f"{unknown}. Rename or drop them."
        )
    frame = frame.reset_index(drop=True).copy()
    if not pd.api.types.is_datetime64_any_dtype(frame["time"]):
        kind = frame["time"].dtype
        raise DataError(f"time must be a column of timestamps; was {kind}. Convert it, in UTC.")
    numbers = ({*_FLOATS, "bid", "ask"}) & {*frame.columns}
    for name in numbers:
        _refuse_complex(frame[name], name)
    try:
        frame["time"] = pd.to_datetime(frame["time"], utc=True).dt.tz_convert(None).astype("M8[ns]")
        for name in numbers:
            frame[name] = frame[name].astype("float64")
    except (ValueError, TypeError, OverflowError) as error:
        raise DataError(f"the table must hold numbers and times until 2262; {error}.") from error
    if "no_trade" in frame:
        frame["no_trade"] = _flags(frame["no_trade"])
    frame["symbol"] = frame["symbol"].astype(str).astype(object)
    if ("bid" in frame) != ("ask" in frame) or ("bid" in frame and "spread" in frame):
        raise DataError("give bid and ask together, or spread alone; drop one of the columns.")
    if "bid" in frame:
        bid, ask = frame.pop("bid"), frame.pop("ask")
        frame["spread"] = 2.0 * (ask - bid) / (ask + bid)
    return frame


def _runs(
    symbol: "np.ndarray[tuple[int], np.dtype[np.object_]]",
) -> tuple[tuple[str, ...], IntArray]:
    """Return the symbols in order of appearance and the offsets [S+1] of their rows."""
    starts = np.flatnonzero(np.concatenate(([True], symbol[1:] != symbol[:-1])))
    names = tuple(str(name) for name in symbol[starts])
    again = [name for name, count in Counter(names).items() if count > 1]
    if again:
        raise DataError(
            f"the rows of a symbol must stand together; {', '.join(again[:3])} appear(s) in "
            "several places. Sort by symbol and time, or set repair.sort."
        )
    return names, np.append(starts, len(symbol)).astype(np.int64)
