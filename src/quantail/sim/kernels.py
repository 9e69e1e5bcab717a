"""The compiled step over all accounts: arrive, order, trade, score, observe.

Each stage is one loop over the accounts; what a stage finds out for the next one stands in the
``draft``, one row per quantity, so that the arithmetic of order sizes runs on vectors.
"""

from typing import Final

import numpy as np

from quantail.sim import market_rows as of
from quantail.sim import state as at
from quantail.sim.account import trade_units_nb
from quantail.sim.actions import first_bad_action_nb, target_nb
from quantail.sim.books import Account, Move, Venue, advance_nb
from quantail.sim.compiled import kernel, loop
from quantail.sim.episode_kernels import begin_nb, finish_all_nb, observe_nb
from quantail.sim.parameters import unpack_nb
from quantail.sim.random import SeedArray
from quantail.sim.rewards import Outcome, reward_nb
from quantail.sim.stress import gap_factor_nb, next_row_nb
from quantail.types import BoolArray, Float32Array, FloatArray, IntArray

# rows of the draft [15, N + 8]
D_FILL: Final = 0
D_CLOSE: Final = 1
D_FUNDING: Final = 2
D_YEARS: Final = 3
D_BAR: Final = 4  # row of the bar of the fill
D_DUE: Final = 5  # target of the order that fills in this step, NaN without one
D_HALF_SPREAD: Final = 6
D_IMPACT: Final = 7
D_MAX_UNITS: Final = 8
D_CASH: Final = 9
D_UNITS: Final = 10
D_TRADE: Final = 11  # units traded
D_LIMITED: Final = 12
D_FEE: Final = 13
D_FETCHED: Final = 14
N_DRAFT: Final = 15
DRAFT_PADDING: Final = 8
"""Rows a power of two apart would fall onto the same places of the cache."""


@loop
def arrive_all_nb(
    values: FloatArray, counts: IntArray, streams: SeedArray, market: FloatArray,
    features: Float32Array, p: FloatArray, draft: FloatArray,
) -> None:  # fmt: skip
    """Move every running account to its next bar; draft the prices and rates on the way there."""
    par = unpack_nb(p)
    has_features = features.shape[1] > 0
    for i in range(values.shape[0]):
        if counts[i, at.STATUS] != at.RUNNING:
            continue
        row = counts[i, at.ROW]
        arrival = row + 1
        fill, close = market[arrival, of.FILL], market[arrival, of.CLOSE]
        funding, years = market[arrival, of.FUNDING], market[arrival, of.YEARS]
        if par.stress > 0.0:
            stream, arrival = next_row_nb(
                streams[i], row, counts[i, at.LAST_ROW], par.missing_probability
            )
            stream, jump = gap_factor_nb(stream, par.gap_probability, par.gap_size)
            streams[i] = stream
            level, power = jump * values[i, at.MARK], values[i, at.VOLATILITY_SCALE]
            known = market[row, of.CLOSE]
            fill = level * (market[arrival, of.FILL] / known) ** power
            close = level * (market[arrival, of.CLOSE] / known) ** power
            for missed in range(row + 2, arrival + 1):  # holding is charged over missing bars too
                funding += market[missed, of.FUNDING]
                years += market[missed, of.YEARS]
        counts[i, at.ROW] = arrival
        bar, scale = arrival, par.cost_scale * values[i, at.COST_SCALE]
        if par.fill_at_mark > 0.0:
            bar, fill = row, values[i, at.MARK]
        draft[D_FILL, i] = fill
        draft[D_CLOSE, i] = close
        draft[D_FUNDING, i] = funding
        draft[D_YEARS, i] = years
        draft[D_BAR, i] = bar
        draft[D_FEE, i] = par.fee * scale
        draft[D_HALF_SPREAD, i] = market[bar, of.HALF_SPREAD] * scale
        draft[D_IMPACT, i] = market[bar, of.IMPACT] * scale
        draft[D_MAX_UNITS, i] = market[bar, of.MAX_UNITS]
        draft[D_CASH, i] = values[i, at.CASH]
        draft[D_UNITS, i] = values[i, at.UNITS]
        if has_features:  # fetches the row into the cache, many at once in this short loop
            draft[D_FETCHED, i] = features[arrival, 0]


@loop
def order_all_nb(
    actions: FloatArray, levels: FloatArray, counts: IntArray, pending: FloatArray,
    market: FloatArray, p: FloatArray, draft: FloatArray, record: FloatArray,
    sample_weight: Float32Array,
) -> None:  # fmt: skip
    """Turn actions into the orders that fill in this step, and begin the record."""
    par = unpack_nb(p)
    n_pending = pending.shape[1]
    for i in range(actions.shape[0]):
        counts[i, at.ALL_STEPS] += 1
        if counts[i, at.STATUS] != at.RUNNING:
            for column in range(record.shape[1]):
                record[i, column] = 0.0
            record[i, at.R_POSITION_AT_FILL] = np.nan
            record[i, at.R_REQUESTED] = np.nan
            sample_weight[i] = 0.0
            continue
        if levels.shape[0] > 0:
            order = levels[int(actions[i])]
        else:
            order, clipped = target_nb(actions[i], par.long_only > 0.0)
            counts[i, at.ALL_CLIPPED] += clipped
        order *= par.max_leverage
        record[i, at.R_REQUESTED] = order
        record[i, at.R_BLOCKED] = 0.0
        sample_weight[i] = 1.0
        if market[int(draft[D_BAR, i]), of.BLOCKED] > 0.0:
            record[i, at.R_BLOCKED] = 1.0
            counts[i, at.BLOCKED_STEPS] += 1
            counts[i, at.ALL_BLOCKED] += 1
            if par.block > 0.0:
                order = np.nan
                sample_weight[i] = 0.0
                for place in range(n_pending):
                    pending[i, place] = np.nan
        draft[D_DUE, i] = order
        if n_pending > 0:  # the ring gives out what was put in n_pending steps ago
            place = counts[i, at.STEP] % n_pending
            draft[D_DUE, i] = pending[i, place]
            pending[i, place] = order


@loop
def size_all_nb(n_envs: int, p: FloatArray, draft: FloatArray) -> None:
    """Draft the units that every account trades; those of resting accounts are never read."""
    par = unpack_nb(p)
    for i in range(n_envs):
        trade, limited = trade_units_nb(
            draft[D_CASH, i], draft[D_UNITS, i], draft[D_FILL, i], draft[D_DUE, i],
            draft[D_FEE, i], draft[D_HALF_SPREAD, i], draft[D_IMPACT, i], draft[D_MAX_UNITS, i],
            par.max_notional, par.max_turnover, par.minimum_notional, par.minimum_trade,
            par.unit_step,
        )  # fmt: skip
        draft[D_TRADE, i] = trade
        draft[D_LIMITED, i] = limited


@loop
def trade_all_nb(
    values: FloatArray, counts: IntArray, p: FloatArray, draft: FloatArray, record: FloatArray,
    end_reason: at.CodeArray,
) -> None:  # fmt: skip
    """Fill, carry and value every running account; write its books."""
    par = unpack_nb(p)
    for i in range(values.shape[0]):
        end_reason[i] = at.NOT_ENDED
        record[i, at.R_EQUITY_BEFORE] = values[i, at.EQUITY]
        if counts[i, at.STATUS] == at.RUNNING:
            done = advance_nb(
                Account(draft[D_CASH, i], draft[D_UNITS, i], values[i, at.ENTRY]),
                Venue(
                    draft[D_FEE, i], draft[D_HALF_SPREAD, i], draft[D_IMPACT, i],
                    draft[D_MAX_UNITS, i],
                ),
                Move(
                    values[i, at.MARK], draft[D_FILL, i], draft[D_CLOSE, i], draft[D_FUNDING, i],
                    draft[D_YEARS, i],
                ),
                draft[D_TRADE, i], par,
            )  # fmt: skip
            values[i, at.CASH] = done.account.cash
            values[i, at.UNITS] = done.account.units
            values[i, at.ENTRY] = done.account.entry
            values[i, at.MARK] = draft[D_CLOSE, i]
            values[i, at.EQUITY] = done.account.cash + done.account.units * draft[D_CLOSE, i]
            end_reason[i] = done.ended
            limited = draft[D_LIMITED, i]
            counts[i, at.ALL_LIMITED] += int(limited)
            traded = not np.isnan(done.position_at_fill)
            counts[i, at.TRADES] += traded
            counts[i, at.SINCE_TRADE] = 0 if traded else counts[i, at.SINCE_TRADE] + 1
            counts[i, at.STEP] += 1
            record[i, at.R_PRICE_PNL] = done.entries.price_pnl
            record[i, at.R_FEES] = done.entries.fees
            record[i, at.R_SPREAD] = done.entries.spread
            record[i, at.R_SLIPPAGE] = done.entries.slippage
            record[i, at.R_FUNDING] = done.entries.funding
            record[i, at.R_BORROW] = done.entries.borrow
            record[i, at.R_SHORTFALL] = done.entries.shortfall
            record[i, at.R_TRADED] = done.entries.traded
            record[i, at.R_POSITION_AT_FILL] = done.position_at_fill
            record[i, at.R_LIMITED] = limited
        equity = values[i, at.EQUITY]
        notional = values[i, at.UNITS] * values[i, at.MARK]
        record[i, at.R_EQUITY] = equity
        record[i, at.R_POSITION] = notional / equity if equity > 0.0 else 0.0
        record[i, at.R_ROW] = counts[i, at.ROW]


@loop
def score_all_nb(
    values: FloatArray, counts: IntArray, p: FloatArray, record: FloatArray, rewards: FloatArray,
    end_reason: at.CodeArray,
) -> None:  # fmt: skip
    """Reward every running account, and complete the record and the episode's totals with it."""
    par = unpack_nb(p)
    for i in range(values.shape[0]):
        rewards[i] = 0.0
        if counts[i, at.STATUS] != at.RUNNING:
            continue
        before, equity = record[i, at.R_EQUITY_BEFORE], record[i, at.R_EQUITY]
        costs = record[i, at.R_FEES] + record[i, at.R_SPREAD] + record[i, at.R_SLIPPAGE]
        costs += record[i, at.R_FUNDING] + record[i, at.R_BORROW]
        per_before = 1.0 / before
        fraction = costs * per_before
        record[i, at.R_COST_FRACTION] = fraction if np.isfinite(fraction) else np.nan
        peak = max(values[i, at.PEAK], equity)
        drawdown_before, drawdown = values[i, at.DRAWDOWN], 1.0 - equity / peak
        values[i, at.PEAK] = peak
        values[i, at.DRAWDOWN] = drawdown
        outcome = Outcome(
            before, equity if par.costs_in_reward > 0.0 else equity + costs, par.initial_equity,
            drawdown_before, drawdown, record[i, at.R_POSITION], end_reason[i] != at.NOT_ENDED,
        )  # fmt: skip
        value, memory_0, memory_1 = reward_nb(
            int(par.reward_code), outcome, values[i, at.MEMORY_0], values[i, at.MEMORY_1],
            par.reward_0, par.reward_1, par.reward_2,
        )  # fmt: skip
        turnover = record[i, at.R_TRADED] * per_before
        penalty = par.turnover_penalty * turnover
        raw = value - penalty
        rewards[i] = min(par.reward_clip, max(-par.reward_clip, raw))
        record[i, at.R_TURNOVER_PENALTY] = penalty
        record[i, at.R_REWARD_RAW] = raw
        values[i, at.MEMORY_0] = memory_0
        values[i, at.MEMORY_1] = memory_1
        values[i, at.EPISODE_REWARD] += rewards[i]
        values[i, at.EPISODE_COSTS] += costs
        values[i, at.EPISODE_TURNOVER] += turnover
        values[i, at.EPISODE_DRAWDOWN] = max(values[i, at.EPISODE_DRAWDOWN], drawdown)


@kernel
def reset_nb(
    mask: BoolArray, values: FloatArray, counts: IntArray, streams: SeedArray, pending: FloatArray,
    market: FloatArray, features: Float32Array, table: IntArray, weights: FloatArray, p: FloatArray,
    observation: Float32Array,
) -> None:  # fmt: skip
    """Start new episodes where ``mask`` says so, and write the observation of every account."""
    for i in range(mask.shape[0]):
        if mask[i]:
            begin_nb(i, values, counts, streams, pending, market, table, weights, p)
    observe_nb(0, mask.shape[0], values, counts, market, features, p, observation)


@kernel
def step_nb(
    actions: FloatArray, levels: FloatArray, values: FloatArray, counts: IntArray,
    streams: SeedArray, pending: FloatArray, market: FloatArray, features: Float32Array,
    table: IntArray, weights: FloatArray, p: FloatArray, draft: FloatArray,
    observation: Float32Array, final_observation: Float32Array, rewards: FloatArray,
    terminated: BoolArray, truncated: BoolArray, sample_weight: Float32Array,
    end_reason: at.CodeArray, record: FloatArray, episode: FloatArray,
) -> int:  # fmt: skip
    """Step every account once.

    Returns:
        -1, or the first env with an action outside the space; nothing has then been changed.
    """
    bad = first_bad_action_nb(actions, levels.shape[0], unpack_nb(p).clip_actions > 0.0)
    if bad >= 0:
        return bad
    arrive_all_nb(values, counts, streams, market, features, p, draft)
    order_all_nb(actions, levels, counts, pending, market, p, draft, record, sample_weight)
    size_all_nb(actions.shape[0], p, draft)
    trade_all_nb(values, counts, p, draft, record, end_reason)
    score_all_nb(values, counts, p, record, rewards, end_reason)
    observe_nb(0, actions.shape[0], values, counts, market, features, p, observation)
    finish_all_nb(
        values, counts, streams, pending, market, features, table, weights, p, observation,
        final_observation, terminated, truncated, end_reason, episode,
    )  # fmt: skip
    return -1
