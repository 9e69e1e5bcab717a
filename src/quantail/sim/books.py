"""One account over one bar: price moves, fills, carry and ruin, each booked by its name.

Pure functions of numbers: an account and the entries of the step go in, the new ones come out.
"""

from typing import NamedTuple

import numpy as np

from quantail.sim.account import entry_price_nb
from quantail.sim.compiled import helper
from quantail.sim.parameters import Parameters
from quantail.sim.state import BANKRUPT, LIQUIDATED
from quantail.sim.trade_costs import trade_costs_nb


class Account(NamedTuple):
    """What an account owns."""

    cash: float
    units: float
    entry: float
    """Average price of the position, without costs."""


class Entries(NamedTuple):
    """The books of one step.

    Change of equity = price PnL - fees - spread - slippage - funding - borrow + shortfall.
    """

    price_pnl: float
    fees: float
    spread: float
    slippage: float
    funding: float
    borrow: float
    shortfall: float
    """Loss beyond zero equity, borne by the broker."""
    traded: float
    """Notional of the trades."""


class Venue(NamedTuple):
    """What trading costs in the bar of the fill, with the episode's stress in it."""

    fee: float
    half_spread: float
    impact: float
    max_units: float


class Move(NamedTuple):
    """How the price goes through the step, and what holding costs."""

    mark: float
    """Close that the agent has seen."""
    fill: float
    close: float
    funding: float
    years: float


class Passage(NamedTuple):
    """What a step does to an account that is not ruined in it."""

    account: Account
    entries: Entries
    position_at_fill: float
    """NaN without a fill."""


@helper
def execute_nb(
    a: Account, e: Entries, venue: Venue, trade: float, price: float
) -> tuple[Account, Entries]:
    """Book a trade at the middle price and its three costs beside it."""
    size = abs(trade)
    notional = size * price
    fees, spread, slippage = trade_costs_nb(
        size, price, venue.fee, venue.half_spread, venue.impact, venue.max_units
    )
    entry = entry_price_nb(a.units, a.entry, trade, price)
    cash = a.cash - (trade * price + fees + spread + slippage)
    entries = Entries(
        e.price_pnl, e.fees + fees, e.spread + spread, e.slippage + slippage, e.funding, e.borrow,
        e.shortfall, e.traded + notional,
    )  # fmt: skip
    return Account(cash, a.units + trade, entry), entries


@helper
def liquidate_nb(
    a: Account, e: Entries, venue: Venue, price: float, par: Parameters
) -> tuple[Account, Entries, int]:
    """Close the account at ``price``, and say why; a debt is the broker's unless allowed."""
    cash, entries = a.cash, e
    if a.units != 0.0:
        sold, entries = execute_nb(a, e, venue, -a.units, price)
        cash = sold.cash
    shortfall = 0.0
    if cash < 0.0 and par.allow_negative == 0.0:
        shortfall = -cash
        cash = 0.0
    entries = Entries(
        entries.price_pnl, entries.fees, entries.spread, entries.slippage, entries.funding,
        entries.borrow, shortfall, entries.traded,
    )  # fmt: skip
    reason = BANKRUPT if cash <= par.least_equity else LIQUIDATED
    return Account(cash, 0.0, 0.0), entries, reason


@helper
def carry_nb(
    a: Account, e: Entries, move: Move, before: Account, par: Parameters
) -> tuple[Account, Entries]:
    """Charge funding and interest on what was held: ``before`` until the fill, ``a`` after it."""
    share = par.held_weight
    notional = (share * a.units + (1.0 - share) * before.units) * move.fill
    cash = share * a.cash + (1.0 - share) * before.cash
    funding = notional * move.funding
    lent = par.borrow_rate * max(-notional, 0.0) + par.margin_rate * max(-cash, 0.0)
    borrow = lent * move.years
    entries = Entries(
        e.price_pnl, e.fees, e.spread, e.slippage, e.funding + funding, e.borrow + borrow,
        e.shortfall, e.traded,
    )  # fmt: skip
    return Account(a.cash - funding - borrow, a.units, a.entry), entries


@helper
def move_price_nb(e: Entries, units: float, change: float) -> Entries:
    """Book what a change of the price does to a position."""
    return Entries(
        e.price_pnl + units * change, e.fees, e.spread, e.slippage, e.funding, e.borrow,
        e.shortfall, e.traded,
    )  # fmt: skip


@helper
def advance_nb(before: Account, venue: Venue, move: Move, trade: float, par: Parameters) -> Passage:
    """Take one account from the close of its bar to the close of the next one.

    Order of events: the price goes to the fill price; ``trade`` is filled; holding is charged; the
    price goes to the close. No condition branches, so that the loop over accounts is compiled to
    vector instructions; those few that are ruined on the way are closed by :func:`liquidate_nb`.
    """
    e = Entries(before.units * (move.fill - move.mark), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    a, e = execute_nb(before, e, venue, trade, move.fill)
    held = a.units * move.fill
    position = held / (a.cash + held)
    a, e = carry_nb(a, e, move, before, par)
    e = move_price_nb(e, a.units, move.close - move.fill)
    return Passage(a, e, position if trade != 0.0 else np.nan)
