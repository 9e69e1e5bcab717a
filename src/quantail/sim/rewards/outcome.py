"""What a reward may look at: one step of one account."""

import math
from typing import Final, NamedTuple

from quantail.sim.compiled import helper

EQUITY_FLOOR: Final = 1e-3
"""Logarithms take equity at no less than this fraction of the initial equity, so that the reward of
a ruin is finite (at worst about log 0.001 = -6.9 from the initial equity)."""


class Outcome(NamedTuple):
    """One step of one account; equity is net of costs unless costs were taken out of the reward."""

    equity_before: float
    equity: float
    initial_equity: float
    drawdown_before: float
    drawdown: float
    position: float
    """Notional over equity at the close."""
    terminated: bool


@helper
def log_growth_nb(o: Outcome) -> float:
    """Return log(E' / E), with E' no smaller than the floor."""
    floor = EQUITY_FLOOR * o.initial_equity
    return math.log(max(o.equity, floor) / max(o.equity_before, floor))
