"""RSI and MACD, with the seeds of TA-Lib."""

from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem
from quantail.market.features.columns import Columns, Feature
from quantail.market.features.windows import lagged, ratio, smooth_nb
from quantail.types import FloatArray


@config
class Rsi:
    """Wilder's relative strength index, between 0 and 100."""

    kind: Literal["rsi"] = "rsi"
    window: Annotated[int, Ge(2)] = 14
    """Changes in the seed; each later change weighs 1/window."""

    def build(self) -> Feature:
        """One column."""
        return Feature(
            (f"rsi_{self.window}",), self.window, lambda bars: rsi(bars.close, self.window)
        )


@config
class Macd:
    """Difference of two exponential averages of the close, and its own average."""

    kind: Literal["macd"] = "macd"
    fast: Annotated[int, Ge(2)] = 12
    """Window of the quick average."""
    slow: Annotated[int, Ge(2)] = 26
    """Window of the slow average."""
    signal: Annotated[int, Ge(1)] = 9
    """Window of the average of the difference."""
    relative: bool = True
    """Divide by the close, so that symbols and years compare; false gives price units."""

    def check(self) -> None:
        """Refuse a quick average that is not quicker."""
        if self.fast >= self.slow:
            raise ConfigError(
                [ConfigProblem("fast", f"must be less than slow ({self.slow}); was {self.fast}")]
            )

    def build(self) -> Feature:
        """Two columns: the difference and its signal line."""
        stem = f"{self.fast}_{self.slow}_{self.signal}"
        if not self.relative:
            stem += "_price"
        names = (f"macd_{stem}", f"macd_signal_{stem}")
        return Feature(names, self.slow + self.signal - 2, self._compute)

    def _compute(self, bars: Columns) -> FloatArray:
        lines = np.column_stack(macd(bars.close, self.fast, self.slow, self.signal))
        return lines / bars.close[:, None] if self.relative else lines


def rsi(close: FloatArray, window: int) -> FloatArray:
    """``100·G / (G + L)``, with G and L Wilder's averages of gains and losses.

    Args:
        close: Prices [T].
        window: Changes in the seed.

    Returns:
        Index [T], NaN for the first ``window`` rows, and NaN where the price has never moved
        (TA-Lib gives 0 there, which would read as "only losses").
    """
    change = close - lagged(close, 1)
    gain = smooth_nb(np.maximum(change, 0.0), window, 1.0 / window, 1)
    loss = smooth_nb(np.maximum(-change, 0.0), window, 1.0 / window, 1)
    return 100.0 * ratio(gain, gain + loss)


def macd(close: FloatArray, fast: int, slow: int, signal: int) -> tuple[FloatArray, FloatArray]:
    """``EMA_fast - EMA_slow`` and the EMA of that difference.

    Both averages start at row ``slow - 1``, each seeded with the mean of its own last window of
    prices there; the signal is seeded with the mean of the first ``signal`` differences.

    Args:
        close: Prices [T].
        fast: Window of the quick average.
        slow: Window of the slow average.
        signal: Window of the signal line.

    Returns:
        Difference [T], NaN for the first ``slow - 1`` rows, and signal line [T], NaN for the
        first ``slow + signal - 2`` rows; both in price units.
    """
    quick = smooth_nb(close, fast, 2.0 / (fast + 1.0), slow - fast)
    difference = quick - smooth_nb(close, slow, 2.0 / (slow + 1.0), 0)
    return difference, smooth_nb(difference, signal, 2.0 / (signal + 1.0), slow - 1)
