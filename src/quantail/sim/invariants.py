"""The books must balance: checked for every account after every step in debug mode."""

import numpy as np

from quantail.errors import AccountingError
from quantail.sim.config import SimConfig
from quantail.sim.state import ALL_STEPS, RECORD, SimState, StepBuffers
from quantail.types import BoolArray, FloatArray

TOLERANCE = 1e-9


def identity_error(record: FloatArray) -> FloatArray:
    """Return how far the books are from balancing, relative to the money that moved, [N].

    error = |ΔE - (price PnL - fees - spread - slippage - funding - borrow + shortfall)| / scale
    """
    terms = {name: record[:, RECORD.index(name)] for name in RECORD}
    change = terms["equity"] - terms["equity_before"]
    costs = sum(terms[name] for name in ("fees", "spread", "slippage", "funding", "borrow"))
    booked = terms["price_pnl"] - costs + terms["shortfall"]
    sizes = ("equity", "equity_before", "price_pnl", "traded")
    scale = np.maximum.reduce([np.abs(terms[name]) for name in sizes])
    return np.asarray(np.abs(change - booked) / np.maximum(scale, 1e-300))


def check_books(state: SimState, out: StepBuffers, config: SimConfig) -> None:
    """Raise when any account broke a rule in the step that has just been made.

    Raises:
        AccountingError: Names the env, its step and every term of its books.
    """
    error = identity_error(out.record)
    _refuse(~(error <= TOLERANCE), "the change of equity differs from what was booked", state, out)
    for name in ("fees", "spread", "slippage", "borrow", "shortfall"):
        _refuse(~(out.column(name) >= 0.0), f"{name} must not be negative", state, out)
    at_fill, limited = out.column("position_at_fill"), out.column("limited")
    limit = config.account.max_leverage * (1.0 + TOLERANCE)
    outside = (limited == 0.0) & (np.abs(at_fill) > limit)
    _refuse(
        outside, f"the position exceeds max_leverage {config.account.max_leverage:g}", state, out
    )
    if not config.account.allow_negative_equity:
        _refuse(~(out.column("equity") >= 0.0), "equity must not be negative", state, out)
    _refuse(~np.isfinite(out.reward), "the reward must be finite", state, out)


def _refuse(broken: BoolArray, rule: str, state: SimState, out: StepBuffers) -> None:
    if not broken.any():
        return
    env = int(np.flatnonzero(broken)[0])
    terms = zip(RECORD, out.record[env], strict=True)
    books = ", ".join(f"{name} {value:.12g}" for name, value in terms)
    steps = int(state.totals[ALL_STEPS]) // len(state.streams)
    raise AccountingError(
        f"{rule}: env {env}, step {steps}, {int(broken.sum())} env(s) in "
        f"all; {books}. This is a fault of the simulator; please report it with these numbers."
    )
