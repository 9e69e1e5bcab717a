"""Episodes: which symbol, which start, how long."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypeAlias

import numpy as np
from annotated_types import Ge, Gt

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem, DataError
from quantail.market.bars import Bars
from quantail.types import FloatArray, IntArray

# columns of the episode table [S, 3]
FIRST_ROW, LAST_START, LAST_BAR = 0, 1, 2

Windows: TypeAlias = Mapping[str, slice] | Sequence[tuple[str, slice]]
"""Rows that episodes may use: one window for each symbol, or any number of (symbol, window)."""


@config
class EpisodeConfig:
    """How episodes are cut out of the windows.

    Every bar once, in order, for an evaluation: see :meth:`quantail.sim.MarketSim.over_windows`.
    """

    length: Annotated[int, Ge(1)] | None = 256
    """Steps of an episode; null runs to the end of the window."""
    end: Literal["cut", "final"] = "cut"
    """What reaching ``length`` means. ``cut`` (truncated): the account would go on, and agents also
    value what follows. ``final`` (terminated): the account is judged at this close, its position at
    the mark, and nothing follows; take it where a measure of the episode counts, such as CVaR of
    its return. The account state shows the time that is left. An episode that the end of the data
    stops earlier is cut in any case."""
    start: Literal["random", "first"] = "random"
    """Start anywhere that leaves room for the episode, or at the first usable bar."""
    warmup: Annotated[int, Ge(0)] = 0
    """Bars at the beginning of a window that are seen but not traded."""
    symbols: Literal["sampled", "dealt"] = "sampled"
    """Draw a window for each episode, or give env i window i modulo their number for good."""
    weights: Mapping[str, Annotated[float, Gt(0)]] | None = None
    """Weights of the symbols' windows when they are sampled; equal by default."""

    def check(self) -> None:
        """Refuse an end that is never reached, and weights that nothing reads."""
        if self.end == "final" and self.length is None:
            problem = (
                "has no effect with episodes.length null, as the end of the data always cuts an "
                "episode; give a length, or set it to cut"
            )
            raise ConfigError([ConfigProblem("end", problem)])
        if self.weights is not None and self.symbols == "dealt":
            problem = "has no effect with episodes.symbols 'dealt'; remove it"
            raise ConfigError([ConfigProblem("weights", problem)])
        bad = [name for name, weight in (self.weights or {}).items() if not weight > 0]
        if bad:
            problem = f"must be greater than 0 for every symbol; {bad[0]!r} is not. Remove it"
            raise ConfigError([ConfigProblem("weights", problem)])


def symbol_windows(bars: Bars, windows: Windows | None) -> list[tuple[str, slice]]:
    """Return the windows that may be used with their symbols; all rows of all by default.

    Raises:
        DataError: For a window that is empty or reaches outside its symbol.
    """
    if windows is None:
        return [(symbol, bars.rows(symbol)) for symbol in bars.symbols]
    if not windows:
        raise DataError(
            "windows names no symbol; at least one is needed. Leave it out for all rows."
        )
    pairs = list(windows.items() if isinstance(windows, Mapping) else windows)
    for symbol, window in pairs:
        rows = bars.rows(symbol)
        if not isinstance(window.start, int) or not isinstance(window.stop, int):
            raise DataError(
                f"window of {symbol} must have a start and a stop row; was {window}. Rows of this "
                f"symbol are {rows.start} to {rows.stop}."
            )
        if not rows.start <= window.start <= window.stop <= rows.stop:
            raise DataError(
                f"window of {symbol} must lie in rows {rows.start} to {rows.stop}; was "
                f"{window.start} to {window.stop}. Count rows over all symbols, as Bars.rows does."
            )
        if window.start == window.stop:
            raise DataError(
                f"window of {symbol} is empty (rows {window.start} to {window.stop}). Choose a "
                "window with bars, or leave the symbol out."
            )
    return pairs


def episode_table(
    bars: Bars, windows: Sequence[tuple[str, slice]], episodes: EpisodeConfig, history: int
) -> IntArray:
    """Return first row, last possible start and last bar of each window, [S, 3].

    Args:
        bars: The bars.
        windows: Rows that may be used, with their symbols.
        episodes: How episodes are cut.
        history: Bars of the symbol that must lie before a decision, inside the window or not.

    Raises:
        DataError: When a window is shorter than warm-up and one episode.
    """
    length = episodes.length or 1
    table = np.zeros((len(windows), 3), np.int64)
    for index, (symbol, window) in enumerate(windows):
        first = max(window.start + episodes.warmup, bars.rows(symbol).start + history)
        last = window.stop - 1
        if last - first < length:
            used = first - window.start
            raise DataError(
                f"window of {symbol} has {window.stop - window.start} bars; warm-up ({used}) and "
                f"an episode ({length} steps) need {used + length + 1}. Use a longer window, a "
                "shorter episodes.length, or a smaller warm-up, cost window or observation window."
            )
        last_start = first if episodes.start == "first" else last - length
        table[index] = first, last_start, last
    return table


def cumulative_weights(symbols: tuple[str, ...], episodes: EpisodeConfig) -> FloatArray:
    """Return the upper ends of the windows' shares of [0, 1], [S]; empty when they are dealt."""
    if episodes.symbols == "dealt":
        return np.zeros(0)
    weights = episodes.weights
    if weights is None:
        values = np.ones(len(symbols))
    else:
        if set(weights) != set(symbols):
            raise ConfigError(
                "episodes.weights must name every symbol in use once; they are "
                f"{', '.join(dict.fromkeys(symbols))}, given were {', '.join(weights)}. Correct "
                "the names."
            )
        values = np.array([weights[symbol] for symbol in symbols])
    upper: FloatArray = np.cumsum(values) / values.sum()
    upper[-1] = 1.0
    return upper
