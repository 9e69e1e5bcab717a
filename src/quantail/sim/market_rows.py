"""What the kernel needs of the market: one cache line per bar, and one row of features."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from quantail.errors import DataError
from quantail.market.bars import Bars
from quantail.sim.account import FillConfig
from quantail.sim.config import SimConfig
from quantail.sim.costs import half_spread, impact
from quantail.sim.episodes import Windows, cumulative_weights, episode_table, symbol_windows
from quantail.sim.no_trade import blocked_rows
from quantail.types import BoolArray, Float32Array, FloatArray, IntArray

# columns of MarketRows.rows [R, 8]: 64 bytes, one cache line
FILL: Final = 0
CLOSE: Final = 1
HALF_SPREAD: Final = 2
IMPACT: Final = 3
MAX_UNITS: Final = 4
FUNDING: Final = 5
YEARS: Final = 6  # time from the bar before, for interest
BLOCKED: Final = 7
N_COLUMNS: Final = 8

_YEAR: Final = np.timedelta64(365 * 24 * 3600, "s")


@dataclass(frozen=True, slots=True, eq=False)
class MarketRows:
    """The market as the kernel reads it. ``R`` is the number of rows of all symbols together."""

    rows: FloatArray
    """[R, 8] prices and costs of each bar."""
    features: Float32Array
    """[R, F]"""
    foreseen_block: BoolArray
    """[R] whether, at the close of a bar, a fill in the next one is known to be impossible."""
    symbols: tuple[str, ...]
    """Symbols of the S windows in use."""
    table: IntArray
    """[S, 3] first row, last start and last bar."""
    weights: FloatArray
    """[S] cumulative weights; empty when symbols are dealt."""

    @property
    def n_features(self) -> int:
        """Features of one bar."""
        return int(self.features.shape[1])


def prepare_market(
    bars: Bars,
    features: FloatArray | Float32Array | None,
    windows: Windows | None,
    config: SimConfig,
) -> MarketRows:
    """Put bars, features and windows into the form that the kernel reads.

    Raises:
        DataError: When features and bars do not match, a feature that can be seen is not finite, or
            a window is empty or too short.
    """
    used = symbol_windows(bars, windows)
    symbols = tuple(symbol for symbol, _ in used)
    history = max(config.costs.warmup, config.observation.window - 1)
    table = episode_table(bars, used, config.episodes, history)
    matrix = _feature_matrix(bars, features)
    _check_features(bars, matrix, symbols, table, config.observation.window)
    blocked, foreseen = blocked_rows(bars, config.no_trade, config.fill)
    return MarketRows(
        rows=_rows(bars, config, blocked),
        features=matrix,
        foreseen_block=foreseen,
        symbols=symbols,
        table=table,
        weights=cumulative_weights(symbols, config.episodes),
    )


def _rows(bars: Bars, config: SimConfig, blocked: BoolArray) -> FloatArray:
    rows = np.zeros((bars.n_bars, N_COLUMNS))
    rows[:, FILL] = fill_prices(bars, config.fill)
    rows[:, CLOSE] = bars.close
    rows[:, HALF_SPREAD] = half_spread(bars, config.costs)
    rows[:, IMPACT], rows[:, MAX_UNITS] = impact(bars, config.costs)
    rows[:, FUNDING] = 0.0 if bars.funding is None else bars.funding
    rows[1:, YEARS] = np.diff(bars.time) / _YEAR
    rows[bars.offsets[:-1], YEARS] = 0.0  # the bar before belongs to another symbol
    rows[:, BLOCKED] = blocked
    return rows


def fill_prices(bars: Bars, fill: FillConfig) -> FloatArray:
    """Return the price at which an order fills in each bar, [R]."""
    match fill.price:
        case "open":
            return bars.open
        case "close":
            return bars.close
        case "vwap":
            return (bars.high + bars.low + bars.close) / 3.0


def _feature_matrix(bars: Bars, features: FloatArray | Float32Array | None) -> Float32Array:
    if features is None:
        return np.zeros((bars.n_bars, 0), np.float32)
    matrix = np.asarray(features)
    if matrix.ndim != 2 or matrix.shape[0] != bars.n_bars or matrix.dtype.kind not in "fiub":
        raise DataError(
            f"features must be numbers of shape [{bars.n_bars}, F], one row for each bar; was "
            f"{matrix.dtype} {list(matrix.shape)}. Compute them from the same bars."
        )
    with np.errstate(over="ignore"):  # an overflow is found, with its place, by _check_features
        return np.ascontiguousarray(matrix, np.float32)


def _check_features(
    bars: Bars, matrix: Float32Array, symbols: tuple[str, ...], table: IntArray, window: int
) -> None:
    for symbol, (first, _, last) in zip(symbols, table, strict=True):
        start = first - window + 1
        bad = ~np.isfinite(matrix[start : last + 1])
        if bad.any():
            row, column = np.argwhere(bad)[0]
            raise DataError(
                f"feature {column} of {symbol} is not finite at {bars.time[start + row]} (row "
                f"{start + row}), and {int(bad.sum())} value(s) in all. Raise episodes.warmup over "
                "the features' warm-up, or fill the values and add a validity flag."
            )
