"""What one trade costs, for the accounts of the market and for the problems alike."""

import math

from quantail.sim.compiled import helper


@helper
def trade_rate_nb(fee: float, half: float, impact: float, units: float) -> float:
    """Return all costs of a trade of ``units`` as a fraction of its notional."""
    return fee + half + impact * math.sqrt(units)


@helper
def trade_costs_nb(
    units: float, price: float, fee: float, half: float, impact: float, max_units: float
) -> tuple[float, float, float]:
    """Return fee, half-spread and slippage of a trade of ``units`` (not negative), in money.

    The largest trade bounds the slippage of a forced sale, which no limit makes smaller.
    """
    notional = units * price
    slippage = notional * impact * math.sqrt(min(units, max_units))
    return notional * fee, notional * half, slippage
