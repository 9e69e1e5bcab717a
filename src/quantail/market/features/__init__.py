"""Features: pure functions from the bars of a symbol to columns, none of which may look ahead.

The union :data:`FeatureConfig` is the register: a new feature is a new file with a configuration
and one word here. Every member is put through the leak guard by the contract test.
"""

from typing import Annotated, TypeAlias

from quantail.config_class import BY_KIND
from quantail.market.features.clock import TimeOfDay, TimeOfWeek, TimeSinceGap
from quantail.market.features.columns import Columns, Feature, columns_of
from quantail.market.features.custom import CustomFeature, UserFeature, feature, load_feature
from quantail.market.features.momentum import Macd, Rsi
from quantail.market.features.quotes import QuotedSpread
from quantail.market.features.ranges import Atr, BollingerPosition
from quantail.market.features.returns import LogReturn
from quantail.market.features.table import (
    BuildsFeature,
    FeatureTable,
    build_features,
    compute_features,
)
from quantail.market.features.volatility import (
    ParkinsonVolatility,
    RealizedVolatility,
    YangZhangVolatility,
)
from quantail.market.features.volume import OnBalanceVolume, VolumeZScore

FeatureConfig: TypeAlias = Annotated[
    LogReturn
    | RealizedVolatility
    | ParkinsonVolatility
    | YangZhangVolatility
    | Rsi
    | Macd
    | Atr
    | BollingerPosition
    | OnBalanceVolume
    | VolumeZScore
    | QuotedSpread
    | TimeOfDay
    | TimeOfWeek
    | TimeSinceGap
    | CustomFeature,
    BY_KIND,
]

__all__ = [
    "Atr",
    "BollingerPosition",
    "BuildsFeature",
    "Columns",
    "CustomFeature",
    "Feature",
    "FeatureConfig",
    "FeatureTable",
    "LogReturn",
    "Macd",
    "OnBalanceVolume",
    "ParkinsonVolatility",
    "QuotedSpread",
    "RealizedVolatility",
    "Rsi",
    "TimeOfDay",
    "TimeOfWeek",
    "TimeSinceGap",
    "UserFeature",
    "VolumeZScore",
    "YangZhangVolatility",
    "build_features",
    "columns_of",
    "compute_features",
    "feature",
    "load_feature",
]
