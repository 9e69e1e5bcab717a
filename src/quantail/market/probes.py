"""Where the leak guard cuts: stretches of a symbol and the bars after which the future begins."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from quantail.market.features.columns import Columns, Feature
from quantail.types import BoolArray, FloatArray, IntArray

LONGEST: Final = 20_000
"""Bars of a symbol that are looked at closely; later on, suspicious bars alone."""
_PER_SUSPICION: Final = 16
"""Cuts for each kind of suspicious bar."""
_PER_FAR_SUSPICION: Final = 2
"""The same where nothing else is looked at."""
_AROUND: Final = 64
"""Bars around a suspicious bar there."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A stretch of one symbol and the bars at which it is cut."""

    columns: Columns
    offset: int
    """Row of the stretch's first bar within the symbol."""
    cuts: IntArray
    """Rows of the stretch after which the future begins, rising."""


def probes(
    feature: Feature, columns: Columns, *, dense: int, sampled: int, seed: int
) -> Iterator[Probe]:
    """Stretches to look at.

    First the start of the symbol with every cut, so that the first offending bar is known; then
    the whole with suspicious and sampled cuts, for rare leaks and long reaches; then a stretch
    elsewhere with every cut; then suspicious bars after the part that counts as the whole.

    Args:
        feature: What is looked at.
        columns: Bars [T] of one symbol.
        dense: Bars after the warm-up of a stretch where every bar is a cut.
        sampled: Cuts drawn over the whole.
        seed: Of the draws.
    """
    rng = np.random.default_rng(seed)
    warmup, n = feature.warmup, columns.n_bars
    length = min(n, warmup + dense)
    yield Probe(columns.rows(0, length), 0, np.arange(warmup, length - 1))
    if n == length:
        return
    whole = columns.rows(0, max(LONGEST, 2 * length))
    cuts = [rng.integers(warmup, whole.n_bars - 1, size=sampled)]
    for suspicion in _suspicions(whole, feature(whole)):
        rows = warmup + np.flatnonzero(suspicion[warmup:-1])
        some = rng.permutation(rows)[: _PER_SUSPICION // 2]
        cuts += [rows[: _PER_SUSPICION // 2], some]
    yield Probe(whole, 0, np.unique(np.concatenate(cuts)))
    start = int(rng.integers(1, n - length + 1))
    yield Probe(columns.rows(start, start + length), start, np.arange(warmup, length - 1))
    if n > whole.n_bars:
        yield from suspicious_probes(feature, columns, start=whole.n_bars, seed=seed)


def suspicious_probes(
    feature: Feature, columns: Columns, *, start: int, seed: int
) -> Iterator[Probe]:
    """Short stretches around a few suspicious bars of each kind from row ``start`` on.

    They are cheap enough for every symbol and for rows that are not looked at otherwise.
    """
    warmup, n = feature.warmup, columns.n_bars
    first = max(start, warmup)
    if n < first + 2:
        return
    rng = np.random.default_rng(seed)
    some: list[IntArray] = []
    for suspicion in _suspicions(columns, feature(columns)):
        rows = first + np.flatnonzero(suspicion[first:-1])
        some += [rows[:1], rng.permutation(rows)[: _PER_FAR_SUSPICION - 1]]
    for row in np.unique(np.concatenate(some)):
        low = max(0, int(row) - warmup - _AROUND)
        stretch = columns.rows(low, int(row) + _AROUND)
        yield Probe(stretch, low, np.array([row - low]))


def _suspicions(columns: Columns, values: FloatArray) -> list[BoolArray]:
    """Bars [T] at which a rare leak is likely to show, one mask for each reason.

    Holes filled from later bars repeat the next value or lie on a line with it, and holes are where
    nothing was traded or time jumps.
    """
    repeats = np.zeros(columns.n_bars, dtype=bool)
    repeats[:-1] = (values[:-1] == values[1:]).any(axis=1)
    lines = np.zeros(columns.n_bars, dtype=bool)
    bend = np.abs(values[:-2] - 2.0 * values[1:-1] + values[2:])
    lines[1:-1] = (bend <= 1e-12 * np.abs(values[1:-1])).any(axis=1)
    pause = np.zeros(columns.n_bars, dtype=bool)
    pause[:-1] = np.diff(columns.time) > columns.interval
    idle = (columns.volume == 0.0) | (columns.high == columns.low)
    if columns.no_trade is not None:
        idle |= columns.no_trade
    return [repeats, lines & ~repeats, pause, idle]
