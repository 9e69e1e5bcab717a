"""Compiled: how episodes begin and end, and what the agent sees.

Lines and blocks are as in :mod:`quantail.sim.kernels`: account ``j`` of a block is env
``first + j``.
"""

import numpy as np

from quantail.sim import market_rows as of
from quantail.sim import state as at
from quantail.sim.account_state import account_state_nb, cost_estimate_nb
from quantail.sim.compiled import loop
from quantail.sim.draft import D_ACCOUNT_STATE, D_HALF_SPREAD, D_IMPACT
from quantail.sim.episodes import FIRST_ROW, LAST_BAR, LAST_START
from quantail.sim.parameters import unpack_nb
from quantail.sim.random import SeedArray, uniform_nb
from quantail.sim.row_copy import copy_row_nb
from quantail.sim.state import LINE
from quantail.sim.stress import draw_between_nb
from quantail.types import BoolArray, Float32Array, FloatArray, IntArray


@loop
def observe_nb(
    first: int, start: int, stop: int, values: FloatArray, counts: IntArray, market: FloatArray,
    features: Float32Array, p: FloatArray, draft: FloatArray, out: Float32Array,
) -> None:  # fmt: skip
    """Write what accounts ``start`` to ``stop`` of a block see: the closed bar and earlier ones."""
    par = unpack_nb(p)
    n_features = features.shape[1]
    window = int(par.window)
    for j in range(start, stop):
        oldest = counts[at.ROW + j] - window + 1  # rows of a window lie one after another
        copy_row_nb(out, first + j, 0, features, oldest, window * n_features)
    if par.account_state > 0.0:
        account_states_nb(start, stop, values, counts, market, p, draft)
        flat = out.reshape(-1)
        for j in range(start, stop):  # a loop over the six would be compiled to half the speed
            place = (first + j) * out.shape[1] + window * n_features
            flat[place] = draft[D_ACCOUNT_STATE + j]
            flat[place + 1] = draft[D_ACCOUNT_STATE + LINE + j]
            flat[place + 2] = draft[D_ACCOUNT_STATE + LINE * 2 + j]
            flat[place + 3] = draft[D_ACCOUNT_STATE + LINE * 3 + j]
            flat[place + 4] = draft[D_ACCOUNT_STATE + LINE * 4 + j]
            flat[place + 5] = draft[D_ACCOUNT_STATE + LINE * 5 + j]


@loop
def account_states_nb(
    start: int, stop: int, values: FloatArray, counts: IntArray, market: FloatArray, p: FloatArray,
    draft: FloatArray,
) -> None:  # fmt: skip
    """Draft the account states of accounts ``start`` to ``stop`` of a block at their bars."""
    par = unpack_nb(p)
    for j in range(start, stop):
        row = counts[at.ROW + j]
        draft[D_HALF_SPREAD + j] = market[row, of.HALF_SPREAD]
        draft[D_IMPACT + j] = market[row, of.IMPACT]
    for j in range(start, stop):
        equity, price = values[at.EQUITY + j], values[at.MARK + j]
        rate = (
            par.cost_scale
            * values[at.COST_SCALE + j]
            * cost_estimate_nb(
                equity,
                price,
                par.max_leverage,
                par.fee,
                draft[D_HALF_SPREAD + j],
                draft[D_IMPACT + j],
            )
        )
        length = counts[at.LENGTH + j]
        time_left = max(length - counts[at.STEP + j], 0) / length
        state = account_state_nb(
            values[at.UNITS + j], price, equity, values[at.DRAWDOWN + j], values[at.ENTRY + j],
            counts[at.SINCE_TRADE + j], rate, time_left, par.max_leverage,
        )  # fmt: skip
        draft[D_ACCOUNT_STATE + j] = state[0]
        draft[D_ACCOUNT_STATE + LINE + j] = state[1]
        draft[D_ACCOUNT_STATE + LINE * 2 + j] = state[2]
        draft[D_ACCOUNT_STATE + LINE * 3 + j] = state[3]
        draft[D_ACCOUNT_STATE + LINE * 4 + j] = state[4]
        draft[D_ACCOUNT_STATE + LINE * 5 + j] = state[5]


@loop
def begin_nb(
    first: int, j: int, values: FloatArray, counts: IntArray, streams: SeedArray,
    pending: FloatArray, market: FloatArray, table: IntArray, weights: FloatArray, p: FloatArray,
) -> None:  # fmt: skip
    """Start a new episode: symbol, start and stress are drawn from the account's own stream."""
    par = unpack_nb(p)
    i = first + j
    stream = streams[i]
    symbol = i % table.shape[0]
    if weights.shape[0] > 0:
        stream, u = uniform_nb(stream)
        symbol = 0
        while u >= weights[symbol]:
            symbol += 1
    start = table[symbol, FIRST_ROW]
    choices = table[symbol, LAST_START] - start + 1
    if choices > 1:
        stream, u = uniform_nb(stream)
        start += int(u * choices)
    length = int(par.episode_length)
    counts[at.ROW + j] = start
    counts[at.LAST_ROW + j] = table[symbol, LAST_BAR]
    counts[at.STEP + j] = 0
    counts[at.LENGTH + j] = length if length > 0 else table[symbol, LAST_BAR] - start
    counts[at.SINCE_TRADE + j] = 0
    counts[at.STATUS + j] = at.RUNNING
    counts[at.SYMBOL + j] = symbol
    counts[at.TRADES + j] = 0
    counts[at.BLOCKED_STEPS + j] = 0
    counts[at.EPISODES + j] += 1
    for line in range(0, at.N_VALUES, LINE):
        values[line + j] = 0.0
    values[at.CASH + j] = par.initial_equity
    values[at.EQUITY + j] = par.initial_equity
    values[at.PEAK + j] = par.initial_equity
    values[at.MARK + j] = market[start, of.CLOSE]
    stream, cost_scale = draw_between_nb(stream, par.cost_low, par.cost_high)
    stream, power = draw_between_nb(stream, par.volatility_low, par.volatility_high)
    values[at.COST_SCALE + j] = cost_scale
    values[at.VOLATILITY_SCALE + j] = power
    streams[i] = stream
    for place in range(pending.shape[1]):
        pending[i, place] = np.nan


@loop
def end_nb(
    first: int, j: int, values: FloatArray, counts: IntArray, observation: Float32Array,
    final_observation: Float32Array, episode: FloatArray,
) -> None:  # fmt: skip
    """Keep the last observation of an episode and write its summary, in the order of EPISODE."""
    i = first + j
    copy_row_nb(final_observation, i, 0, observation, i, observation.shape[1])
    episode[i, 0] = values[at.EPISODE_REWARD + j]
    episode[i, 1] = counts[at.STEP + j]
    episode[i, 2] = values[at.EQUITY + j]
    episode[i, 3] = values[at.EPISODE_DRAWDOWN + j]
    episode[i, 4] = values[at.EPISODE_COSTS + j]
    episode[i, 5] = values[at.EPISODE_TURNOVER + j]
    episode[i, 6] = counts[at.TRADES + j]
    episode[i, 7] = counts[at.BLOCKED_STEPS + j]
    episode[i, 8] = counts[at.SYMBOL + j]


@loop
def finish_nb(
    first: int, n: int, values: FloatArray, counts: IntArray, streams: SeedArray,
    pending: FloatArray, market: FloatArray, features: Float32Array, table: IntArray,
    weights: FloatArray, p: FloatArray, draft: FloatArray, observation: Float32Array,
    final_observation: Float32Array, terminated: BoolArray, truncated: BoolArray,
    end_reason: at.CodeArray, episode: FloatArray,
) -> None:  # fmt: skip
    """End the episodes that are over, and begin new ones where the mode says so."""
    n_over = 0
    for j in range(n):  # counts without a branch; in most steps this is all there is to do
        i = first + j
        has_time = counts[at.STEP + j] < counts[at.LENGTH + j]
        goes_on = has_time & (counts[at.ROW + j] < counts[at.LAST_ROW + j])
        runs = (counts[at.STATUS + j] == at.RUNNING) & (end_reason[i] == at.NOT_ENDED)
        n_over += not (goes_on & runs)
        terminated[i] = False
        truncated[i] = False
    if n_over == 0:
        return
    par = unpack_nb(p)
    for j in range(n):
        i = first + j
        was = counts[at.STATUS + j]
        if was == at.RUNNING:
            if end_reason[i] != at.NOT_ENDED:
                counts[at.STATUS + j] = at.ENDED_TERMINATED
            elif (
                counts[at.STEP + j] >= counts[at.LENGTH + j]
                or counts[at.ROW + j] >= counts[at.LAST_ROW + j]
            ):
                in_time = counts[at.STEP + j] >= counts[at.LENGTH + j] and par.episode_length > 0.0
                end_reason[i] = at.TIME_LIMIT if in_time else at.END_OF_DATA
                is_final = in_time and par.final_end > 0.0
                counts[at.STATUS + j] = at.ENDED_TERMINATED if is_final else at.ENDED_TRUNCATED
            begins = end_reason[i] != at.NOT_ENDED and par.autoreset == at.AUTORESET_SAME_STEP
        else:
            if was == at.RESTART:
                end_reason[i] = at.RESTARTED
            begins = was == at.RESTART or par.autoreset == at.AUTORESET_NEXT_STEP
        if end_reason[i] != at.NOT_ENDED:
            end_nb(first, j, values, counts, observation, final_observation, episode)
        # A rested account keeps its flag; a step that only begins an episode has none.
        shows = was == at.RUNNING or not begins
        status = counts[at.STATUS + j]
        terminated[i] = shows and status == at.ENDED_TERMINATED
        truncated[i] = (shows and status == at.ENDED_TRUNCATED) or was == at.RESTART
        if begins:
            begin_nb(first, j, values, counts, streams, pending, market, table, weights, p)
            observe_nb(first, j, j + 1, values, counts, market, features, p, draft, observation)
