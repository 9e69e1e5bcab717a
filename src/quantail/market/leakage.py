"""The leak guard: a feature at bar t must not know anything about later bars.

Five tests, on the bars the user will train on:

- *repeat*: the same bars give the same values;
- *truncation*: the values up to bar t are the same when the bars after t are removed;
- *perturbation*: the values up to bar t are the same when the bars after t are altered;
- *label shift*: no value is nearly the return of a bar to come. This one also sees features that
  read the future from elsewhere (a file, a global), which the others cannot. Built-in features
  cannot read elsewhere and are spared: in a predictable market they do foretell returns;
- *shared timestamps*: no moment belongs to two sides of a split.

Where the bars are cut is told in :mod:`quantail.market.probes`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
import pandas as pd
from annotated_types import Ge, Gt, Lt

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem, DataError
from quantail.market.features.columns import Columns, Feature, columns_of
from quantail.market.features.returns import log_return
from quantail.market.perturbation import perturbed, spliced
from quantail.market.probes import LONGEST, Probe, probes, suspicious_probes
from quantail.market.segments import iso
from quantail.types import BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    from quantail.market.bars import Bars

# Rounding may differ with the length of an array; a leak is many orders of magnitude larger. Shares
# of the column's spread, not of its values: a large level must not hide a leak.
_TOLERANCE: Final = 1e-9
_ROUNDING: Final = 8.0 * float(np.finfo(np.float64).eps)
_LEADS: Final = 5
"""Bars ahead that the label test looks at."""
_FEWEST: Final = 32
"""Bars after the warm-up without which nothing can be said."""


@config
class LeakCheck:
    """How hard to look for leaks, and which columns may leak all the same."""

    dense_cuts: Annotated[int, Ge(32)] = 128
    """Bars in a stretch where every bar is a cut."""
    sampled_cuts: Annotated[int, Ge(1)] = 12
    """Cuts spread over the whole series."""
    max_symbols: Annotated[int, Ge(1)] = 3
    """Symbols looked at closely, the longest first; of the others, suspicious bars alone."""
    label_correlation: Annotated[float, Gt(0), Lt(1)] = 0.5
    """Rank correlation with the return of a later bar above which a column is refused."""
    seed: Annotated[int, Ge(0)] = 0
    """Of the sampled cuts and the altered bars."""
    allow: tuple[str, ...] = ()
    """Columns that are known to leak and are to be trained on nevertheless, for example an oracle
    in a control experiment; a column that does not leak is refused here."""


@dataclass(frozen=True, slots=True)
class Leak:
    """A column that knows the future, and the first bar at which that shows."""

    column: str
    test: str
    symbol: str
    time: np.datetime64
    row: int
    """Row of the bar within its symbol."""
    detail: str

    def __str__(self) -> str:
        return (
            f"column {self.column!r} fails the {self.test} test, first at bar {self.row} of symbol "
            f"{self.symbol!r} ({iso(self.time)}): {self.detail}"
        )


@dataclass(frozen=True, slots=True)
class LeakReport:
    """What was looked at and what was found."""

    columns: tuple[str, ...]
    symbols: tuple[str, ...]
    """Those looked at closely."""
    leaks: tuple[Leak, ...]
    """At most one for each column: the earliest."""


# --- the verdict ---------------------------------------------------------------------------------


def refuse_leaks(
    features: Sequence[Feature], bars: Bars, settings: LeakCheck | None = None
) -> LeakReport:
    """Run the leak guard and raise if a column leaks that is not allowed to.

    Raises:
        DataError: Naming every leaking column and its first offending bar.
        ConfigError: If ``allow`` names a column that is not there or does not leak.
    """
    settings = settings or LeakCheck()
    report = find_leaks(features, bars, settings)
    leaking = {leak.column for leak in report.leaks}
    idle = [name for name in settings.allow if name not in leaking]
    if idle:
        raise ConfigError(
            [
                ConfigProblem(
                    "leak_check.allow",
                    f"must name columns that leak; {', '.join(map(repr, idle))} "
                    f"{'does' if len(idle) == 1 else 'do'} not. Remove it",
                )
            ]
        )
    refused = [leak for leak in report.leaks if leak.column not in settings.allow]
    if refused:
        lines = "".join(f"\n  {leak}" for leak in refused)
        raise DataError(
            f"{len(refused)} feature column(s) use information from the future:{lines}\n"
            "Compute row t from bars up to t alone (no shift(-n), no centered window, no statistic "
            "of the whole sample, no fill from later rows), or name the column in "
            "leak_check.allow if the leak is intended."
        )
    return report


def find_leaks(
    features: Sequence[Feature], bars: Bars, settings: LeakCheck | None = None
) -> LeakReport:
    """Run the leak guard on every column and report the earliest leak of each.

    Raises:
        DataError: If no symbol has enough bars to say anything.
    """
    settings = settings or LeakCheck()
    names = tuple(name for feature in features for name in feature.names)
    longest = max((feature.warmup for feature in features), default=0)
    sizes = np.diff(bars.offsets)
    ranked = sorted(range(bars.n_symbols), key=lambda s: -int(sizes[s]))[: settings.max_symbols]
    chosen = [bars.symbols[s] for s in sorted(ranked) if sizes[s] >= longest + _FEWEST]
    if not chosen:
        raise DataError(
            f"the leak guard needs a symbol with at least {longest + _FEWEST} bars (warm-up "
            f"{longest} and {_FEWEST} more); the longest has {int(sizes.max())}. Use more data or "
            "shorter windows."
        )
    leaks: dict[str, Leak] = {}
    for symbol, feature in itertools.product(chosen, features):
        for leak in _leaks_of(feature, columns_of(bars, symbol), settings):
            leaks.setdefault(leak.column, leak)
    others = [symbol for symbol in bars.symbols if symbol not in chosen]
    for symbol, feature in itertools.product(others, features):
        if all(name in leaks for name in feature.names):
            continue
        columns = columns_of(bars, symbol)
        places = suspicious_probes(feature, columns, start=0, seed=settings.seed)
        for leak in _earliest(feature, places, settings.seed).values():
            leaks.setdefault(leak.column, leak)
    ordered = tuple(leaks[name] for name in names if name in leaks)
    return LeakReport(names, tuple(chosen), ordered)


def refuse_shared_timestamps(bars: Bars, parts: Mapping[str, IntArray]) -> None:
    """Refuse a split in which one moment lies on two sides, in whichever symbols.

    Args:
        bars: Bars [R].
        parts: Row numbers [n] of each side, by name.

    Raises:
        DataError: Naming the two sides, how many moments they share, and the first bar.
    """
    for (first, rows), (second, others) in itertools.combinations(parts.items(), 2):
        shared = np.intersect1d(bars.time[rows], bars.time[others])
        if not shared.size:
            continue
        row = others[bars.time[others] == shared[0]][0]
        symbol = bars.symbols[int(np.searchsorted(bars.offsets, row, side="right")) - 1]
        raise DataError(
            f"{first} and {second} share {shared.size} bar time(s), the first at {iso(shared[0])} "
            f"(symbol {symbol!r} in {second}): what is learned in one is tested in the other. "
            "Split all symbols at the same moments, without overlap."
        )


# --- the tests -----------------------------------------------------------------------------------


def _leaks_of(feature: Feature, columns: Columns, settings: LeakCheck) -> list[Leak]:
    """The earliest leak of each column of one feature on one symbol."""
    places = probes(
        feature,
        columns,
        dense=settings.dense_cuts,
        sampled=settings.sampled_cuts,
        seed=settings.seed,
    )
    found = _earliest(feature, places, settings.seed)
    stretch = columns.rows(0, LONGEST)
    values = feature(stretch)
    suspects = [
        _label_leak(name, stretch, values[:, k], settings.label_correlation)
        for k, name in enumerate(feature.names)
        if k not in found and feature.custom
    ]
    return [*found.values(), *(leak for leak in suspects if leak is not None)]


def _earliest(feature: Feature, places: Iterable[Probe], seed: int) -> dict[int, Leak]:
    """The earliest leak of each column, by its number, at the given places of one symbol."""
    found: dict[int, Leak] = {}
    for place, probe in enumerate(places):
        for k, leak in _cut_leaks(feature, probe, seed):
            if k not in found or leak.row < found[k].row:
                found[k] = leak
        # At the start of the symbol every bar was a cut, so no other place can have an earlier one.
        if place == 0 and len(found) == len(feature.names):
            break
        if place > 0:
            found |= _pursued(feature, probe, found, seed)
    return found


def _pursued(
    feature: Feature, probe: Probe, found: Mapping[int, Leak], seed: int
) -> dict[int, Leak]:
    """Earlier bars of the same stretch for the leaks that were first seen in it.

    The first offending row is the smallest cut that shows the leak. Cuts are tried at doubling
    distances before the earliest row known, the farthest first, until none of them shows it.
    """
    better = dict(found)
    for k in found:
        while better[k].test != "repeat":
            row = better[k].row - probe.offset
            if not feature.warmup < row < probe.columns.n_bars:
                break
            back = row - 2 ** np.arange(row.bit_length())
            cuts = np.unique(np.maximum(back, feature.warmup))
            shown = dict(_cut_leaks(feature, Probe(probe.columns, probe.offset, cuts), seed))
            if k not in shown or shown[k].row >= better[k].row:
                break
            better[k] = shown[k]
    return better


def _cut_leaks(feature: Feature, probe: Probe, seed: int) -> list[tuple[int, Leak]]:
    """Truncation and perturbation at every cut of a probe; stops once every column has leaked.

    Cuts rise, and a row that depends on a bar beyond a cut shows at every cut between the two, so
    the first cut that shows a column's leak also shows its first offending row.
    """
    columns = probe.columns
    reference = feature(columns)
    noise = perturbed(columns, np.random.default_rng(seed))
    found: dict[int, Leak] = {}

    def compare(values: FloatArray, n_rows: int, test: str, change: str) -> None:
        for k, row in _first_differences(reference[:n_rows], values[:n_rows], reference):
            was, now = reference[row, k], values[row, k]
            detail = f"its value goes from {was:.6g} to {now:.6g} when {change}"
            if k not in found:
                found[k] = _leak(feature.names[k], test, probe, row, detail)

    compare(feature(columns), columns.n_bars, "repeat", "it is computed again on the same bars")
    for cut in probe.cuts:
        if len(found) == len(feature.names):
            break
        known = int(cut) + 1
        shorter = feature(columns.rows(0, known))
        compare(shorter, known, "truncation", "the later bars are removed")
        altered = feature(spliced(columns, noise, known))
        compare(altered, known, "perturbation", "the later bars are altered")
    return list(found.items())


def _first_differences(
    expected: FloatArray, values: FloatArray, sample: FloatArray
) -> list[tuple[int, int]]:
    """Column and first row where two tables [T, k] differ by more than rounding."""
    missing = np.isnan(expected)
    differs: BoolArray = missing != np.isnan(values)
    both = ~missing & ~differs
    a, b = np.where(both, expected, 0.0), np.where(both, values, 0.0)
    if np.array_equal(a, b) and not differs.any():
        return []
    spread = np.std(sample, axis=0, where=~np.isnan(sample)) if both.any() else 0.0
    rounding = _ROUNDING * np.abs(a) + _TOLERANCE * np.nan_to_num(spread)
    differs |= np.abs(a - b) > rounding
    return [(int(k), int(np.argmax(differs[:, k]))) for k in np.flatnonzero(differs.any(axis=0))]


def _label_leak(name: str, columns: Columns, values: FloatArray, limit: float) -> Leak | None:
    """The label-shift test of one column [T]: rank correlation with returns of bars to come."""
    returns = log_return(columns.close, 1)
    for lead in range(1, _LEADS + 1):
        known, later = values[:-lead], returns[lead:]
        rows = np.flatnonzero(np.isfinite(known) & np.isfinite(later))
        if rows.size < 2 * _FEWEST:
            return None
        strength = _rank_correlation(known[rows], later[rows])
        # Chance alone spreads a rank correlation by about 1/√n.
        if abs(strength) > max(limit, 4.0 / np.sqrt(rows.size)):
            detail = (
                f"its rank correlation with the return {lead} bar(s) later is {strength:.3f} over "
                f"{rows.size} bars; the limit is {limit:g}. It reads the future from elsewhere, "
                "or the market is that predictable; raise leak_check.label_correlation then"
            )
            probe = Probe(columns, 0, np.empty(0, dtype=np.int64))
            return _leak(name, "label-shift", probe, int(rows[0]), detail)
    return None


def _rank_correlation(a: FloatArray, b: FloatArray) -> float:
    """Spearman's correlation of two series [n]; 0 when one of them is constant."""
    x, y = (pd.Series(series).rank().to_numpy() for series in (a, b))
    x, y = x - x.mean(), y - y.mean()
    size = np.sqrt((x @ x) * (y @ y))
    return float(x @ y / size) if size > 0.0 else 0.0


def _leak(name: str, test: str, probe: Probe, row: int, detail: str) -> Leak:
    columns = probe.columns
    return Leak(name, test, columns.symbol, columns.time[row], probe.offset + row, detail)
