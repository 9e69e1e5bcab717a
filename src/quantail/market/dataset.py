"""From a configuration to data that is ready to train on: load, check, compute, split, scale.

Nothing leaves this file unchecked: :func:`prepare` runs the leak guard on the user's own features
and bars, and refuses a split whose sides share a moment.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem, DataError
from quantail.market.bars import Bars
from quantail.market.features import (
    Atr,
    BollingerPosition,
    FeatureConfig,
    FeatureTable,
    LogReturn,
    Macd,
    RealizedVolatility,
    Rsi,
    build_features,
    compute_features,
)
from quantail.market.leakage import LeakCheck, LeakReport, refuse_leaks, refuse_shared_timestamps
from quantail.market.pipeline import FeaturePipeline, PipelineConfig, ScaledFeatures
from quantail.market.segments import Split, row_windows, time_axis, time_windows
from quantail.market.sources import SourceConfig, load_source
from quantail.market.splits import CombinatorialPurged, Fractions, SplitConfig
from quantail.types import IntArray

USUAL_CACHE: Final = Path("~/.cache/quantail")

USUAL_FEATURES: Final[tuple[FeatureConfig, ...]] = (
    LogReturn(horizons=(1, 5, 20)),
    RealizedVolatility(window=20),
    Rsi(),
    Macd(),
    Atr(),
    BollingerPosition(),
)


@config
class DataConfig:
    """Which bars, what is computed from them, and which of them may be seen when."""

    source: SourceConfig
    """Where the bars come from."""
    features: tuple[FeatureConfig, ...] = USUAL_FEATURES
    """What the agent sees of the market; may be empty."""
    splits: SplitConfig = Fractions()
    """Which bars train, validate and test."""
    pipeline: PipelineConfig = PipelineConfig()
    """How features are scaled."""
    leak_check: LeakCheck = LeakCheck()
    """How hard to look for leaks before training."""

    def check(self) -> None:
        """Refuse settings of features that are not there."""
        if self.features:
            return
        for name, part, usual in (
            ("pipeline", self.pipeline, PipelineConfig()),
            ("leak_check", self.leak_check, LeakCheck()),
        ):
            if part != usual:
                raise ConfigError(
                    [ConfigProblem(name, "has no effect without features; remove it")]
                )


@dataclass(frozen=True, slots=True)
class Fold:
    """One split of a data set, scaled with the statistics of its own training rows.

    Windows are start and stop rows [W, 2] of the bars, each inside one symbol, without its warm-up.
    """

    split: Split
    pipeline: FeaturePipeline
    features: ScaledFeatures
    """Row-aligned with the bars; NaN in rows that belong to no window of this fold."""
    train: IntArray
    validation: IntArray
    test: IntArray


@dataclass(frozen=True, slots=True)
class Dataset:
    """Bars and features that passed every check, and the ways to split them."""

    bars: Bars
    table: FeatureTable
    splits: tuple[Split, ...]
    scaling: PipelineConfig
    order: Literal["past_only", "disjoint"]
    """Whether a test may lie before or between its training rows."""
    leaks: LeakReport
    """What the leak guard looked at; its leaks, if any, are allowed by the configuration."""

    def fold(self, index: int = 0) -> Fold:
        """Fit the scaling on the training rows of split ``index`` and apply it to all its rows.

        Raises:
            DataError: If there is no such split, or one of its windows has no bar.
        """
        if not 0 <= index < len(self.splits):
            raise DataError(
                f"fold must be between 0 and {len(self.splits) - 1}; was {index}. The "
                "configuration's splits give no more."
            )
        split = self.splits[index]
        axis = time_axis(self.bars.time)
        windows = {role: time_windows(parts, axis) for role, parts in split.roles.items()}
        rows = {
            role: row_windows(self.bars, parts, self.table.warmup)
            for role, parts in windows.items()
        }
        for role, parts in windows.items():
            if parts and not len(rows[role]):
                raise DataError(
                    f"the {role} window of split {split.name} has no bar after a warm-up of "
                    f"{self.table.warmup} bars. Use shorter features, other windows or more data."
                )
        pipeline = FeaturePipeline.fit(self.table, self.bars, windows["train"], self.scaling)
        every = windows["train"] + windows["validation"] + windows["test"]
        scaled = pipeline.transform(self.table, self.bars, every, order=self.order)
        return Fold(
            split=split,
            pipeline=pipeline,
            features=scaled,
            train=rows["train"],
            validation=rows["validation"],
            test=rows["test"],
        )


def prepare(data: DataConfig, cache: Path = USUAL_CACHE) -> Dataset:
    """Load the bars, refuse leaks, compute the features and split.

    Args:
        data: The configuration.
        cache: Folder where downloads keep what they fetched.

    Raises:
        DataError: If the bars, a feature or a split is refused.
        ConfigError: If features are declared twice or ``leak_check.allow`` has no effect.
    """
    bars = load_source(data.source, cache.expanduser())
    features = build_features(data.features)
    leaks = LeakReport((), (), ())
    if features:
        leaks = refuse_leaks(features, bars, data.leak_check)
    table = compute_features(bars, features)
    axis = time_axis(bars.time)
    splits = data.splits.split(axis)
    for split in splits:
        rows = {
            role: _row_numbers(row_windows(bars, time_windows(parts, axis)))
            for role, parts in split.roles.items()
        }
        refuse_shared_timestamps(bars, rows)
    both_sides = isinstance(data.splits, CombinatorialPurged)
    order: Literal["past_only", "disjoint"] = "disjoint" if both_sides else "past_only"
    return Dataset(bars, table, splits, data.pipeline, order, leaks)


def _row_numbers(windows: IntArray) -> IntArray:
    parts = [np.arange(start, stop) for start, stop in windows]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
