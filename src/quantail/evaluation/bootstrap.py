"""Intervals for time series: the stationary bootstrap of Politis and Romano (1994).

Blocks of geometric length, drawn anew from a circle of the bars, keep the dependence of
neighboring bars. The expected length is chosen from the data (Politis and White 2004, corrected
2009, as implemented in ``arch``).
"""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
from annotated_types import Ge, Gt, Lt

from quantail.config_class import config
from quantail.errors import DataError
from quantail.evaluation.record import Estimate
from quantail.types import FloatArray, IntArray

MIN_BARS: Final = 20
"""Fewer bars give no interval: nothing can be said about chance."""
_MIN_BLOCKS: Final = 8
_CHUNK: Final = 2_000_000
"""Resampled bars held at once."""
_MOST_BARS: Final = 100_000_000
"""Resampled bars in all, some seconds of work for each series."""
_LEAST_SAMPLES: Final = 200

Statistic = Callable[[FloatArray], FloatArray]
"""From resampled columns [..., K, T] to one number each, [...]."""


@config
class BootstrapConfig:
    """How intervals are computed."""

    confidence: Annotated[float, Gt(0.5), Lt(1)] = 0.95
    """Level of two-sided intervals; evidence of skill needs half of the rest on one side."""
    samples: Annotated[int, Ge(100)] = 1000
    """Resamples; of series longer than 100,000 bars fewer, down to 200, whose intervals are as wide
    and only a little less smooth."""
    seed: Annotated[int, Ge(0)] = 0
    """Of the resampling; the same bars give the same intervals."""


@dataclass(frozen=True, slots=True)
class MeanTest:
    """The mean of a series, its interval and how likely chance alone gives as much."""

    mean: Estimate
    p_value: float
    """One-sided, of the hypothesis that the true mean is at most zero."""
    block_length: float


def block_length(series: FloatArray) -> float:
    """Return the expected length of blocks for the mean of ``series`` [T], at least 1.

    At most T/8, so that a resample has enough blocks to show any spread; 1 for a series without
    spread or shorter than :data:`MIN_BARS`.
    """
    # Imported here: arch loads statsmodels, which takes longer than reading a record.
    from arch.bootstrap import optimal_block_length  # noqa: PLC0415

    count = len(series)
    if count < MIN_BARS or np.ptp(series) <= 1e-14 * np.abs(series).max(initial=0.0):
        return 1.0
    with warnings.catch_warnings():
        # Lags at which a series is constant give 0/0; their result is checked below.
        warnings.simplefilter("ignore", RuntimeWarning)
        best = float(optimal_block_length(series)["stationary"].iloc[0])
    return min(max(best, 1.0), count / _MIN_BLOCKS) if math.isfinite(best) else 1.0


def resample(count: int, block: float, size: int, rng: np.random.Generator) -> IntArray:
    """Return bars of ``size`` stationary resamples of ``count`` bars, [size, count].

    A block ends before each bar with probability 1/block; bars follow one another on a circle.
    """
    step = np.arange(count)
    begins = rng.random((size, count)) < 1.0 / block
    begins[:, 0] = True
    latest = np.maximum.accumulate(np.where(begins, step, 0), axis=1)
    starts = rng.integers(0, count, (size, count))
    return np.asarray((np.take_along_axis(starts, latest, axis=1) + step - latest) % count)


def _chunks(count: int, block: float, settings: BootstrapConfig) -> Iterator[IntArray]:
    rng = np.random.default_rng(settings.seed)
    wanted = min(settings.samples, max(_LEAST_SAMPLES, _MOST_BARS // count))
    size = max(1, min(wanted, _CHUNK // count))
    for done in range(0, wanted, size):
        yield resample(count, block, min(size, wanted - done), rng)


def intervals(
    columns: FloatArray,
    statistics: Mapping[str, Statistic],
    block: float,
    settings: BootstrapConfig,
) -> dict[str, Estimate]:
    """Return statistics of ``columns`` with percentile intervals from common resamples.

    Args:
        columns: [K, T], resampled together, so that pairs of bars stay pairs.
        statistics: By name.
        block: Expected length of a block.
        settings: Level and number of resamples.

    Returns:
        Estimates by name; without interval for fewer than :data:`MIN_BARS` bars or where a tenth of
        the resamples leaves the statistic undefined.
    """
    values = {name: float(statistic(columns)) for name, statistic in statistics.items()}
    if columns.shape[1] < MIN_BARS:
        return {name: Estimate(value) for name, value in values.items()}
    drawn: dict[str, list[FloatArray]] = {name: [] for name in statistics}
    for index in _chunks(columns.shape[1], block, settings):
        sample = np.ascontiguousarray(columns[:, index].transpose(1, 0, 2))  # [size, K, T]
        for name, statistic in statistics.items():
            drawn[name].append(statistic(sample))
    tail = 50.0 * (1.0 - settings.confidence)
    result = {}
    for name, value in values.items():
        sample = np.concatenate(drawn[name])
        known = sample[np.isfinite(sample)]
        if not math.isfinite(value) or len(known) < 0.9 * len(sample):
            result[name] = Estimate(value)
            continue
        low, high = np.percentile(known, [tail, 100.0 - tail])
        result[name] = Estimate(value, float(low), float(high))
    return result


def mean_test(
    series: FloatArray, settings: BootstrapConfig, block: float | None = None
) -> MeanTest:
    """Return the mean of ``series`` [T] with a studentized interval (bootstrap-t).

    t = (mean − μ)/s with s from the means of blocks, twice as long as the expected block so that
    little dependence reaches over their ends; its law is that of (mean* − mean)/s* over resamples.
    Unlike a percentile interval it corrects for skewness, and a strategy that earns little often
    and loses much seldom is skewed. Ends are order statistics of rank (B + 1)·level, rounded
    outward, which keeps the level for a finite number of resamples.

    Args:
        series: Bars in order, or independent instances.
        settings: Level and number of resamples.
        block: Expected length of a block; 1 for independent instances, None to choose.

    Raises:
        DataError: When a number is not finite.
    """
    if not np.isfinite(series).all():
        bar = int(np.flatnonzero(~np.isfinite(series))[0])
        raise DataError(f"returns must be finite; bar {bar} is {series[bar]}.")
    count = len(series)
    mean = float(series.mean()) if count else math.nan
    block = block_length(series) if block is None else block
    if count < MIN_BARS:
        return MeanTest(Estimate(mean), 1.0, block)
    width = 1 if block == 1.0 else math.ceil(2.0 * block)
    error = float(_block_error(series[None, :], width)[0])
    if error <= 1e-14 * np.abs(series).max(initial=0.0) or error == 0.0:
        p_value = 1.0 if mean <= 0.0 else 1.0 / (settings.samples + 1)
        return MeanTest(Estimate(mean, mean, mean), p_value, block)
    drawn = []
    for index in _chunks(count, block, settings):
        sample = series[index]
        spread = _block_error(sample, width)
        known = spread > 0.0
        t = (sample.mean(axis=1) - mean) / np.where(known, spread, 1.0)
        drawn.append(t[known])
    ratios = np.sort(np.concatenate(drawn))
    rank = math.ceil(0.5 * (1.0 + settings.confidence) * (len(ratios) + 1))
    high, low = ratios[min(rank, len(ratios)) - 1], ratios[max(len(ratios) - rank, 0)]
    p_value = (1 + int((ratios >= mean / error).sum())) / (1 + len(ratios))
    estimate = Estimate(mean, mean - float(high) * error, mean - float(low) * error)
    return MeanTest(estimate, p_value, block)


def _block_error(rows: FloatArray, width: int) -> FloatArray:
    """Return the standard error of each row's mean [B] from the means of its blocks."""
    blocks = rows.shape[1] // width
    means = rows[:, : blocks * width].reshape(len(rows), blocks, width).mean(axis=2)
    return np.asarray(means.std(axis=1, ddof=1) / math.sqrt(blocks))
