"""The compiled step over all accounts: arrive, order, trade, score, observe, finish.

A block of ``LINE`` accounts goes through all stages before the next one; account ``j`` of a block
is env ``first + j``. ``values``, ``counts`` and ``record`` of a block hold one line per quantity,
so that the cash of account ``j`` is at ``CASH + j``; what a stage finds out for the next one stands
in the ``draft`` in the same way. Lines lie a constant distance apart: that is how the compiler
knows that they do not overlap and turns a loop into vector instructions, provided that it has no
branch but selects values. What is rare (a ruin, an order under way, the end of an episode) has a
loop of its own.

An account that rests stands still: no move of the price, no order, no holding cost, no reward.
"""

import numpy as np

from quantail.sim import market_rows as of
from quantail.sim import state as at
from quantail.sim.actions import first_bad_action_nb, target_nb
from quantail.sim.compiled import kernel, loop
from quantail.sim.draft import (
    D_BLOCKED,
    D_CLOSE,
    D_COSTS,
    D_DRAWDOWN_BEFORE,
    D_DUE,
    D_FEE,
    D_FETCHED,
    D_FILL,
    D_FUNDING,
    D_HALF_SPREAD,
    D_IMPACT,
    D_MAX_UNITS,
    D_REWARD,
    D_RUNNING,
    D_YEARS,
)
from quantail.sim.episode_kernels import begin_nb, finish_nb, observe_nb
from quantail.sim.parameters import unpack_nb
from quantail.sim.random import SeedArray
from quantail.sim.rewards import Outcome, reward_nb
from quantail.sim.state import LINE
from quantail.sim.stress import gap_factor_nb, next_row_nb
from quantail.sim.trade_kernels import trade_nb
from quantail.types import BoolArray, Float32Array, FloatArray, IntArray


@loop
def arrive_nb(
    first: int, n: int, values: FloatArray, counts: IntArray, streams: SeedArray,
    market: FloatArray, features: Float32Array, p: FloatArray, draft: FloatArray,
) -> None:  # fmt: skip
    """Move every running account to its next bar; draft the prices and rates on the way there."""
    par = unpack_nb(p)
    fetch_nb(n, counts, market, features, draft)
    for j in range(n):
        i = first + j
        row, mark = counts[at.ROW + j], values[at.MARK + j]
        runs = counts[at.STATUS + j] == at.RUNNING
        arrival = row + 1 if runs else row
        fill, close = market[arrival, of.FILL], market[arrival, of.CLOSE]
        funding, years = market[arrival, of.FUNDING], market[arrival, of.YEARS]
        if not runs:
            fill, close, funding, years = mark, mark, 0.0, 0.0
        elif par.stress > 0.0:
            stream, arrival = next_row_nb(
                streams[i], row, counts[at.LAST_ROW + j], par.missing_probability
            )
            stream, jump = gap_factor_nb(stream, par.gap_probability, par.gap_size)
            streams[i] = stream
            level, power = jump * mark, values[at.VOLATILITY_SCALE + j]
            known = market[row, of.CLOSE]
            fill = level * (market[arrival, of.FILL] / known) ** power
            close = level * (market[arrival, of.CLOSE] / known) ** power
            for missed in range(row + 2, arrival + 1):  # holding is charged over missing bars too
                funding += market[missed, of.FUNDING]
                years += market[missed, of.YEARS]
        counts[at.ROW + j] = arrival
        bar, scale = arrival, par.cost_scale * values[at.COST_SCALE + j]
        if par.fill_at_mark > 0.0:
            bar, fill = row, mark
        draft[D_RUNNING + j] = runs
        draft[D_FILL + j] = fill
        draft[D_CLOSE + j] = close
        draft[D_FUNDING + j] = funding
        draft[D_YEARS + j] = years
        draft[D_FEE + j] = par.fee * scale
        draft[D_HALF_SPREAD + j] = market[bar, of.HALF_SPREAD] * scale
        draft[D_IMPACT + j] = market[bar, of.IMPACT] * scale
        draft[D_MAX_UNITS + j] = market[bar, of.MAX_UNITS]
        draft[D_BLOCKED + j] = market[bar, of.BLOCKED]


@loop
def fetch_nb(
    n: int, counts: IntArray, market: FloatArray, features: Float32Array, draft: FloatArray
) -> None:
    """Touch the next bar of every account, so that the cache loads many at once in a short loop."""
    last, has_features = market.shape[0] - 1, features.shape[1] > 0
    for j in range(n):
        following = min(counts[at.ROW + j] + 1, last)
        seen = features[following, 0] if has_features else 0.0
        draft[D_FETCHED + j] = market[following, of.FILL] + seen


@loop
def order_nb(
    first: int, n: int, actions: FloatArray, levels: FloatArray, counts: IntArray,
    pending: FloatArray, totals: IntArray, p: FloatArray, draft: FloatArray, record: FloatArray,
    sample_weight: Float32Array,
) -> None:  # fmt: skip
    """Turn actions into the orders that fill in this step, and begin the record."""
    par = unpack_nb(p)
    n_clipped, n_blocked = 0, 0
    if levels.shape[0] > 0:
        for j in range(n):
            draft[D_DUE + j] = levels[int(actions[first + j])]
    else:
        for j in range(n):
            draft[D_DUE + j], clipped = target_nb(actions[first + j], par.long_only > 0.0)
            n_clipped += clipped & (draft[D_RUNNING + j] > 0.0)
    for j in range(n):
        i = first + j
        runs = draft[D_RUNNING + j] > 0.0
        blocked = runs & (draft[D_BLOCKED + j] > 0.0)
        stands = (not runs) | (blocked & (par.block > 0.0))
        order = par.max_leverage * draft[D_DUE + j]
        counts[at.BLOCKED_STEPS + j] += blocked
        n_blocked += blocked
        record[at.R_REQUESTED + j] = order if runs else np.nan
        record[at.R_BLOCKED + j] = 1.0 if blocked else 0.0
        draft[D_DUE + j] = np.nan if stands else order
        sample_weight[i] = 0.0 if stands else 1.0
    totals[at.ALL_STEPS] += n
    totals[at.ALL_CLIPPED] += n_clipped
    totals[at.ALL_BLOCKED] += n_blocked
    if pending.shape[1] > 0:
        delay_nb(first, n, counts, pending, p, draft)


@loop
def delay_nb(
    first: int, n: int, counts: IntArray, pending: FloatArray, p: FloatArray, draft: FloatArray
) -> None:
    """Put the orders into the ring of each account; what was put in a delay ago becomes due."""
    n_pending = pending.shape[1]
    drops = unpack_nb(p).block > 0.0
    for j in range(n):
        if draft[D_RUNNING + j] == 0.0:
            continue
        i = first + j
        if drops and draft[D_BLOCKED + j] > 0.0:
            for place in range(n_pending):
                pending[i, place] = np.nan
        place = counts[at.STEP + j] % n_pending
        due = pending[i, place]
        pending[i, place] = draft[D_DUE + j]
        draft[D_DUE + j] = due


@loop
def score_nb(
    first: int, n: int, values: FloatArray, counts: IntArray, p: FloatArray, draft: FloatArray,
    record: FloatArray, rewards: FloatArray, end_reason: at.CodeArray,
) -> None:  # fmt: skip
    """Reward every running account, and complete the record and the episode's totals."""
    par = unpack_nb(p)
    for j in range(n):
        runs = draft[D_RUNNING + j] > 0.0
        equity = record[at.R_EQUITY + j]
        costs = record[at.R_FEES + j] + record[at.R_SPREAD + j] + record[at.R_SLIPPAGE + j]
        costs += record[at.R_FUNDING + j] + record[at.R_BORROW + j]
        per_before = 1.0 / record[at.R_EQUITY_BEFORE + j]
        fraction = costs * per_before
        turnover = record[at.R_TRADED + j] * per_before if runs else 0.0
        fraction = fraction if abs(fraction) < np.inf else np.nan
        record[at.R_COST_FRACTION + j] = fraction if runs else 0.0
        record[at.R_TURNOVER_PENALTY + j] = par.turnover_penalty * turnover
        peak = max(values[at.PEAK + j], equity)
        drawdown = 1.0 - equity / peak
        draft[D_DRAWDOWN_BEFORE + j] = values[at.DRAWDOWN + j]
        draft[D_COSTS + j] = costs
        values[at.PEAK + j] = peak
        values[at.DRAWDOWN + j] = drawdown
        values[at.EPISODE_COSTS + j] += costs
        values[at.EPISODE_TURNOVER + j] += turnover
        values[at.EPISODE_DRAWDOWN + j] = max(values[at.EPISODE_DRAWDOWN + j], drawdown)
    for j in range(n):
        i = first + j
        draft[D_REWARD + j] = 0.0
        if draft[D_RUNNING + j] == 0.0:
            continue
        equity = record[at.R_EQUITY + j]
        is_final = par.final_end > 0.0 and counts[at.STEP + j] >= counts[at.LENGTH + j]
        outcome = Outcome(
            record[at.R_EQUITY_BEFORE + j],
            equity if par.costs_in_reward > 0.0 else equity + draft[D_COSTS + j],
            par.initial_equity, draft[D_DRAWDOWN_BEFORE + j], values[at.DRAWDOWN + j],
            record[at.R_POSITION + j], is_final or end_reason[i] != at.NOT_ENDED,
        )  # fmt: skip
        draft[D_REWARD + j], values[at.MEMORY_0 + j], values[at.MEMORY_1 + j] = reward_nb(
            int(par.reward_code), outcome, values[at.MEMORY_0 + j], values[at.MEMORY_1 + j],
            par.reward_0, par.reward_1, par.reward_2,
        )  # fmt: skip
    for j in range(n):
        i = first + j
        raw = draft[D_REWARD + j] - record[at.R_TURNOVER_PENALTY + j]
        reward = min(par.reward_clip, max(-par.reward_clip, raw))
        record[at.R_REWARD_RAW + j] = raw
        rewards[i] = reward
        values[at.EPISODE_REWARD + j] += reward


@kernel
def reset_nb(
    mask: BoolArray, value_blocks: FloatArray, count_blocks: IntArray, streams: SeedArray,
    pending: FloatArray, totals: IntArray, market: FloatArray, features: Float32Array,
    table: IntArray, weights: FloatArray, p: FloatArray, draft: FloatArray,
    observation: Float32Array,
) -> None:  # fmt: skip
    """Start new episodes where ``mask`` says so, and write the observation of every account."""
    for block in range(value_blocks.shape[0]):
        first = block * LINE
        n = min(LINE, mask.shape[0] - first)
        values, counts = value_blocks[block], count_blocks[block]
        for j in range(n):
            if mask[first + j]:
                begin_nb(first, j, values, counts, streams, pending, market, table, weights, p)
        observe_nb(first, 0, n, values, counts, market, features, p, draft, observation)


@kernel
def step_nb(
    actions: FloatArray, levels: FloatArray, value_blocks: FloatArray, count_blocks: IntArray,
    streams: SeedArray, pending: FloatArray, totals: IntArray, market: FloatArray,
    features: Float32Array, table: IntArray, weights: FloatArray, p: FloatArray, draft: FloatArray,
    observation: Float32Array, final_observation: Float32Array, rewards: FloatArray,
    terminated: BoolArray, truncated: BoolArray, sample_weight: Float32Array,
    end_reason: at.CodeArray, record_blocks: FloatArray, episode: FloatArray,
) -> int:  # fmt: skip
    """Step every account once.

    Returns:
        -1, or the first env with an action outside the space; nothing has then been changed.
    """
    bad = first_bad_action_nb(actions, levels.shape[0], unpack_nb(p).clip_actions > 0.0)
    if bad >= 0:
        return bad
    for block in range(value_blocks.shape[0]):
        first = block * LINE
        n = min(LINE, actions.shape[0] - first)
        values, counts, record = value_blocks[block], count_blocks[block], record_blocks[block]
        arrive_nb(first, n, values, counts, streams, market, features, p, draft)
        order_nb(
            first, n, actions, levels, counts, pending, totals, p, draft, record, sample_weight
        )
        trade_nb(first, n, values, counts, totals, p, draft, record, end_reason)
        score_nb(first, n, values, counts, p, draft, record, rewards, end_reason)
        observe_nb(first, 0, n, values, counts, market, features, p, draft, observation)
        finish_nb(
            first, n, values, counts, streams, pending, market, features, table, weights, p, draft,
            observation, final_observation, terminated, truncated, end_reason, episode,
        )  # fmt: skip
    return -1
