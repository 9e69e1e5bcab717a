"""What a feature reads: the bars of one symbol as plain columns, and what a feature is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from quantail.errors import DataError
from quantail.types import BoolArray, FloatArray, TimeArray

if TYPE_CHECKING:
    from quantail.market.bars import Bars

_OPTIONAL: Final = ("spread", "funding", "adjusted_close", "no_trade")
_NUMBERS: Final = ("open", "high", "low", "close", "volume", *_OPTIONAL[:-1])
_ROWS: Final = ("time", "open", "high", "low", "close", "volume", *_OPTIONAL)


@dataclass(frozen=True, slots=True)
class Columns:
    """The bars of one symbol, oldest first; the last row is the newest closed bar.

    Unlike :class:`~quantail.market.bars.Bars` this is an unchecked view: the leak guard cuts it
    and changes it thousands of times. Only infinities become NaN, so that a comparison or a
    maximum cannot turn one into a plausible number.
    """

    symbol: str
    interval: np.timedelta64
    time: TimeArray  # [T] open time of the bar, UTC
    open: FloatArray  # [T]
    high: FloatArray  # [T]
    low: FloatArray  # [T]
    close: FloatArray  # [T]
    volume: FloatArray  # [T]
    spread: FloatArray | None = None  # [T] full bid-ask spread as a fraction of price
    funding: FloatArray | None = None  # [T]
    adjusted_close: FloatArray | None = None  # [T]
    no_trade: BoolArray | None = None  # [T]

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            column = getattr(self, name)
            if column is not None and np.isinf(column).any():
                object.__setattr__(self, name, np.where(np.isinf(column), np.nan, column))

    @property
    def n_bars(self) -> int:
        """Number of rows, ``T``."""
        return len(self.time)

    def rows(self, start: int, stop: int) -> Columns:
        """The bars ``start:stop``, as if the others did not exist."""
        cut: dict[str, Any] = {
            name: None if column is None else column[start:stop]
            for name in _ROWS
            for column in (getattr(self, name),)
        }
        return dataclasses.replace(self, **cut)

    def to_frame(self) -> pd.DataFrame:
        """The columns that exist, as a new data frame indexed by time (UTC)."""
        data = {
            name: column
            for name in _ROWS[1:]
            for column in (getattr(self, name),)
            if column is not None
        }
        index = pd.DatetimeIndex(self.time, name="time").tz_localize("UTC")
        return pd.DataFrame(data, index=index, copy=True)


def columns_of(bars: Bars, symbol: str) -> Columns:
    """The rows of ``symbol`` in ``bars``."""
    rows = bars.rows(symbol)
    optional = {
        name: None if column is None else column[rows]
        for name in _OPTIONAL
        for column in (getattr(bars, name),)
    }
    return Columns(
        symbol=symbol,
        interval=bars.interval,
        time=bars.time[rows],
        open=bars.open[rows],
        high=bars.high[rows],
        low=bars.low[rows],
        close=bars.close[rows],
        volume=bars.volume[rows],
        **optional,
    )


@dataclass(frozen=True, slots=True)
class Feature:
    """One feature ready to compute: a pure function from the bars of a symbol to columns.

    ``compute`` maps [T] bars to values [T, k], one column for each name, NaN where there is no
    value. Row t may use rows up to and including t: bar t is closed when it is seen.
    """

    names: tuple[str, ...]
    """Column names, unique within a table."""
    warmup: int
    """Rows at the start of a symbol that have no value by construction."""
    compute: Callable[[Columns], FloatArray]
    custom: bool = False
    """Whether the function is the user's own, and so may read more than the bars."""

    def __call__(self, columns: Columns) -> FloatArray:
        """Values [T, k] with NaN for everything that is not a finite number after the warm-up.

        Raises:
            DataError: If the function returns something other than one value per bar and name.
        """
        values = np.array(self.compute(columns), dtype=np.float64)
        if values.ndim == 1:
            values = values[:, None]
        wanted = (columns.n_bars, len(self.names))
        if values.shape != wanted:
            raise DataError(
                f"feature {self.names[0]!r} must return one row for each bar and one column for "
                f"each of {list(self.names)}, shape {wanted}; it returned shape {values.shape} for "
                f"symbol {columns.symbol!r}. Keep every bar and mark missing values as NaN."
            )
        values[: self.warmup] = np.nan
        values[~np.isfinite(values)] = np.nan
        return values
