"""Where the price stands against its recent range: ATR and Bollinger position."""

from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge, Gt

from quantail.config_class import config
from quantail.market.features.columns import Columns, Feature
from quantail.market.features.windows import lagged, ratio, rolling_moments_nb, smooth_nb
from quantail.types import FloatArray


@config
class Atr:
    """Wilder's average true range."""

    kind: Literal["atr"] = "atr"
    window: Annotated[int, Ge(1)] = 14
    """Ranges in the seed; each later range weighs 1/window."""
    relative: bool = True
    """Divide by the close, so that symbols and years compare; false gives price units."""

    def build(self) -> Feature:
        """One column."""
        name = f"atr_{self.window}" if self.relative else f"atr_{self.window}_price"
        return Feature((name,), self.window, self._compute)

    def _compute(self, bars: Columns) -> FloatArray:
        average = atr(bars.high, bars.low, bars.close, self.window)
        return average / bars.close if self.relative else average


@config
class BollingerPosition:
    """Where the close stands between the Bollinger bands: -1 lower, 0 middle, +1 upper."""

    kind: Literal["bollinger_position"] = "bollinger_position"
    window: Annotated[int, Ge(2)] = 20
    """Bars of the moving average and deviation."""
    width: Annotated[float, Gt(0)] = 2.0
    """Standard deviations from the middle to a band."""

    def build(self) -> Feature:
        """One column."""
        return Feature(
            (f"bollinger_position_{self.window}_{self.width:g}",),
            self.window - 1,
            lambda bars: bollinger_position(bars.close, self.window, self.width),
        )


def true_range(high: FloatArray, low: FloatArray, close: FloatArray) -> FloatArray:
    """``max(high - low, |high - previous close|, |low - previous close|)``.

    Args:
        high: Highs [T].
        low: Lows [T].
        close: Closes [T].

    Returns:
        Ranges [T], NaN for the first row.
    """
    previous = lagged(close, 1)
    return np.maximum(high, previous) - np.minimum(low, previous)


def atr(high: FloatArray, low: FloatArray, close: FloatArray, window: int) -> FloatArray:
    """Wilder's average of the true range, seeded with the mean of the first ``window`` ranges.

    Args:
        high: Highs [T].
        low: Lows [T].
        close: Closes [T].
        window: Ranges in the seed.

    Returns:
        Average true range [T] in price units, NaN for the first ``window`` rows.
    """
    return smooth_nb(true_range(high, low, close), window, 1.0 / window, 1)


def bollinger_position(close: FloatArray, window: int, width: float) -> FloatArray:
    """``(close - mean) / (width·std)`` with the population deviation over the window.

    Args:
        close: Prices [T].
        window: Bars in the window.
        width: Deviations from the middle to a band.

    Returns:
        Position [T], NaN for the first ``window - 1`` rows and where the price stood still for
        the whole window (the bands have no width).
    """
    mean, variance = rolling_moments_nb(close, window)
    return ratio(close - mean, width * np.sqrt(variance))
