"""What an agent sees of its own account: one function for training, evaluation and export."""

import math
from typing import Final

import numpy as np

from quantail.sim.compiled import helper, kernel
from quantail.types import Float32Array, FloatArray

ACCOUNT_STATE: Final = (
    "position",
    "unrealized_pnl",
    "drawdown",
    "time_since_trade",
    "cost_estimate",
    "time_left",
)
N_ACCOUNT_STATE: Final = len(ACCOUNT_STATE)
TRADE_MEMORY: Final = 20.0
"""Bars since the last trade at which ``time_since_trade`` is one half."""


@helper
def account_state_nb(
    units: float,
    price: float,
    equity: float,
    drawdown: float,
    entry: float,
    since_trade: float,
    cost_rate: float,
    time_left: float,
    max_leverage: float,
) -> tuple[float, float, float, float, float, float]:
    """Return the account state in the order of ACCOUNT_STATE.

    position = units · price / (equity · max leverage), unrealized PnL = units · (price - entry) /
    equity, drawdown = 1 - equity / highest equity, time since trade = n / (n + 20), cost estimate
    in percent of a trade as large as equity times leverage, time left as a share of the episode. An
    account without equity shows no position.
    """
    share = units / equity if equity > 0.0 else 0.0
    return (
        share * price * (1.0 / max_leverage),  # one division for all accounts
        share * (price - entry),
        drawdown,
        since_trade / (since_trade + TRADE_MEMORY),
        100.0 * cost_rate,
        time_left,
    )


@helper
def cost_estimate_nb(
    equity: float, price: float, max_leverage: float, fee: float, half: float, impact: float
) -> float:
    """Return the cost rate of a trade as large as equity times leverage, from known bars."""
    return fee + half + impact * math.sqrt(max(equity, 0.0) * max_leverage / price)


@kernel
def _rows_nb(out: Float32Array, columns: FloatArray, max_leverage: float) -> None:
    for i in range(out.shape[0]):
        state = account_state_nb(
            columns[i, 0], columns[i, 1], columns[i, 2], columns[i, 3], columns[i, 4],
            columns[i, 5], columns[i, 6], columns[i, 7], max_leverage,
        )  # fmt: skip
        for k in range(N_ACCOUNT_STATE):
            out[i, k] = state[k]


def account_state(
    *,
    units: FloatArray | float,
    price: FloatArray | float,
    equity: FloatArray | float,
    drawdown: FloatArray | float,
    entry: FloatArray | float,
    since_trade: FloatArray | float,
    cost_rate: FloatArray | float,
    time_left: FloatArray | float,
    max_leverage: float,
) -> Float32Array:
    """Return the account states of N accounts, [N, 6], in the order of ACCOUNT_STATE.

    For agents that trade outside the simulator: the same compiled function as in training.

    Args:
        units: Position in units, [N] or one number, negative when short.
        price: Latest close.
        equity: Cash plus position at ``price``.
        drawdown: 1 - equity / highest equity so far.
        entry: Average price of the open position, without costs.
        since_trade: Bars since the last trade.
        cost_rate: Fee, half-spread and slippage of a trade as large as equity times leverage, as a
            fraction.
        time_left: Share of the episode still to come; 1 where there is no end.
        max_leverage: The account's limit.
    """
    columns = (units, price, equity, drawdown, entry, since_trade, cost_rate, time_left)
    stacked = np.stack(np.broadcast_arrays(*map(np.atleast_1d, columns)), axis=-1)
    out = np.empty((len(stacked), N_ACCOUNT_STATE), np.float32)
    _rows_nb(out, np.ascontiguousarray(stacked, np.float64), float(max_leverage))
    return out
