"""One account: limits, the size of a trade, and the end of an account that has lost too much."""

import math
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem
from quantail.sim.compiled import helper
from quantail.sim.trade_costs import trade_rate_nb


@config
class FillConfig:
    """When and at which price an order fills. Bar t has closed when the agent decides."""

    price: Literal["open", "close", "vwap"] = "open"
    """Price of the bar of the fill; vwap is (high + low + close) / 3."""
    delay: Annotated[int, Ge(0), Le(1_000)] = 1
    """Bars from the decision to the bar of the fill."""

    def check(self) -> None:
        """Refuse a fill in the past."""
        if self.delay == 0 and self.price != "close":
            problem = (
                f"must be at least 1 for fill.price {self.price!r}; was 0. When the agent decides, "
                "only the close of the current bar can still be traded"
            )
            raise ConfigError([ConfigProblem("delay", problem)])

    @property
    def at_mark(self) -> bool:
        """Whether orders fill at the very close that the agent has seen."""
        return self.delay == 0

    @property
    def n_pending(self) -> int:
        """Orders that can be under way between two steps."""
        return max(self.delay - 1, 0)

    @property
    def held_weight(self) -> float:
        """Share of the bar of the fill over which the new position is held."""
        return {"open": 1.0, "vwap": 0.5, "close": 1.0 if self.at_mark else 0.0}[self.price]


@config
class AccountConfig:
    """Money, limits and ruin. Amounts are in the currency of the prices."""

    initial_equity: Annotated[float, Gt(0)] = 10_000.0
    max_leverage: Annotated[float, Gt(0), Le(1_000)] = 1.0
    """Largest notional as a multiple of equity; an action of 1 asks for it."""
    max_notional: Annotated[float, Gt(0)] | None = None
    """Largest notional of the position."""
    max_turnover: Annotated[float, Gt(0)] | None = None
    """Largest traded notional in one bar as a multiple of equity."""
    minimum_notional: Annotated[float, Ge(0)] = 0.0
    """Smaller trades are not sent."""
    minimum_trade: Annotated[float, Ge(0), Lt(1)] = 0.001
    """Trades below this fraction of equity are not sent; keeps a drifting position from trading
    dust in every bar."""
    unit_step: Annotated[float, Ge(0)] = 0.0
    """Positions are whole multiples of this many units; 0 allows any size."""
    maintenance_margin: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Equity at or below this fraction of the notional is liquidated."""
    bankruptcy_fraction: Annotated[float, Ge(0), Lt(1)] = 0.1
    """Equity at or below this fraction of the initial equity ends the account."""
    allow_negative_equity: bool = False
    """Whether a gap may leave a debt; otherwise the loss beyond zero is the broker's."""

    def check(self) -> None:
        """Refuse margins that liquidate a position the account is allowed to open."""
        if self.maintenance_margin * self.max_leverage >= 1.0:
            problem = (
                f"must be less than 1 / max_leverage = {1 / self.max_leverage:g}; was "
                f"{self.maintenance_margin!r}. At full leverage it would liquidate at once"
            )
            raise ConfigError([ConfigProblem("maintenance_margin", problem)])
        largest = min(self.initial_equity * self.max_leverage, self.max_notional or math.inf)
        if self.minimum_notional > largest:
            problem = (
                f"must not exceed the largest position, {largest:g}; was "
                f"{self.minimum_notional!r}. No trade would ever be sent"
            )
            raise ConfigError([ConfigProblem("minimum_notional", problem)])


@helper
def whole_steps_nb(units: float, step: float) -> float:
    """Return ``units`` rounded toward zero to a multiple of ``step``."""
    # 1e-9 of a step forgives the rounding of an exact multiple.
    steps = math.floor(abs(units) / step + 1e-9)
    return math.copysign(steps * step, units)


@helper
def trade_units_nb(
    cash: float,
    units: float,
    price: float,
    target: float,
    fee: float,
    half: float,
    impact: float,
    max_units: float,
    max_notional: float,
    max_turnover: float,
    minimum_notional: float,
    minimum_trade: float,
    unit_step: float,
) -> tuple[float, bool]:
    """Return the units to trade toward ``target`` and whether a limit made the trade smaller.

    The position after costs shall be target · (equity after costs). With cost rate c, side s and
    Δ₀ = target · E - held,

        Δ = Δ₀ / (1 + s · target · c),

    so a purchase leaves room for its own costs, and the limit holds after them. c is taken at an
    upper bound of the size (slippage grows with size): |Δ₀| when the trade shrinks by its costs,
    the whole position when it reduces one. A NaN target is no order. Every condition selects a
    value and none branches, so that the loop over accounts is compiled to vector instructions.
    """
    held = units * price
    equity = cash + held
    wanted = min(max_notional, max(-max_notional, target * equity))
    gap = wanted - held
    side = math.copysign(1.0, gap)
    fraction = wanted / equity
    reduces = side * fraction < 0.0
    largest_size = abs(held) if reduces else abs(gap)
    smallest_size = abs(held) if held * wanted < 0.0 else 0.0
    per_price = 1.0 / price
    rate = trade_rate_nb(fee, half, impact, min(largest_size * per_price, max_units))
    room = 1.0 + side * fraction * rate
    # Where costs would eat the equity, a position is closed and neither reduced nor turned.
    size = abs(gap) / room if room > 0.0 else largest_size
    size = max(min(size, largest_size), smallest_size)
    trade = side * size * per_price
    if unit_step > 0.0:
        trade = whole_steps_nb(units + trade, unit_step) - units
    largest = min(max_units, max_turnover * equity * per_price)
    limited = abs(trade) > largest
    trade = math.copysign(min(abs(trade), largest), trade)
    if unit_step > 0.0:
        trade = whole_steps_nb(trade, unit_step)
    notional = abs(trade) * price
    unsent = (notional < minimum_notional) | (notional < minimum_trade * equity)
    # The rounding of an exact position is no order.
    idle = (target != target) | (abs(gap) <= 1e-12 * equity)  # noqa: PLR0124 - NaN
    trade = 0.0 if unsent | idle else trade
    return trade, (limited | (unsent & (notional > 0.0))) & (not idle)


@helper
def entry_price_nb(units: float, entry: float, trade: float, price: float) -> float:
    """Return the average price of the position after a trade, without costs.

    entry' = entry + (price - entry) · clip(trade / (units + trade), 0, 1): a growing position
    averages, a shrinking one keeps its price (share below 0), a new or turned one takes ``price``
    (share 1 or more); no trade keeps it. No branch, as the side of a trade is a coin flip to the
    processor.
    """
    share = trade / (units + trade)
    moved = entry + (price - entry) * min(1.0, max(0.0, share))
    return moved if trade != 0.0 else entry


@helper
def is_ruined_nb(
    cash: float, units: float, price: float, maintenance_margin: float, least_equity: float
) -> bool:
    """Return whether the account must be closed at ``price``."""
    held = units * price
    equity = cash + held
    return (equity <= least_equity) | ((units != 0.0) & (equity <= maintenance_margin * abs(held)))
