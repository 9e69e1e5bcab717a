"""Where every number of an account lives.

The kernel takes accounts in blocks of ``LINE``. A block of an array holds one line per column, with
the accounts side by side, so that arithmetic runs on vectors, and lies in one piece, so that it
stays in the fastest cache while the block goes through a step. The constants below say where the
line of a quantity begins in a block; Python reads it with ``value``, ``count`` and ``column``.
"""

from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from quantail.types import BoolArray, Float32Array, FloatArray, IntArray

LINE: Final = 128
"""Accounts of a block."""

# --- the account's numbers: where their lines begin in a block of value_blocks --------------------
CASH: Final = 0 * LINE
UNITS: Final = 1 * LINE
MARK: Final = 2 * LINE  # price at which the account is valued: the latest close it has seen
EQUITY: Final = 3 * LINE
PEAK: Final = 4 * LINE
ENTRY: Final = 5 * LINE  # average price at which the open position was built, without costs
MEMORY_0: Final = 6 * LINE  # what a reward carries from step to step
MEMORY_1: Final = 7 * LINE
COST_SCALE: Final = 8 * LINE  # stress of this episode
VOLATILITY_SCALE: Final = 9 * LINE
EPISODE_REWARD: Final = 10 * LINE
EPISODE_COSTS: Final = 11 * LINE
EPISODE_TURNOVER: Final = 12 * LINE
EPISODE_DRAWDOWN: Final = 13 * LINE
DRAWDOWN: Final = 14 * LINE
N_VALUES: Final = 15 * LINE

# --- the account's counts: where their lines begin in a block of count_blocks ---------------------
ROW: Final = 0 * LINE  # the bar that has just closed
LAST_ROW: Final = 1 * LINE  # the episode's data end here
STEP: Final = 2 * LINE
LENGTH: Final = 3 * LINE
SINCE_TRADE: Final = 4 * LINE
STATUS: Final = 5 * LINE
SYMBOL: Final = 6 * LINE
TRADES: Final = 7 * LINE
BLOCKED_STEPS: Final = 8 * LINE
EPISODES: Final = 9 * LINE
N_COUNTS: Final = 10 * LINE

# --- totals over the lives of all accounts: places in SimState.totals -----------------------------
TOTALS: Final = ("steps", "clipped_actions", "blocked", "limited_trades")
ALL_STEPS, ALL_CLIPPED, ALL_BLOCKED, ALL_LIMITED = range(len(TOTALS))

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

# --- the record of a step: columns of StepBuffers.record [N, 19]; R_ says where a line begins -----
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
) = range(0, len(RECORD) * LINE, LINE)  # fmt: skip

# --- the summary of a finished episode: columns of StepBuffers.episode [N, 9] ---------------------
EPISODE: Final = (
    "reward", "length", "equity", "max_drawdown", "costs", "turnover", "trades", "blocked",
    "symbol",
)  # fmt: skip

CodeArray = NDArray[np.int8]
_Number = TypeVar("_Number", np.float64, np.int64)


def line_of(blocks: NDArray[_Number], line: int, n_envs: int) -> NDArray[_Number]:
    """Return the line that begins at ``line`` in each block, for all accounts, [N], in a copy."""
    return blocks[:, line : line + LINE].flatten()[:n_envs]


def to_rows(blocks: NDArray[_Number], n_envs: int) -> NDArray[_Number]:
    """Return blocks [B, columns · LINE] as one row per account, [N, columns], in a copy."""
    by_line = blocks.reshape(len(blocks), -1, LINE)
    return np.ascontiguousarray(by_line.transpose(0, 2, 1)).reshape(-1, by_line.shape[1])[:n_envs]


def n_blocks(n_envs: int) -> int:
    """Return how many blocks hold ``n_envs`` accounts; the last one need not be full."""
    return -(-n_envs // LINE)


@dataclass(frozen=True, slots=True, eq=False)
class SimState:
    """Everything that decides how N accounts go on; the arrays are updated in place."""

    value_blocks: FloatArray
    """[B, 15 · LINE] money, prices, reward memory, episode totals."""
    count_blocks: IntArray
    """[B, 10 · LINE] rows, steps, status, counters of the episode."""
    streams: NDArray[np.uint64]
    """[N] random streams."""
    pending: FloatArray
    """[N, delay - 1] targets under way, NaN where there is none; a ring."""
    totals: IntArray
    """[4] what happened over the lives of all accounts, by the names in TOTALS."""

    @classmethod
    def allocate(cls, n_envs: int, n_pending: int) -> "SimState":
        """Return the state of accounts that were never started."""
        return cls(
            value_blocks=np.zeros((n_blocks(n_envs), N_VALUES)),
            count_blocks=np.zeros((n_blocks(n_envs), N_COUNTS), np.int64),
            streams=np.zeros(n_envs, np.uint64),
            pending=np.full((n_envs, n_pending), np.nan),
            totals=np.zeros(len(TOTALS), np.int64),
        )

    def value(self, line: int) -> FloatArray:
        """Return one quantity of all accounts, [N], in a copy: ``state.value(EQUITY)``."""
        return line_of(self.value_blocks, line, len(self.streams))

    def count(self, line: int) -> IntArray:
        """Return one count of all accounts, [N], in a copy: ``state.count(ROW)``."""
        return line_of(self.count_blocks, line, len(self.streams))

    def set_status(self, envs: BoolArray, status: int) -> None:
        """Set the status of the accounts that ``envs`` marks, [N]."""
        marked = np.zeros(n_blocks(len(envs)) * LINE, np.bool_)
        marked[: len(envs)] = envs
        self.count_blocks[:, STATUS : STATUS + LINE][marked.reshape(-1, LINE)] = status


@dataclass(frozen=True, slots=True, eq=False)
class StepBuffers:
    """What a step writes, in arrays that the caller owns; make them with :meth:`allocate`."""

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
    record_blocks: FloatArray
    """[B, 19 · LINE] the books of the step; read them through ``record`` or ``column``."""
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
            record_blocks=np.zeros((n_blocks(n_envs), len(RECORD) * LINE)),
            episode=np.zeros((n_envs, len(EPISODE))),
        )

    @property
    def record(self) -> FloatArray:
        """[N, 19] the books of the step, by the names in RECORD, in a copy."""
        return to_rows(self.record_blocks, len(self.reward))

    def column(self, name: str) -> FloatArray:
        """Return one column of the record, [N], in a copy."""
        return line_of(self.record_blocks, RECORD.index(name) * LINE, len(self.reward))

    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return the arrays in the order in which the kernel takes them."""
        return (
            self.observation, self.final_observation, self.reward, self.terminated, self.truncated,
            self.sample_weight, self.end_reason, self.record_blocks, self.episode,
        )  # fmt: skip
