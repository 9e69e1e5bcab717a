"""Positions on the time axis: pure index arithmetic, no configuration.

Positions count the distinct bar times of all symbols together (the *axis*), so a moment belongs to
one side of a split for every symbol at once: training on one symbol never sees the hour in which
another one is tested.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd

from quantail.errors import DataError
from quantail.types import BoolArray, IntArray, TimeArray

if TYPE_CHECKING:
    from quantail.market.bars import Bars

_TICK: Final = np.timedelta64(1, "ns")


def iso(moment: np.datetime64) -> str:
    """An instant as people write it: ISO 8601 with its zone, no more digits than it needs."""
    return pd.Timestamp(moment).tz_localize("UTC").isoformat()


@dataclass(frozen=True, slots=True)
class Segment:
    """Positions ``start:stop`` on the axis, half-open and not empty."""

    start: int
    stop: int

    @property
    def indices(self) -> IntArray:
        """The positions themselves."""
        return np.arange(self.start, self.stop)


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """Instants ``start <= t < stop``, UTC."""

    start: np.datetime64
    stop: np.datetime64

    def covers(self, time: TimeArray) -> BoolArray:
        """True for the instants inside; shape of ``time``."""
        return np.asarray((time >= self.start) & (time < self.stop))

    def __str__(self) -> str:
        return f"{iso(self.start)} to {iso(self.stop)}"


@dataclass(frozen=True, slots=True)
class Split:
    """One train / validation / test partition of the axis; validation may be empty."""

    name: str
    train: tuple[Segment, ...]
    validation: tuple[Segment, ...]
    test: tuple[Segment, ...]

    @property
    def roles(self) -> dict[str, tuple[Segment, ...]]:
        """The three parts by name."""
        return {"train": self.train, "validation": self.validation, "test": self.test}


def walk_forward(
    n: int,
    *,
    train_size: int,
    test_size: int,
    validation_size: int = 0,
    gap: int = 0,
    anchored: bool = False,
    keep_short_test: bool = False,
) -> tuple[Split, ...]:
    """Split ``n`` positions: train, gap, (validation, gap,) test; then move on by ``test_size``.

    Raises:
        DataError: If not even one split fits.
    """
    lead = train_size + gap + (validation_size + gap if validation_size else 0)
    starts = range(0, n - lead, test_size)
    splits = []
    for k, start in enumerate(starts):
        test = start + lead
        if test + test_size > n and not keep_short_test:
            break
        train = Segment(0 if anchored else start, start + train_size)
        validation: tuple[Segment, ...] = ()
        if validation_size:
            validation = (Segment(train.stop + gap, train.stop + gap + validation_size),)
        last = Segment(test, min(test + test_size, n))
        splits.append(Split(f"walk_forward_{k}", (train,), validation, (last,)))
    if not splits:
        raise DataError(
            f"walk-forward needs at least {lead + test_size} bars (train {train_size}, validation "
            f"{validation_size}, test {test_size}, gaps of {gap}); the data has {n} distinct bar "
            "times. Use smaller windows or more data."
        )
    return tuple(splits)


def combinatorial_purged(
    n: int, *, n_folds: int, n_test_folds: int, purge: int = 0, embargo: int = 0
) -> tuple[Split, ...]:
    """Split ``n`` positions once for each combination of test folds.

    Training leaves out ``purge`` positions before a test fold and ``purge + embargo`` after it.

    Raises:
        DataError: If a fold is too short for its purge and embargo.

    References:
        López de Prado (2018), Advances in Financial Machine Learning, chapters 7.4 and 12.
    """
    size = n // n_folds
    if size <= purge + embargo:
        raise DataError(
            f"combinatorial_purged: a fold must be longer than purge + embargo ({purge + embargo} "
            f"bars); {n} distinct bar times in {n_folds} folds give {size}. Use fewer folds, a "
            "shorter purge or more data."
        )
    bounds = [(k * size, (k + 1) * size if k < n_folds - 1 else n) for k in range(n_folds)]
    splits = []
    for chosen in itertools.combinations(range(n_folds), n_test_folds):
        free = np.ones(n, dtype=bool)
        for fold in chosen:
            start, stop = bounds[fold]
            free[max(start - purge, 0) : stop + purge + embargo] = False
        if not free.any():
            raise DataError(
                f"combinatorial_purged: purge {purge} and embargo {embargo} leave no training bar "
                f"when folds {list(chosen)} are tested. Use smaller ones or fewer test folds."
            )
        name = "combinatorial_" + "_".join(str(fold) for fold in chosen)
        test = tuple(Segment(*bounds[fold]) for fold in chosen)
        splits.append(Split(name, _runs(free), (), test))
    return tuple(splits)


def time_axis(time: TimeArray) -> TimeArray:
    """The distinct bar times of all symbols, oldest first."""
    return np.unique(time)


def time_windows(segments: tuple[Segment, ...], axis: TimeArray) -> tuple[TimeWindow, ...]:
    """The stretches of time of ``segments``; each ends where the next position begins."""
    ends = np.append(axis, axis[-1] + _TICK)
    return tuple(TimeWindow(axis[part.start], ends[part.stop]) for part in segments)


def row_windows(bars: Bars, windows: tuple[TimeWindow, ...], warmup: int = 0) -> IntArray:
    """Rows of ``bars`` in each window, symbol by symbol, without the warm-up of a symbol.

    Args:
        bars: Bars [R].
        windows: Stretches of time.
        warmup: Rows at the start of each symbol that may not be used.

    Returns:
        Start and stop rows [W, 2], half-open, each inside one symbol and not empty.
    """
    found = []
    for window in windows:
        for symbol in bars.symbols:
            rows = bars.rows(symbol)
            inside = np.searchsorted(bars.time[rows], np.array([window.start, window.stop]))
            start = rows.start + max(int(inside[0]), warmup)
            stop = rows.start + int(inside[1])
            if start < stop:
                found.append((start, stop))
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def _runs(mask: BoolArray) -> tuple[Segment, ...]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False]))))
    return tuple(Segment(int(a), int(b)) for a, b in edges.reshape(-1, 2))
