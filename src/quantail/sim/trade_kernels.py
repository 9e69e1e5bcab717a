"""Compiled: how accounts trade. Lines and blocks are as in :mod:`quantail.sim.kernels`."""

import numpy as np

from quantail.sim import state as at
from quantail.sim.account import is_ruined_nb, trade_units_nb
from quantail.sim.books import Account, Entries, Move, Venue, advance_nb, liquidate_nb
from quantail.sim.compiled import loop
from quantail.sim.draft import (
    D_CASH,
    D_CLOSE,
    D_DUE,
    D_FEE,
    D_FILL,
    D_FUNDING,
    D_HALF_SPREAD,
    D_IMPACT,
    D_LIMITED,
    D_MAX_UNITS,
    D_RUIN,
    D_RUNNING,
    D_TRADE,
    D_UNITS,
    D_YEARS,
    NO_RUIN,
    RUIN_AT_CLOSE,
    RUIN_AT_FILL,
)
from quantail.sim.parameters import unpack_nb
from quantail.types import FloatArray, IntArray


@loop
def trade_nb(
    first: int, n: int, values: FloatArray, counts: IntArray, totals: IntArray, p: FloatArray,
    draft: FloatArray, record: FloatArray, end_reason: at.CodeArray,
) -> None:  # fmt: skip
    """Size, fill, carry and value every account; write its books."""
    n_limited = 0
    size_nb(n, values, p, draft)
    fill_nb(n, values, p, draft, record)
    close_ruined_nb(first, n, values, p, draft, record, end_reason)
    for j in range(n):
        close, units = draft[D_CLOSE + j], values[at.UNITS + j]
        held = units * close
        equity = values[at.CASH + j] + held
        values[at.MARK + j] = close
        values[at.EQUITY + j] = equity
        at_fill = record[at.R_POSITION_AT_FILL + j]
        traded = at_fill == at_fill  # noqa: PLR0124 - not NaN
        runs, limited = draft[D_RUNNING + j] > 0.0, draft[D_LIMITED + j]
        counts[at.STEP + j] += runs
        counts[at.TRADES + j] += traded
        counts[at.SINCE_TRADE + j] = 0 if traded else counts[at.SINCE_TRADE + j] + runs
        n_limited += limited > 0.0
        record[at.R_LIMITED + j] = limited
        record[at.R_EQUITY + j] = equity
        record[at.R_POSITION + j] = held / equity if equity > 0.0 else 0.0
        record[at.R_ROW + j] = counts[at.ROW + j]
    totals[at.ALL_LIMITED] += n_limited


@loop
def size_nb(n: int, values: FloatArray, p: FloatArray, draft: FloatArray) -> None:
    """Draft the units that every account trades."""
    par = unpack_nb(p)
    for j in range(n):
        trade, limited = trade_units_nb(
            values[at.CASH + j], values[at.UNITS + j], draft[D_FILL + j],
            draft[D_DUE + j], draft[D_FEE + j], draft[D_HALF_SPREAD + j], draft[D_IMPACT + j],
            draft[D_MAX_UNITS + j], par.max_notional, par.max_turnover, par.minimum_notional,
            par.minimum_trade, par.unit_step,
        )  # fmt: skip
        draft[D_TRADE + j] = trade
        draft[D_LIMITED + j] = limited


@loop
def fill_nb(
    n: int, values: FloatArray, p: FloatArray, draft: FloatArray, record: FloatArray
) -> None:
    """Take every account to the close of the bar, and draft which ones are ruined on the way."""
    par = unpack_nb(p)
    for j in range(n):
        cash, units = values[at.CASH + j], values[at.UNITS + j]
        fill, close = draft[D_FILL + j], draft[D_CLOSE + j]
        done = advance_nb(
            Account(cash, units, values[at.ENTRY + j]),
            Venue(
                draft[D_FEE + j], draft[D_HALF_SPREAD + j], draft[D_IMPACT + j],
                draft[D_MAX_UNITS + j],
            ),
            Move(values[at.MARK + j], fill, close, draft[D_FUNDING + j], draft[D_YEARS + j]),
            draft[D_TRADE + j], par,
        )  # fmt: skip
        margin, least, runs = par.maintenance_margin, par.least_equity, draft[D_RUNNING + j] > 0.0
        at_fill = runs & is_ruined_nb(cash, units, fill, margin, least)
        at_close = runs & is_ruined_nb(done.account.cash, done.account.units, close, margin, least)
        draft[D_RUIN + j] = RUIN_AT_FILL if at_fill else (RUIN_AT_CLOSE if at_close else NO_RUIN)
        draft[D_CASH + j] = cash
        draft[D_UNITS + j] = units
        values[at.CASH + j] = done.account.cash
        values[at.UNITS + j] = done.account.units
        values[at.ENTRY + j] = done.account.entry
        record[at.R_EQUITY_BEFORE + j] = values[at.EQUITY + j]
        record[at.R_PRICE_PNL + j] = done.entries.price_pnl
        record[at.R_FEES + j] = done.entries.fees
        record[at.R_SPREAD + j] = done.entries.spread
        record[at.R_SLIPPAGE + j] = done.entries.slippage
        record[at.R_FUNDING + j] = done.entries.funding
        record[at.R_BORROW + j] = done.entries.borrow
        record[at.R_SHORTFALL + j] = done.entries.shortfall
        record[at.R_TRADED + j] = done.entries.traded
        record[at.R_POSITION_AT_FILL + j] = done.position_at_fill


@loop
def close_ruined_nb(
    first: int, n: int, values: FloatArray, p: FloatArray, draft: FloatArray, record: FloatArray,
    end_reason: at.CodeArray,
) -> None:  # fmt: skip
    """Close the accounts that were ruined: at the fill instead of a trade there, or at the close.

    The books of a ruin at the fill begin anew, as nothing that was drafted after it took place.
    """
    par = unpack_nb(p)
    for j in range(n):
        i = first + j
        end_reason[i] = at.NOT_ENDED
        if draft[D_RUIN + j] == NO_RUIN:
            continue
        price = draft[D_CLOSE + j]
        a = Account(values[at.CASH + j], values[at.UNITS + j], values[at.ENTRY + j])
        e = Entries(
            record[at.R_PRICE_PNL + j], record[at.R_FEES + j], record[at.R_SPREAD + j],
            record[at.R_SLIPPAGE + j], record[at.R_FUNDING + j], record[at.R_BORROW + j],
            record[at.R_SHORTFALL + j], record[at.R_TRADED + j],
        )  # fmt: skip
        if draft[D_RUIN + j] == RUIN_AT_FILL:
            price = draft[D_FILL + j]
            a = Account(draft[D_CASH + j], draft[D_UNITS + j], 0.0)
            moved = a.units * (price - values[at.MARK + j])
            e = Entries(moved, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
            record[at.R_POSITION_AT_FILL + j] = np.nan
        venue = Venue(
            draft[D_FEE + j], draft[D_HALF_SPREAD + j], draft[D_IMPACT + j], draft[D_MAX_UNITS + j]
        )
        a, e, end_reason[i] = liquidate_nb(a, e, venue, price, par)
        values[at.CASH + j], values[at.UNITS + j], values[at.ENTRY + j] = a.cash, a.units, a.entry
        record[at.R_PRICE_PNL + j] = e.price_pnl
        record[at.R_FEES + j] = e.fees
        record[at.R_SPREAD + j] = e.spread
        record[at.R_SLIPPAGE + j] = e.slippage
        record[at.R_FUNDING + j] = e.funding
        record[at.R_BORROW + j] = e.borrow
        record[at.R_SHORTFALL + j] = e.shortfall
        record[at.R_TRADED + j] = e.traded
