"""Features of all symbols in one table, row-aligned with the bars."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from quantail.errors import ConfigError, ConfigProblem, DataError
from quantail.market.features.columns import Feature, columns_of
from quantail.types import BoolArray, FloatArray

if TYPE_CHECKING:
    from quantail.market.bars import Bars


class BuildsFeature(Protocol):
    """What can become a feature: a configuration, or a function under ``@feature``."""

    def build(self) -> Feature:
        """Return the feature."""
        ...


@dataclass(frozen=True, slots=True)
class FeatureTable:
    """Feature values as computed, not yet scaled.

    A value is a finite number exactly where it is valid, and NaN elsewhere, so that whoever forgets
    the flags gets a NaN and not a plausible number.
    """

    names: tuple[str, ...]
    """Column names [F]."""
    values: FloatArray
    """Values [R, F], row-aligned with the bars; read-only."""
    valid: BoolArray
    """True where there is a value [R, F]; read-only."""
    warmup: int
    """Rows at the start of each symbol in which some column has no value by construction."""

    def __post_init__(self) -> None:
        shape = (len(self.values), len(self.names))
        if self.values.shape != shape or self.valid.shape != shape:
            raise DataError(
                f"FeatureTable needs values and valid of shape [rows, {len(self.names)}]; they "
                f"were {self.values.shape} and {self.valid.shape}."
            )
        if not np.array_equal(np.isfinite(self.values), self.valid):
            raise DataError(
                "FeatureTable needs a finite value exactly where valid is true, and NaN elsewhere."
            )
        for array in (self.values, self.valid):
            array.setflags(write=False)

    @property
    def n_features(self) -> int:
        """Number of columns, ``F``."""
        return len(self.names)


def build_features(parts: Sequence[BuildsFeature | Feature]) -> tuple[Feature, ...]:
    """Build every part and refuse two columns of one name.

    Args:
        parts: Configurations, functions under ``@feature``, or features already built.
    """
    features = tuple(part if isinstance(part, Feature) else part.build() for part in parts)
    counts = Counter(name for feature in features for name in feature.names)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise ConfigError(
            [
                ConfigProblem(
                    "features",
                    f"must have different column names; given more than once: {', '.join(twice)}. "
                    "Remove one, or rename a custom feature with names",
                )
            ]
        )
    return features


def compute_features(bars: Bars, features: Sequence[Feature]) -> FeatureTable:
    """Compute every feature on every symbol, each symbol on its own.

    Args:
        bars: Bars [R].
        features: What :func:`build_features` returns.

    Returns:
        Table [R, F] with columns in the order of ``features``; F = 0 without features.
    """
    names = tuple(name for feature in features for name in feature.names)
    values = np.full((bars.n_bars, len(names)), np.nan)
    for symbol in bars.symbols:
        columns = columns_of(bars, symbol)
        block = values[bars.rows(symbol)]
        first = 0
        for feature in features:
            last = first + len(feature.names)
            block[:, first:last] = feature(columns)
            first = last
    warmup = max((feature.warmup for feature in features), default=0)
    return FeatureTable(names, values, np.isfinite(values), warmup)
