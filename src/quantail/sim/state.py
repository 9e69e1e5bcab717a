"""Where every number of an account lives.

An account is one row of each array: [N, columns]. A step touches every column of an account, so a
row (two cache lines) is what the kernel loads; one array per column would spread the same step over
some fifty places that lie a power of two apart and evict one another from the cache.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from quantail.types import BoolArray, Float32Array, FloatArray, IntArray

# --- the account's numbers: columns of SimState.values [N, 16] ------------------------------------
CASH: Final = 0
UNITS: Final = 1
MARK: Final = 2  # price at which the account is valued: the latest close it has seen
EQUITY: Final = 3
PEAK: Final = 4
ENTRY: Final = 5  # average price at which the open position was built, without costs
MEMORY_0: Final = 6  # what a reward carries from step to step
MEMORY_1: Final = 7
COST_SCALE: Final = 8  # stress of this episode
VOLATILITY_SCALE: Final = 9
EPISODE_REWARD: Final = 10
EPISODE_COSTS: Final = 11
EPISODE_TURNOVER: Final = 12
EPISODE_DRAWDOWN: Final = 13
DRAWDOWN: Final = 14
N_VALUES: Final = 16

# --- the account's counts: columns of SimState.counts [N, 16] -------------------------------------
ROW: Final = 0  # the bar that has just closed
LAST_ROW: Final = 1  # the episode's data end here
STEP: Final = 2
LENGTH: Final = 3
SINCE_TRADE: Final = 4
STATUS: Final = 5
SYMBOL: Final = 6
TRADES: Final = 7
BLOCKED_STEPS: Final = 8
EPISODES: Final = 9
ALL_STEPS: Final = 10
ALL_CLIPPED: Final = 11  # actions outside the space, over the life of the account
ALL_BLOCKED: Final = 12
ALL_LIMITED: Final = 13
N_COUNTS: Final = 16

# --- status of an account ------------------------------------------------------------------------
RUNNING: Final = 0
ENDED_TERMINATED: Final = 1
ENDED_TRUNCATED: Final = 2
RESTART: Final = 3  # asked for from outside; the next step starts a new episode

# --- how an episode ended ------------------------------------------------------------------------
NOT_ENDED: Final = 0
TIME_LIMIT: Final = 1
END_OF_DATA: Final = 2
BANKRUPT: Final = 3
LIQUIDATED: Final = 4
RESTARTED: Final = 5
END_REASONS: Final = ("", "time_limit", "end_of_data", "bankrupt", "liquidated", "restarted")

# --- what a step does with an account whose episode has ended -------------------------------------
AUTORESET_OFF: Final = 0
AUTORESET_SAME_STEP: Final = 1
AUTORESET_NEXT_STEP: Final = 2
AUTORESET_MODES: Final = ("disabled", "same_step", "next_step")

# --- the record of a step: columns of StepBuffers.record [N, 19] ----------------------------------
RECORD: Final = (
    "equity_before",
    "equity",
    "price_pnl",
    "fees",
    "spread",
    "slippage",
    "funding",
    "borrow",
    "shortfall",  # loss beyond zero equity, borne by the broker
    "position",  # notional over equity at the close
    "position_at_fill",  # the same right after the fill, NaN without one
    "requested",  # position that the action asked for, NaN for hold
    "traded",  # notional of the trades of the step
    "cost_fraction",  # all costs over equity_before, NaN where that is no finite number
    "turnover_penalty",
    "reward_raw",  # before clipping
    "row",  # the bar at whose close the step ended
    "blocked",
    "limited",
)
(
    R_EQUITY_BEFORE, R_EQUITY, R_PRICE_PNL, R_FEES, R_SPREAD, R_SLIPPAGE, R_FUNDING, R_BORROW,
    R_SHORTFALL, R_POSITION, R_POSITION_AT_FILL, R_REQUESTED, R_TRADED, R_COST_FRACTION,
    R_TURNOVER_PENALTY, R_REWARD_RAW, R_ROW, R_BLOCKED, R_LIMITED,
) = range(len(RECORD))  # fmt: skip

# --- the summary of a finished episode: columns of StepBuffers.episode [N, 9] ---------------------
EPISODE: Final = (
    "reward", "length", "equity", "max_drawdown", "costs", "turnover", "trades", "blocked",
    "symbol",
)  # fmt: skip

CodeArray = NDArray[np.int8]


@dataclass(frozen=True, slots=True, eq=False)
class SimState:
    """Everything that decides how N accounts go on; the arrays are updated in place."""

    values: FloatArray
    """[N, 16] money, prices, reward memory, episode totals."""
    counts: IntArray
    """[N, 16] rows, steps, status, counters."""
    streams: NDArray[np.uint64]
    """[N] random streams."""
    pending: FloatArray
    """[N, delay - 1] targets under way, NaN where there is none; a ring."""

    @classmethod
    def allocate(cls, n_envs: int, n_pending: int) -> "SimState":
        """Return the state of accounts that were never started."""
        return cls(
            values=np.zeros((n_envs, N_VALUES)),
            counts=np.zeros((n_envs, N_COUNTS), np.int64),
            streams=np.zeros(n_envs, np.uint64),
            pending=np.full((n_envs, n_pending), np.nan),
        )


@dataclass(frozen=True, slots=True, eq=False)
class StepBuffers:
    """What a step writes, in arrays that the caller owns."""

    observation: Float32Array
    """[N, O] what the agent sees next; with same-step reset, the first one of the new episode."""
    reward: FloatArray
    """[N]"""
    terminated: BoolArray
    """[N] the account was ruined."""
    truncated: BoolArray
    """[N] time limit or end of data (or a restart from outside)."""
    final_observation: Float32Array
    """[N, O] last observation of an episode; written only where one ended in this step."""
    sample_weight: Float32Array
    """[N] 0 for a row that must not be credited: a blocked action, or no real transition."""
    end_reason: CodeArray
    """[N] index into END_REASONS."""
    record: FloatArray
    """[N, 19] the books of the step, by the names in RECORD."""
    episode: FloatArray
    """[N, 9] summary by the names in EPISODE; written only where an episode ended."""

    @classmethod
    def allocate(cls, n_envs: int, observation_size: int) -> "StepBuffers":
        """Return buffers for ``n_envs`` accounts."""
        return cls(
            observation=np.zeros((n_envs, observation_size), np.float32),
            reward=np.zeros(n_envs),
            terminated=np.zeros(n_envs, np.bool_),
            truncated=np.zeros(n_envs, np.bool_),
            final_observation=np.zeros((n_envs, observation_size), np.float32),
            sample_weight=np.ones(n_envs, np.float32),
            end_reason=np.zeros(n_envs, np.int8),
            record=np.zeros((n_envs, len(RECORD))),
            episode=np.zeros((n_envs, len(EPISODE))),
        )

    def column(self, name: str) -> FloatArray:
        """Return one column of the record, [N], as a view."""
        return self.record[:, RECORD.index(name)]
