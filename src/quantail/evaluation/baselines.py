"""Baselines on the same bars, with the same costs and fills as the agent.

All rules that are tables of targets run side by side on one simulator, as copies of the windows.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from quantail.evaluation.backtest import (
    MarketTask,
    equal_weight,
    make_track,
    memory_groups,
    run_market,
)
from quantail.evaluation.measures import equity_curve, total_return
from quantail.evaluation.policies import TargetRule
from quantail.evaluation.record import COST_NAMES, Series, Track
from quantail.market.bars import Bars
from quantail.sim.actions import DiscreteActions, is_long_only
from quantail.sim.config import SimConfig
from quantail.types import FloatArray

LABELS: Final = {
    "flat": "No position",
    "buy_and_hold": "Buy and hold",
    "momentum": "Momentum",
    "best_constant": "Best constant position (in hindsight)",
    "average_position": "Agent's average position, held (no costs)",
}
_STEPS: Final = 10
"""Constant positions that are tried on each side of zero."""


def momentum_targets(bars: Bars, window: int) -> FloatArray:
    """Return the sign of the return over the last ``window`` bars, [R]; 0 where there is none.

    The target at row r uses closes up to r and none of another symbol.
    """
    targets = np.zeros(bars.n_bars)
    for symbol in bars.symbols:
        rows = bars.rows(symbol)
        close = bars.close[rows]
        targets[rows.start + window : rows.stop] = np.sign(close[window:] - close[:-window])
    return targets


def constant_positions(config: SimConfig) -> FloatArray:
    """Return the constant positions to try, as fractions of the largest one, [G]."""
    if isinstance(config.actions, DiscreteActions):
        return np.array(config.actions.levels)
    low = 0 if is_long_only(config.actions) else -_STEPS
    return np.arange(low, _STEPS + 1) / _STEPS


def market_baselines(task: MarketTask, momentum_window: int) -> tuple[Track, ...]:
    """Return flat, buy and hold, momentum and the best constant position.

    Buy and hold aims at a notional equal to equity, that is 1 / max_leverage of the largest
    position, and lets it grow with the price. Momentum follows the sign of the past return with
    the same size. The best constant position has the largest total return of the portfolio over
    these very bars.
    """
    bars, config = task.bars, task.config
    unit = 1.0 / max(config.account.max_leverage, 1.0)
    constants = constant_positions(config)
    rules: dict[str, FloatArray] = {
        "flat": np.zeros(bars.n_bars),
        "buy_and_hold": np.full(bars.n_bars, unit),
        "momentum": unit * momentum_targets(bars, momentum_window),
    }
    labels = {name: LABELS[name] for name in rules}
    for constant in constants:
        name = f"constant {constant:+g}"
        rules[name] = np.full(bars.n_bars, constant)
        labels[name] = f"{LABELS['best_constant']}: {constant:+g}"
    tracks = [
        track
        for group in memory_groups(task, list(rules))
        for track in _run(task, {name: rules[name] for name in group}, labels)
    ]
    plain = [track for track in tracks if track.name in LABELS]
    rest = [track for track in tracks if track.name not in LABELS]
    totals = [float(total_return(track.portfolio.net_return)) for track in rest]
    best = replace(rest[int(np.argmax(totals))], name="best_constant", hindsight=True)
    return (*plain, best)


def _run(
    task: MarketTask, rules: Mapping[str, FloatArray], labels: Mapping[str, str]
) -> list[Track]:
    table = np.column_stack(list(rules.values()))
    policy = TargetRule(table, task.config.actions, len(task.windows))
    run = run_market(task.simulator(copies=len(rules)), policy)
    return [
        make_track(task, run, name=name, label=labels[name], copy=copy)
        for copy, name in enumerate(rules)
    ]


def average_position(task: MarketTask, agent: Track) -> Track:
    """Return what the agent's mean position in each window would have earned, held at no cost.

    The agent beats it exactly by its timing, less its costs: drift of the market that a constant
    position of the same size would have earned is no skill.
    """
    columns = {name: np.zeros(len(agent.bars)) for name in (*COST_NAMES, "turnover")}
    position, net, equity = (np.zeros(len(agent.bars)) for _ in range(3))
    price_return = _price_returns(task, agent)
    for window in agent.windows:
        part = slice(window.start, window.stop)
        position[part] = agent.bars.position[part].mean()
        net[part] = position[part] * price_return[part]
        equity[part] = equity_curve(net[part])
    bars = Series(
        time=agent.bars.time, net_return=net, equity=equity, position=position,
        exposure=np.abs(position), price=agent.bars.price, **columns,
    )  # fmt: skip
    return Track(
        name="average_position",
        label=LABELS["average_position"],
        unit="return",
        hindsight=True,
        windows=tuple(replace(window, ended="") for window in agent.windows),
        bars=bars,
        portfolio=equal_weight(bars, price_return),
    )


def _price_returns(task: MarketTask, track: Track) -> FloatArray:
    """Return close over the close before, minus 1, for each row of a track, [R]."""
    bars = task.bars
    moves = np.zeros(len(track.bars))
    for window in track.windows:
        part, rows = slice(window.start, window.stop), bars.rows(window.symbol)
        row = rows.start + np.searchsorted(bars.time[rows], track.bars.time[part])
        moves[part] = bars.close[row] / bars.close[row - 1] - 1.0
    return moves
