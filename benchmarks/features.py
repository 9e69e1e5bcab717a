"""Time and memory of 20 feature columns: ``python benchmarks/features.py [bars]``.

Reported, not asserted: the machine decides. The first computation, which compiles, is not timed.
"""

import platform
import sys
import time
import tracemalloc

import numpy as np

from quantail.market.bars import Bars
from quantail.market.dataset import USUAL_FEATURES
from quantail.market.features import (
    Feature,
    OnBalanceVolume,
    ParkinsonVolatility,
    QuotedSpread,
    TimeOfDay,
    TimeOfWeek,
    TimeSinceGap,
    VolumeZScore,
    YangZhangVolatility,
    build_features,
    compute_features,
)
from quantail.market.leakage import find_leaks
from quantail.market.pipeline import FeaturePipeline
from quantail.market.segments import Segment, time_axis, time_windows
from quantail.market.sources import SyntheticSource
from quantail.market.sources.laws import GeometricBrownian

REPEATS = 3
CONSTANT = ("spread", "time_since_gap_100")


def twenty_columns() -> tuple[Feature, ...]:
    features = build_features(
        [
            *USUAL_FEATURES,
            ParkinsonVolatility(),
            YangZhangVolatility(),
            OnBalanceVolume(),
            OnBalanceVolume(window=None),
            VolumeZScore(),
            TimeOfDay(),
            TimeOfWeek(),
            TimeSinceGap(),
            QuotedSpread(),
        ]
    )
    assert sum(len(feature.names) for feature in features) == 20
    return features


def best_seconds(bars: Bars, features: tuple[Feature, ...]) -> tuple[float, float]:
    """Least wall-clock and least processor time; they differ on a busy machine."""
    wall, processor = [], []
    for _ in range(REPEATS):
        start, start_processor = time.perf_counter(), time.process_time()
        compute_features(bars, features)
        wall.append(time.perf_counter() - start)
        processor.append(time.process_time() - start_processor)
    return min(wall), min(processor)


def peak_bytes(bars: Bars, features: tuple[Feature, ...]) -> int:
    tracemalloc.start()
    compute_features(bars, features)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def main() -> None:
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    features = twenty_columns()
    print(f"{platform.processor() or platform.machine()}, numpy {np.__version__}, 20 columns")
    print("      bars   wall s    CPU s  ns per value  peak MB  bytes per value")
    for n in (most // 4, most // 2, most):
        source = SyntheticSource(
            law=GeometricBrownian(volatility=1e-3),
            bars=n,
            interval="1m",
            spread=1e-4,
            steps_per_bar=2,
        )
        bars = source.load()
        compute_features(bars.window("2020-01-01", "2020-01-02"), features)
        wall, seconds = best_seconds(bars, features)
        peak = peak_bytes(bars, features)
        print(
            f"{n:10d}  {wall:7.3f}  {seconds:7.3f}  {seconds / n / 20 * 1e9:12.1f}  "
            f"{peak / 1e6:7.0f}  {peak / n / 20:15.1f}"
        )
    start = time.perf_counter()
    leaks = find_leaks(features, bars).leaks
    print(f"leak guard on {most} bars: {time.perf_counter() - start:.2f} s, {len(leaks)} leaks")
    # The synthetic market has a constant spread and no pauses: nothing to scale in those.
    varying = tuple(part for part in features if part.names[0] not in CONSTANT)
    table = compute_features(bars, varying)
    axis = time_axis(bars.time)
    train = time_windows((Segment(0, most // 2),), axis)
    test = time_windows((Segment(most // 2, most),), axis)
    start = time.perf_counter()
    pipeline = FeaturePipeline.fit(table, bars, train)
    middle = time.perf_counter()
    pipeline.transform(table, bars, train + test)
    end = time.perf_counter()
    print(
        f"pipeline of {table.n_features} columns on {most} bars: fit {middle - start:.2f} s, "
        f"transform {end - middle:.2f} s"
    )


if __name__ == "__main__":
    main()
