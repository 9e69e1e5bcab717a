"""What the stages of a step hand to one another: one line per quantity, one place per account.

The draft is overwritten by every block of accounts and holds nothing from step to step.
"""

from typing import Final

import numpy as np

from quantail.sim.account_state import N_ACCOUNT_STATE
from quantail.sim.state import LINE
from quantail.types import FloatArray

(
    D_RUNNING,  # 1 for an account that takes part in the step, else 0
    D_FILL, D_CLOSE,  # prices
    D_FUNDING, D_YEARS,  # holding costs of the bar
    D_FEE, D_HALF_SPREAD, D_IMPACT, D_MAX_UNITS,  # what a trade costs, with all multipliers
    D_BLOCKED,  # 1 where the bar of the fill allows no trade
    D_DUE,  # target of the order that fills in this step, NaN without one
    D_TRADE, D_LIMITED,  # units traded, and whether a limit made them fewer
    D_CASH, D_UNITS,  # before the fill
    D_RUIN,  # one of the codes below
    D_COSTS, D_DRAWDOWN_BEFORE, D_REWARD,
    D_FETCHED,  # nothing reads it; see fetch_nb
    D_ACCOUNT_STATE,  # the first line of what the agent sees of the account
) = range(0, 21 * LINE, LINE)  # fmt: skip

NO_RUIN: Final = 0.0
RUIN_AT_FILL: Final = 1.0
RUIN_AT_CLOSE: Final = 2.0


def allocate_draft() -> FloatArray:
    """Return an empty draft, [27 · LINE]."""
    return np.zeros(D_ACCOUNT_STATE + N_ACCOUNT_STATE * LINE)
