"""Volatility per bar, not annualized: multiply by √(bars per year) to annualize."""

import math
from typing import Annotated, Literal

import numpy as np
from annotated_types import Ge

from quantail.config_class import config
from quantail.market.features.columns import Feature
from quantail.market.features.returns import log_return
from quantail.market.features.windows import (
    lagged,
    log_ratio,
    rolling_mean_nb,
    rolling_moments_nb,
)
from quantail.types import FloatArray


@config
class RealizedVolatility:
    """Root mean square of the last ``window`` close-to-close log returns."""

    kind: Literal["realized_volatility"] = "realized_volatility"
    window: Annotated[int, Ge(1)] = 20
    """Returns in the window."""

    def build(self) -> Feature:
        """One column."""
        return Feature(
            (f"realized_volatility_{self.window}",),
            self.window,
            lambda bars: realized_volatility(bars.close, self.window),
        )


@config
class ParkinsonVolatility:
    """Parkinson's range estimator: efficient, blind to gaps between bars."""

    kind: Literal["parkinson_volatility"] = "parkinson_volatility"
    window: Annotated[int, Ge(1)] = 20
    """Bars in the window."""

    def build(self) -> Feature:
        """One column."""
        return Feature(
            (f"parkinson_volatility_{self.window}",),
            self.window - 1,
            lambda bars: parkinson_volatility(bars.high, bars.low, self.window),
        )


@config
class YangZhangVolatility:
    """Yang and Zhang's estimator: range and gaps, free of drift."""

    kind: Literal["yang_zhang_volatility"] = "yang_zhang_volatility"
    window: Annotated[int, Ge(2)] = 20
    """Bars in the window; its variances need two."""

    def build(self) -> Feature:
        """One column."""
        return Feature(
            (f"yang_zhang_volatility_{self.window}",),
            self.window,
            lambda bars: yang_zhang_volatility(
                bars.open, bars.high, bars.low, bars.close, self.window
            ),
        )


def realized_volatility(close: FloatArray, window: int) -> FloatArray:
    """``√(mean of r² over the window)`` with close-to-close log returns r; the mean is taken as 0.

    Args:
        close: Prices [T].
        window: Returns in the window.

    Returns:
        Volatility per bar [T], NaN for the first ``window`` rows.
    """
    return np.sqrt(rolling_mean_nb(log_return(close, 1) ** 2, window))


def parkinson_volatility(high: FloatArray, low: FloatArray, window: int) -> FloatArray:
    """``√(mean of ln(high/low)² / (4·ln 2))`` over the window.

    Args:
        high: Highs [T].
        low: Lows [T].
        window: Bars in the window.

    Returns:
        Volatility per bar [T], NaN for the first ``window - 1`` rows.

    References:
        Parkinson (1980), The extreme value method for estimating the variance of the rate of
        return.
    """
    return np.sqrt(rolling_mean_nb(log_ratio(high, low) ** 2, window) / (4.0 * math.log(2.0)))


def yang_zhang_volatility(
    open_: FloatArray, high: FloatArray, low: FloatArray, close: FloatArray, window: int
) -> FloatArray:
    """``√(V_o + k·V_c + (1-k)·V_rs)``, with ``k = 0.34 / (1.34 + (n+1)/(n-1))``.

    V_o is the sample variance (n - 1) of ln(open_t/close_{t-1}), V_c that of ln(close_t/open_t),
    and V_rs the mean of Rogers and Satchell's u·(u-c) + d·(d-c), u = ln(high/open), d =
    ln(low/open), c = ln(close/open).

    Args:
        open_: Opens [T].
        high: Highs [T].
        low: Lows [T].
        close: Closes [T].
        window: Bars n in the window.

    Returns:
        Volatility per bar [T], NaN for the first ``window`` rows.

    References:
        Yang and Zhang (2000), Drift-independent volatility estimation, equations 6 to 10.
    """
    overnight = log_ratio(open_, lagged(close, 1))
    up, down, body = log_ratio(high, open_), log_ratio(low, open_), log_ratio(close, open_)
    sample = window / (window - 1.0)
    overnight_variance = rolling_moments_nb(overnight, window)[1] * sample
    body_variance = rolling_moments_nb(body, window)[1] * sample
    range_variance = rolling_mean_nb(up * (up - body) + down * (down - body), window)
    k = 0.34 / (1.34 + (window + 1.0) / (window - 1.0))
    return np.sqrt(overnight_variance + k * body_variance + (1.0 - k) * range_variance)
