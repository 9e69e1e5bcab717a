"""Scaling of features with statistics of training rows alone.

Statistics carry the window they were fitted on, and rows that lie before or beside that window are
refused: a test scaled with its own future is the quietest of all leaks.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import numpy as np
from annotated_types import Ge, Lt

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem, DataError
from quantail.market.features.table import FeatureTable
from quantail.market.segments import TimeWindow, iso, row_windows
from quantail.types import BoolArray, Float32Array, FloatArray

if TYPE_CHECKING:
    from quantail.market.bars import Bars

_FORMAT: Final = 1
# Quartiles of a normal law are 1.349 standard deviations apart.
_QUARTILES_PER_STD: Final = 1.3489795003921634
_STATISTICS: Final = ("low", "high", "center", "scale")


@config
class PipelineConfig:
    """How features become what a network reads."""

    scale: Literal["robust", "standard", "none"] = "robust"
    """``robust``: (x - median) / (quartile distance / 1.349); ``standard``: (x - mean) / std."""
    winsorize: Annotated[float, Ge(0), Lt(0.5)] = 0.01
    """Share of training rows in each tail that is pulled in to the quantile there; later rows are
    limited to the same bounds; 0 for none."""
    missing: Literal["refuse", "flag"] = "refuse"
    """Values missing after the warm-up. ``refuse``: an error with the column and the bar;
    ``flag``: 0 (the center), and one more column ``<name>_valid`` for every feature."""

    def check(self) -> None:
        """Refuse bounds that would remove the quartiles they are scaled by."""
        if self.scale == "robust" and self.winsorize >= 0.25:
            raise ConfigError(
                [
                    ConfigProblem(
                        "winsorize",
                        f"must be less than 0.25 with scale: robust, which needs the quartiles; "
                        f"was {self.winsorize}",
                    )
                ]
            )


@dataclass(frozen=True, slots=True)
class ScaledFeatures:
    """What a network reads. Rows outside the windows asked for are NaN, so their use is loud."""

    names: tuple[str, ...]
    values: Float32Array
    """Values [R, F], row-aligned with the bars."""


@dataclass(frozen=True, slots=True)
class FeaturePipeline:
    """Fitted scaling: ``(clip(x, low, high) - center) / scale`` per column."""

    config: PipelineConfig
    names: tuple[str, ...]
    fitted_on: tuple[TimeWindow, ...]
    """Windows of the training rows, oldest first."""
    n_rows: int
    """Training rows, symbols together, without warm-up."""
    data: str
    """Fingerprint of the bars."""
    low: FloatArray
    high: FloatArray
    center: FloatArray
    scale: FloatArray

    @classmethod
    def fit(
        cls,
        table: FeatureTable,
        bars: Bars,
        windows: tuple[TimeWindow, ...],
        config: PipelineConfig | None = None,
    ) -> FeaturePipeline:
        """Measure the rows of ``windows``, and nothing else.

        Args:
            table: Features [R, F].
            bars: Bars [R] they were computed from.
            windows: Training windows.
            config: How to scale; None takes the defaults.

        Raises:
            DataError: If a column is constant, or has fewer than two values, in these rows, or
                table and bars differ in length.
        """
        settings = config or PipelineConfig()
        _refuse_other_length(table, bars)
        rows = _rows(bars, windows, table.warmup)
        if not rows.any():
            raise DataError(
                f"FeaturePipeline.fit: no bar lies in {_listed(windows)} after a warm-up of "
                f"{table.warmup} bars. Use a longer training window."
            )
        fitted = [
            _column_statistics(table.values[rows & table.valid[:, k], k], name, windows, settings)
            for k, name in enumerate(table.names)
        ]
        low, high, center, scale = np.array(fitted, dtype=np.float64).reshape(-1, 4).T.copy()
        return cls(
            config=settings,
            names=table.names,
            fitted_on=tuple(sorted(windows, key=lambda window: window.start)),
            n_rows=int(rows.sum()),
            data=bars.fingerprint(),
            low=low,
            high=high,
            center=center,
            scale=scale,
        )

    def transform(
        self,
        table: FeatureTable,
        bars: Bars,
        windows: tuple[TimeWindow, ...],
        order: Literal["past_only", "disjoint"] = "past_only",
    ) -> ScaledFeatures:
        """Scale the rows of ``windows``.

        Args:
            table: Features [R, F] with the columns that were fitted.
            bars: Bars [R] they were computed from.
            windows: What to scale; each lies inside a training window or, as ``order`` demands,
                outside all of them.
            order: ``past_only`` takes windows after the end of all training; ``disjoint`` also
                those before or between, for cross-validation that trains on both sides.

        Raises:
            DataError: If the statistics know rows at or after a window, a value is missing, or
                table and bars differ in length.
        """
        if table.names != self.names:
            raise DataError(
                f"FeaturePipeline was fitted on columns {list(self.names)}; the table has "
                f"{list(table.names)}. Fit it again on these features."
            )
        if order not in ("past_only", "disjoint"):
            raise DataError(
                f"FeaturePipeline.transform: order must be 'past_only' or 'disjoint'; was {order!r}"
            )
        _refuse_other_length(table, bars)
        for window in windows:
            self._refuse_hindsight(window, order)
        rows = _rows(bars, windows, table.warmup)
        flag = self.config.missing == "flag"
        if not flag:
            _refuse_missing(table, bars, rows)
        n_columns = len(self.names) * (2 if flag else 1)
        values = np.full((len(table.values), n_columns), np.nan, dtype=np.float32)
        for k in range(len(self.names)):
            column = np.clip(table.values[rows, k], self.low[k], self.high[k])
            scaled = (column - self.center[k]) / self.scale[k]
            if flag:
                valid = table.valid[rows, k]
                values[rows, len(self.names) + k] = valid
                scaled = np.where(valid, scaled, 0.0)
            values[rows, k] = scaled
        values.setflags(write=False)
        flags = tuple(f"{name}_valid" for name in self.names) if flag else ()
        return ScaledFeatures(self.names + flags, values)

    def to_json(self) -> str:
        """The statistics, their columns and the windows they came from."""
        record: dict[str, Any] = {
            "format": _FORMAT,
            "config": dataclasses.asdict(self.config),
            "fitted_on": [[str(part.start), str(part.stop)] for part in self.fitted_on],
            "n_rows": self.n_rows,
            "data": self.data,
            "columns": {
                name: {key: _as_json(getattr(self, key)[k]) for key in _STATISTICS}
                for k, name in enumerate(self.names)
            },
        }
        return json.dumps(record, indent=2, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> FeaturePipeline:
        """Read back what :meth:`to_json` wrote; the result is equal to the last bit.

        Raises:
            DataError: If the text is something else.
        """
        try:
            record = json.loads(text)
            if record["format"] != _FORMAT:
                raise DataError(
                    f"feature statistics must have format {_FORMAT}; was {record['format']!r}. "
                    "Fit the pipeline again with this version."
                )
            columns = record["columns"]
            statistics = {
                key: np.array([_from_json(column[key], key) for column in columns.values()])
                for key in _STATISTICS
            }
            windows = tuple(
                TimeWindow(np.datetime64(start, "ns"), np.datetime64(stop, "ns"))
                for start, stop in record["fitted_on"]
            )
            _refuse_nonsense(windows, statistics)
            return cls(
                config=PipelineConfig(**record["config"]),
                names=tuple(columns),
                fitted_on=windows,
                n_rows=record["n_rows"],
                data=record["data"],
                **statistics,
            )
        except DataError:
            raise
        except (AttributeError, ConfigError, LookupError, TypeError, ValueError) as error:
            raise DataError(
                f"feature statistics cannot be read: {type(error).__name__}: {error}. Give the "
                "JSON that FeaturePipeline.to_json wrote."
            ) from error

    def _refuse_hindsight(self, window: TimeWindow, order: str) -> None:
        inside = any(
            part.start <= window.start and window.stop <= part.stop for part in self.fitted_on
        )
        if inside:
            return
        overlapping = any(
            part.start < window.stop and window.start < part.stop for part in self.fitted_on
        )
        later = window.start < max(part.stop for part in self.fitted_on)
        if overlapping or (later and order == "past_only"):
            raise DataError(
                f"FeaturePipeline: rows {window} must not be scaled with statistics fitted on rows "
                f"at or after their start ({_listed(self.fitted_on)}): the test would know its own "
                "future. Fit on a window that ends before these rows."
            )


def _column_statistics(
    values: FloatArray, name: str, windows: tuple[TimeWindow, ...], settings: PipelineConfig
) -> tuple[float, float, float, float]:
    """Bounds, center and scale of the valid training values [n] of one column."""
    if values.size < 2:
        raise DataError(
            f"feature {name!r} has {values.size} value(s) in the training rows "
            f"({_listed(windows)}); at least 2 are needed. Use a longer window, or remove it."
        )
    low, high = -np.inf, np.inf
    if settings.winsorize > 0.0:
        low, high = np.quantile(values, [settings.winsorize, 1.0 - settings.winsorize])
        values = np.clip(values, low, high)
    if settings.scale == "none":
        return low, high, 0.0, 1.0
    deviation = float(np.std(values))
    if values.max() == values.min():
        raise DataError(
            f"feature {name!r} is constant ({values[0]:g}) in the training rows "
            f"({_listed(windows)}) after winsorizing a share of {settings.winsorize:g} in each "
            "tail; it tells a network nothing. Remove it, set pipeline.winsorize: 0, or use other "
            "data."
        )
    if settings.scale == "standard":
        return low, high, float(np.mean(values)), deviation
    lower, median, upper = np.quantile(values, [0.25, 0.5, 0.75])
    # More than half of the rows may share one value (spreads, gaps): then the quartiles meet.
    spread = (upper - lower) / _QUARTILES_PER_STD if upper > lower else deviation
    return low, high, float(median), float(spread)


def _rows(bars: Bars, windows: tuple[TimeWindow, ...], warmup: int) -> BoolArray:
    mask = np.zeros(bars.n_bars, dtype=bool)
    for start, stop in row_windows(bars, windows, warmup):
        mask[start:stop] = True
    return mask


def _refuse_other_length(table: FeatureTable, bars: Bars) -> None:
    if len(table.values) != bars.n_bars:
        raise DataError(
            f"FeaturePipeline: the table has {len(table.values)} rows and the bars have "
            f"{bars.n_bars}; they must be as many. Give the bars that the features were computed "
            "from."
        )


def _refuse_missing(table: FeatureTable, bars: Bars, rows: BoolArray) -> None:
    for k, name in enumerate(table.names):
        absent = np.flatnonzero(rows & ~table.valid[:, k])
        if absent.size:
            first = int(absent[0])
            symbol = bars.symbols[int(np.searchsorted(bars.offsets, first, side="right")) - 1]
            raise DataError(
                f"feature {name!r} has no value at {absent.size} bar(s) after its warm-up, first "
                f"for symbol {symbol!r} at {iso(bars.time[first])}. Set pipeline.missing: flag to "
                "give the network a validity column, or remove the feature."
            )


def _refuse_nonsense(windows: tuple[TimeWindow, ...], statistics: dict[str, FloatArray]) -> None:
    """Refuse read-back windows or statistics [F] that no fit can have written."""
    if not windows or not all(window.start < window.stop for window in windows):
        raise ValueError("fitted_on must list windows [start, stop] with start < stop")
    if not np.isfinite(statistics["center"]).all():
        raise ValueError("center must be a finite number in every column")
    if not (np.isfinite(statistics["scale"]) & (statistics["scale"] > 0.0)).all():
        raise ValueError("scale must be finite and greater than 0 in every column")
    if not (statistics["low"] <= statistics["high"]).all():
        raise ValueError("low must not exceed high in any column")


def _listed(windows: tuple[TimeWindow, ...]) -> str:
    return ", ".join(str(window) for window in windows)


def _as_json(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _from_json(value: float | None, key: str) -> float:
    if value is None:  # JSON has no infinity; only the bounds can be open
        return -np.inf if key == "low" else np.inf
    return float(value)
