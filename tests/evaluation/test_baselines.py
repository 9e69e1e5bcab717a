import dataclasses

import numpy as np
import pytest

from quantail.evaluation import backtest as module
from quantail.evaluation.backtest import MarketTask, backtest
from quantail.evaluation.baselines import (
    average_position,
    constant_positions,
    market_baselines,
    momentum_targets,
)
from quantail.evaluation.policies import TargetRule
from quantail.sim.account import AccountConfig
from quantail.sim.actions import ContinuousActions, DiscreteActions
from quantail.sim.config import SimConfig
from quantail.sim.costs import CostConfig, NoSlippage
from tests.sim.markets import EXACT, FREE, make_bars


@pytest.fixture(scope="module")
def bars():
    raw = make_bars(100, 2, seed=8, volatility=0.02)
    return dataclasses.replace(raw, funding=None)


def task_of(bars, config=None, rows=((10, 90), (110, 200))):
    config = config or SimConfig(costs=FREE, account=EXACT)
    return MarketTask.of_rows(bars, None, np.array(rows), config)


def by_name(tracks):
    return {track.name: track for track in tracks}


def test_the_usual_baselines_are_there(bars):
    tracks = market_baselines(task_of(bars), 20)
    assert [track.name for track in tracks] == ["flat", "buy_and_hold", "momentum", "best_constant"]
    assert [track.hindsight for track in tracks] == [False, False, False, True]
    assert all(len(track.bars) == 79 + 89 for track in tracks)


def test_flat_does_nothing(bars):
    flat = by_name(market_baselines(task_of(bars, SimConfig()), 20))["flat"]
    assert not flat.bars.net_return.any()
    assert not flat.bars.turnover.any()


def test_buy_and_hold_earns_what_the_price_did(bars):
    held = by_name(market_baselines(task_of(bars), 20))["buy_and_hold"]
    first = held.window(0)
    # bought at the open of the first bar after the decision
    assert first.equity[-1] == pytest.approx(bars.close[89] / bars.open[11], rel=1e-9)
    np.testing.assert_allclose(first.position, 1.0)
    assert first.turnover[1:].sum() == pytest.approx(0.0, abs=1e-9)


def test_buy_and_hold_of_a_levered_account_is_not_levered(bars):
    config = SimConfig(costs=FREE, account=AccountConfig(max_leverage=4.0, minimum_trade=0.0))
    held = by_name(market_baselines(task_of(bars, config), 20))["buy_and_hold"]
    np.testing.assert_allclose(held.bars.position, 1.0, atol=1e-9)


def test_baselines_pay_costs(bars):
    paid = CostConfig(slippage=NoSlippage())
    config = SimConfig(costs=paid, account=EXACT)
    held = by_name(market_baselines(task_of(bars, config), 20))["buy_and_hold"]
    assert held.bars.fee[0] > 0.0
    free = by_name(market_baselines(task_of(bars), 20))["buy_and_hold"]
    assert held.portfolio.equity[-1] < free.portfolio.equity[-1]


def test_momentum_follows_the_past_and_knows_no_other_symbol(bars):
    targets = momentum_targets(bars, 7)
    for symbol in bars.symbols:
        rows = bars.rows(symbol)
        assert not targets[rows.start : rows.start + 7].any()
        for row in range(rows.start + 7, rows.stop, 5):
            assert targets[row] == np.sign(bars.close[row] - bars.close[row - 7])


def test_momentum_does_not_see_the_future(bars):
    later = dataclasses.replace(
        bars, **{name: np.where(np.arange(200) >= 60, 2.0, 1.0) * getattr(bars, name)
                 for name in ("open", "high", "low", "close")},
    )  # fmt: skip
    np.testing.assert_array_equal(momentum_targets(later, 7)[:60], momentum_targets(bars, 7)[:60])


def test_momentum_of_a_window_longer_than_the_data_is_flat(bars):
    assert not momentum_targets(bars, 500).any()


def test_the_best_constant_is_the_best(bars):
    task = task_of(bars)
    best = by_name(market_baselines(task, 20))["best_constant"]
    totals = {
        constant: backtest(
            task, TargetRule(np.full((200, 1), constant), task.config.actions, 2)
        ).portfolio.equity[-1]
        for constant in np.arange(-10, 11) / 10
    }
    constant = max(totals, key=totals.get)
    assert best.portfolio.equity[-1] == pytest.approx(totals[constant], rel=1e-12)
    assert best.label.endswith(f": {constant:+g}")


def test_small_groups_give_the_same(bars, monkeypatch):
    task = task_of(bars)
    whole = by_name(market_baselines(task, 20))
    monkeypatch.setattr(module, "_MOST_STEPS", 1)
    for name, track in by_name(market_baselines(task, 20)).items():
        np.testing.assert_array_equal(track.bars.equity, whole[name].bars.equity)
        assert track.label == whole[name].label


def test_constants_are_those_the_agent_could_choose():
    assert constant_positions(SimConfig()).tolist() == [i / 10 for i in range(-10, 11)]
    long_only = SimConfig(actions=ContinuousActions(long_only=True))
    assert constant_positions(long_only).min() == 0.0
    levels = (-0.5, 0.0, 1.0)
    discrete = SimConfig(actions=DiscreteActions(levels=levels))
    assert constant_positions(discrete).tolist() == list(levels)


def test_the_average_position_has_the_market_and_no_timing(bars):
    task = task_of(bars, SimConfig(), rows=((30, 90), (130, 200)))
    targets = np.random.default_rng(0).uniform(-1, 1, (200, 1))
    agent = backtest(task, TargetRule(targets, task.config.actions, 2))
    held = average_position(task, agent)
    assert held.hindsight
    assert not held.bars.costs.any()
    for index, (_, rows) in enumerate(task.windows):
        mean = agent.window(index).position.mean()
        close = bars.close[rows.start : rows.stop]
        expected = mean * (close[1:] / close[:-1] - 1.0)
        np.testing.assert_allclose(held.window(index).net_return, expected, atol=1e-15)
    np.testing.assert_array_equal(held.portfolio.price, agent.portfolio.price)


def test_a_constant_agent_has_no_timing(bars):
    task = task_of(bars)
    agent = backtest(task, TargetRule(np.ones((200, 1)), task.config.actions, 2))
    difference = agent.bars.net_return - average_position(task, agent).bars.net_return
    # only the first bar differs: bought at its open, not at the close before
    starts = [0, 79]
    assert np.abs(np.delete(difference, starts)).max() < 1e-12
