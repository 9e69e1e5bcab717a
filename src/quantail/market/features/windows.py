"""Moving windows and recursions, compiled. NaN in, NaN out: nothing is skipped or filled.

A window is summed anew at every row around a pivot inside it. That costs T·window operations, but
leaves no running sum that drifts, lets a NaN leave together with its window, and gives a variance
of exactly zero for constant prices, so that "no spread" can be told from a tiny one.
"""

import math

import numpy as np
from numba import njit

from quantail.types import FloatArray


@njit(cache=True)
def rolling_mean_nb(x: FloatArray, window: int) -> FloatArray:
    """Mean of ``x[t-window+1 .. t]``; NaN for t < window - 1.

    Args:
        x: Series [T].
        window: Rows in the window.

    Returns:
        Means [T].
    """
    mean = np.full(x.size, np.nan)
    for t in range(window - 1, x.size):
        total = 0.0
        for i in range(t - window + 1, t + 1):
            total += x[i]
        mean[t] = total / window
    return mean


@njit(cache=True)
def rolling_moments_nb(x: FloatArray, window: int) -> tuple[FloatArray, FloatArray]:
    """Mean and population variance of ``x[t-window+1 .. t]``; NaN for t < window - 1.

    Args:
        x: Series [T].
        window: Rows in the window.

    Returns:
        Means [T] and variances [T] (divided by ``window``, not ``window - 1``).
    """
    mean = np.full(x.size, np.nan)
    variance = np.full(x.size, np.nan)
    for t in range(window - 1, x.size):
        pivot = x[t]
        first = 0.0
        second = 0.0
        for i in range(t - window + 1, t + 1):
            deviation = x[i] - pivot
            first += deviation
            second += deviation * deviation
        first /= window
        mean[t] = pivot + first
        spread = second / window - first * first
        # Rounding may leave a negative crumb; a NaN must pass, so this is not max(spread, 0).
        variance[t] = 0.0 if spread < 0.0 else spread
    return mean, variance


@njit(cache=True)
def smooth_nb(x: FloatArray, window: int, weight: float, first: int) -> FloatArray:
    """Exponential smoothing seeded with a simple mean.

    ``y[first+window-1] = mean(x[first .. first+window-1])``, then ``y[t] = y[t-1] + w·(x[t] -
    y[t-1])``. ``w = 2/(window+1)`` is the usual EMA, ``w = 1/window`` is Wilder's average. A NaN
    stays for all later rows: the recursion has lost its past.

    Args:
        x: Series [T].
        window: Rows of the seed.
        weight: Weight ``w`` of the newest value.
        first: First row of the seed.

    Returns:
        Smoothed series [T], NaN before ``first + window - 1``.
    """
    smooth = np.full(x.size, np.nan)
    seeded = first + window - 1
    if seeded >= x.size:
        return smooth
    total = 0.0
    for i in range(first, seeded + 1):
        total += x[i]
    level = total / window
    smooth[seeded] = level
    for t in range(seeded + 1, x.size):
        level += weight * (x[t] - level)
        smooth[t] = level
    return smooth


def lagged(x: FloatArray, lag: int) -> FloatArray:
    """``x[t-lag]`` at row t; NaN for the first ``lag`` rows."""
    shifted = np.full(x.size, np.nan)
    shifted[lag:] = x[: max(x.size - lag, 0)]
    return shifted


def log_ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """``ln(numerator / denominator)``; NaN or infinite, never a guess, where that has no value."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(numerator / denominator), dtype=np.float64)


def ratio(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """``numerator / denominator``; NaN where the denominator is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(denominator == 0.0, math.nan, numerator / denominator)
