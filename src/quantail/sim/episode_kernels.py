"""Compiled: how episodes begin and end, and what the agent sees."""

import numpy as np

from quantail.sim import market_rows as of
from quantail.sim import state as at
from quantail.sim.account_state import N_ACCOUNT_STATE, account_state_nb, cost_estimate_nb
from quantail.sim.compiled import loop
from quantail.sim.episodes import FIRST_ROW, LAST_BAR, LAST_START
from quantail.sim.parameters import unpack_nb
from quantail.sim.random import SeedArray, uniform_nb
from quantail.sim.stress import draw_between_nb
from quantail.types import BoolArray, Float32Array, FloatArray, IntArray


@loop
def observe_nb(
    first: int, stop: int, values: FloatArray, counts: IntArray, market: FloatArray,
    features: Float32Array, p: FloatArray, out: Float32Array,
) -> None:  # fmt: skip
    """Write what accounts ``first`` to ``stop`` see: the bar that has closed, and earlier ones."""
    par = unpack_nb(p)
    n_features = features.shape[1]
    window = int(par.window)
    for i in range(first, stop):
        row = counts[i, at.ROW]
        place = 0
        for seen in range(row - window + 1, row + 1):
            for f in range(n_features):
                out[i, place + f] = features[seen, f]
            place += n_features
        if par.account_state > 0.0:
            equity, price = values[i, at.EQUITY], values[i, at.MARK]
            rate = par.cost_scale * values[i, at.COST_SCALE] * cost_estimate_nb(
                equity, price, par.max_leverage, par.fee, market[row, of.HALF_SPREAD],
                market[row, of.IMPACT],
            )  # fmt: skip
            time_left = max(counts[i, at.LENGTH] - counts[i, at.STEP], 0) / counts[i, at.LENGTH]
            state = account_state_nb(
                values[i, at.UNITS], price, equity, values[i, at.DRAWDOWN], values[i, at.ENTRY],
                counts[i, at.SINCE_TRADE], rate, time_left, par.max_leverage,
            )  # fmt: skip
            for k in range(N_ACCOUNT_STATE):
                out[i, place + k] = state[k]


@loop
def begin_nb(
    i: int, values: FloatArray, counts: IntArray, streams: SeedArray, pending: FloatArray,
    market: FloatArray, table: IntArray, weights: FloatArray, p: FloatArray,
) -> None:  # fmt: skip
    """Start a new episode: symbol, start and stress are drawn from the account's own stream."""
    par = unpack_nb(p)
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
    counts[i, at.ROW] = start
    counts[i, at.LAST_ROW] = table[symbol, LAST_BAR]
    counts[i, at.STEP] = 0
    counts[i, at.LENGTH] = length if length > 0 else table[symbol, LAST_BAR] - start
    counts[i, at.SINCE_TRADE] = 0
    counts[i, at.STATUS] = at.RUNNING
    counts[i, at.SYMBOL] = symbol
    counts[i, at.TRADES] = 0
    counts[i, at.BLOCKED_STEPS] = 0
    counts[i, at.EPISODES] += 1
    for column in range(values.shape[1]):
        values[i, column] = 0.0
    values[i, at.CASH] = par.initial_equity
    values[i, at.EQUITY] = par.initial_equity
    values[i, at.PEAK] = par.initial_equity
    values[i, at.MARK] = market[start, of.CLOSE]
    stream, cost_scale = draw_between_nb(stream, par.cost_low, par.cost_high)
    stream, power = draw_between_nb(stream, par.volatility_low, par.volatility_high)
    values[i, at.COST_SCALE] = cost_scale
    values[i, at.VOLATILITY_SCALE] = power
    streams[i] = stream
    for place in range(pending.shape[1]):
        pending[i, place] = np.nan


@loop
def end_nb(
    i: int, values: FloatArray, counts: IntArray, observation: Float32Array,
    final_observation: Float32Array, episode: FloatArray,
) -> None:  # fmt: skip
    """Keep the last observation of an episode and write its summary, in the order of EPISODE."""
    for k in range(observation.shape[1]):  # a slice assignment would take 3 s more to compile
        final_observation[i, k] = observation[i, k]
    episode[i, 0] = values[i, at.EPISODE_REWARD]
    episode[i, 1] = counts[i, at.STEP]
    episode[i, 2] = values[i, at.EQUITY]
    episode[i, 3] = values[i, at.EPISODE_DRAWDOWN]
    episode[i, 4] = values[i, at.EPISODE_COSTS]
    episode[i, 5] = values[i, at.EPISODE_TURNOVER]
    episode[i, 6] = counts[i, at.TRADES]
    episode[i, 7] = counts[i, at.BLOCKED_STEPS]
    episode[i, 8] = counts[i, at.SYMBOL]


@loop
def finish_all_nb(
    values: FloatArray, counts: IntArray, streams: SeedArray, pending: FloatArray,
    market: FloatArray, features: Float32Array, table: IntArray, weights: FloatArray, p: FloatArray,
    observation: Float32Array, final_observation: Float32Array, terminated: BoolArray,
    truncated: BoolArray, end_reason: at.CodeArray, episode: FloatArray,
) -> None:  # fmt: skip
    """End the episodes that are over, and begin new ones where the mode says so."""
    par = unpack_nb(p)
    for i in range(values.shape[0]):
        was = counts[i, at.STATUS]
        if was == at.RUNNING:
            if end_reason[i] != at.NOT_ENDED:
                counts[i, at.STATUS] = at.ENDED_TERMINATED
            elif (
                counts[i, at.STEP] >= counts[i, at.LENGTH]
                or counts[i, at.ROW] >= counts[i, at.LAST_ROW]
            ):
                counts[i, at.STATUS] = at.ENDED_TRUNCATED
                in_time = counts[i, at.STEP] >= counts[i, at.LENGTH] and par.episode_length > 0.0
                end_reason[i] = at.TIME_LIMIT if in_time else at.END_OF_DATA
            begins = end_reason[i] != at.NOT_ENDED and par.autoreset == at.AUTORESET_SAME_STEP
        else:
            if was == at.RESTART:
                end_reason[i] = at.RESTARTED
            begins = was == at.RESTART or par.autoreset == at.AUTORESET_NEXT_STEP
        if end_reason[i] != at.NOT_ENDED:
            end_nb(i, values, counts, observation, final_observation, episode)
        # A rested account keeps its flag; a step that only begins an episode has none.
        shows = was == at.RUNNING or not begins
        status = counts[i, at.STATUS]
        terminated[i] = shows and status == at.ENDED_TERMINATED
        truncated[i] = (shows and status == at.ENDED_TRUNCATED) or was == at.RESTART
        if begins:
            begin_nb(i, values, counts, streams, pending, market, table, weights, p)
            observe_nb(i, i + 1, values, counts, market, features, p, observation)
