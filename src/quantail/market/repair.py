"""Repairs that the user asks for, each one logged; nothing is repaired by default.

Repairs run on the table before it becomes :class:`~quantail.market.bars.Bars`, in a fixed order:
drop bad rows, sort, drop duplicates, apply splits, fill gaps. What no repair touches is refused by
the constructor of the bars as ever.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pandas as pd

from quantail.config_class import config
from quantail.market.calendars import CalendarConfig
from quantail.market.checks import (
    PRICES,
    DataChecks,
    SymbolRows,
    bad_value,
    outside_range,
    repeated,
    split_ratios,
)
from quantail.types import BoolArray, TimeArray

_LOG: Final = logging.getLogger(__name__)
_SHOWN: Final = 3
_VALUES: Final = (*PRICES, "volume", "spread", "funding", "adjusted_close")


@config
class Repair:
    """What may be done to faulty data; every default is to do nothing."""

    bad_rows: Literal["refuse", "drop"] = "refuse"
    """Rows without a time, with an impossible value, or that break low <= open, close <= high."""
    sort: bool = False
    """Sort rows by symbol (in order of appearance) and time."""
    duplicates: Literal["refuse", "first", "last", "equal"] = "refuse"
    """Bars of one time: keep the first, the last, or drop only those equal in every column."""
    splits: Literal["refuse", "apply"] = "refuse"
    """Divide the prices before an unadjusted split by its ratio, multiply the volume by it."""
    gaps: Literal["refuse", "fill"] = "refuse"
    """Fill missing bars with flat ones at the close before, volume 0, marked no_trade."""


NO_REPAIR: Final = Repair()


@dataclass(frozen=True, slots=True)
class RepairAction:
    """One thing that was done to one symbol."""

    symbol: str
    action: str
    count: int
    """Rows touched."""
    first_times: tuple[str, ...]
    """Up to three of their times."""

    def __str__(self) -> str:
        when = ", ".join(self.first_times)
        return f"{self.symbol}: {self.action}, {self.count} row(s), first at {when}"


@dataclass(frozen=True, slots=True)
class _Context:
    interval: np.timedelta64
    calendar: CalendarConfig
    checks: DataChecks
    repair: Repair


def repair_frame(
    frame: pd.DataFrame,
    interval: np.timedelta64,
    calendar: CalendarConfig,
    checks: DataChecks,
    repair: Repair,
) -> tuple[pd.DataFrame, tuple[RepairAction, ...]]:
    """Apply the repairs that are switched on.

    Args:
        frame: Table with symbol, time (UTC without a zone), prices, volume and optional columns.
        interval: Length of a bar.
        calendar: When the market is open; decides which bars are missing.
        checks: Moves declared real are not taken for splits.
        repair: What may be done.

    Returns:
        The repaired table and every action with its count, also written to the log.
    """
    if repair == NO_REPAIR or frame.empty:
        return frame, ()
    context = _Context(interval, calendar, checks, repair)
    actions: list[RepairAction] = []
    parts = []
    for symbol, rows in _groups(frame, repair.sort, actions):
        part = rows
        for step in _STEPS:
            part, done = step(symbol, part, context)
            actions += done
        parts.append(part)
    for action in actions:
        _LOG.warning("repaired %s", action)
    result = pd.concat(parts, ignore_index=True)
    return result, tuple(actions)


def _groups(
    frame: pd.DataFrame, gather: bool, actions: list[RepairAction]
) -> list[tuple[str, pd.DataFrame]]:
    """Split the table by symbol; rows of one symbol are brought together only when sorting."""
    symbol = frame["symbol"].to_numpy()
    run = np.cumsum(np.concatenate(([False], symbol[1:] != symbol[:-1])))
    scattered = len(np.unique(run)) != frame["symbol"].nunique()
    if scattered and not gather:
        return [(str(part["symbol"].iloc[0]), part) for _, part in frame.groupby(run, sort=False)]
    if scattered:
        times = frame["time"].to_numpy("datetime64[ns]")
        actions.append(_action("all", "brought the rows of each symbol together", times))
    return [(str(name), part) for name, part in frame.groupby("symbol", sort=False)]


def _drop_bad(symbol: str, rows: pd.DataFrame, context: _Context) -> "_Step":
    if context.repair.bad_rows == "refuse":
        return rows, []
    columns = _columns(rows)
    bad = np.isnat(rows["time"].to_numpy("datetime64[ns]")) | outside_range(columns)
    for name, values in columns.items():
        bad |= bad_value(name, values)
    return _dropped(symbol, rows, bad, "dropped bad rows")


def _sort(symbol: str, rows: pd.DataFrame, context: _Context) -> "_Step":
    time = rows["time"].to_numpy("datetime64[ns]")
    order = np.argsort(time, kind="stable")
    moved = order != np.arange(len(order))
    if not context.repair.sort or not moved.any():
        return rows, []
    return rows.iloc[order], [_action(symbol, "sorted by time", time[moved])]


def _drop_duplicates(symbol: str, rows: pd.DataFrame, context: _Context) -> "_Step":
    how = context.repair.duplicates
    if how == "refuse":
        return rows, []
    time = rows["time"].to_numpy("datetime64[ns]")
    if how == "equal":
        extra = rows.duplicated(keep="first").to_numpy()
    elif how == "first":
        extra = repeated(time)
    else:
        extra = repeated(time[::-1])[::-1]
    return _dropped(symbol, rows, extra, f"dropped duplicates ({how})")


def _apply_splits(symbol: str, rows: pd.DataFrame, context: _Context) -> "_Step":
    """Restate earlier rows in today's shares: price / Π later ratios, volume · Π later ratios."""
    if context.repair.splits == "refuse" or rows.empty:
        return rows, []
    columns = _columns(rows)
    # Ratios of impossible prices mean nothing; the bars' constructor will refuse them.
    if any(bad_value(name, values).any() for name, values in columns.items()):
        return rows, []
    time = rows["time"].to_numpy("datetime64[ns]")
    ratios = split_ratios(SymbolRows(symbol, time, columns), context.checks)
    found = ratios != 1.0
    if not found.any():
        return rows, []
    later = np.append(np.cumprod(ratios[:0:-1])[::-1], 1.0)
    changed = {name: rows[name].to_numpy(float) / later for name in PRICES}
    changed["volume"] = rows["volume"].to_numpy(float) * later
    told = ", ".join(f"{ratio:g}" for ratio in ratios[found])
    return rows.assign(**changed), [_action(symbol, f"applied splits (ratios {told})", time[found])]


def _fill_gaps(symbol: str, rows: pd.DataFrame, context: _Context) -> "_Step":
    if context.repair.gaps == "refuse" or rows.empty:
        return rows, []
    time = rows["time"].to_numpy("datetime64[ns]")
    # A table out of order has no gaps to speak of; the bars' constructor will refuse it.
    if np.isnat(time).any() or not bool(np.all(np.diff(time) > np.timedelta64(0, "ns"))):
        return rows, []
    missing = context.calendar.audit(time, context.interval).missing
    if not len(missing):
        return rows, []
    filled = rows.iloc[np.searchsorted(time, missing) - 1].copy()
    close = filled["close"].to_numpy(float)
    filled = filled.assign(time=missing, volume=0.0, **dict.fromkeys(PRICES, close))
    if "funding" in filled:
        filled["funding"] = 0.0
    old = rows if "no_trade" in rows else rows.assign(no_trade=False)
    both = pd.concat([old, filled.assign(no_trade=True)]).sort_values("time", kind="stable")
    return both, [_action(symbol, "filled gaps with flat no_trade bars", missing)]


_Step = tuple[pd.DataFrame, list[RepairAction]]
_STEPS: Final[tuple[Callable[[str, pd.DataFrame, _Context], _Step], ...]] = (
    _drop_bad,
    _sort,
    _drop_duplicates,
    _apply_splits,
    _fill_gaps,
)


def _columns(rows: pd.DataFrame) -> dict[str, Any]:
    return {name: rows[name].to_numpy(float) for name in _VALUES if name in rows}


def _dropped(symbol: str, rows: pd.DataFrame, bad: BoolArray, action: str) -> _Step:
    if not bad.any():
        return rows, []
    times = rows["time"].to_numpy("datetime64[ns]")[bad]
    return rows[~bad], [_action(symbol, action, times)]


def _action(symbol: str, action: str, times: TimeArray) -> RepairAction:
    return RepairAction(symbol, action, len(times), tuple(str(t) for t in times[:_SHOWN]))
