import dataclasses

import numpy as np
import pytest

from quantail.errors import DataError
from quantail.evaluation.backtest import MarketTask, backtest, make_track, run_market, run_markets
from quantail.evaluation.policies import Forecast, Moment, TargetRule, target_actions
from quantail.evaluation.record import COST_NAMES
from quantail.sim.account import AccountConfig, FillConfig
from quantail.sim.actions import ContinuousActions, DiscreteActions
from quantail.sim.config import ObservationConfig, SimConfig
from quantail.sim.costs import CostConfig, NoSlippage, SquareRootImpact
from quantail.sim.simulator import MarketSim
from quantail.sim.stress import StressConfig
from tests.sim.markets import EXACT, FREE, make_bars

CONFIG = SimConfig(
    costs=CostConfig(slippage=SquareRootImpact(window=5), borrow_rate=0.05),
    observation=ObservationConfig(account_state=True),
)


class Wandering:
    """A policy with memory: a random walk of the target that looks at observations and rewards."""

    def __init__(self, n_features, seed=0):
        self.weights = np.random.default_rng(seed).normal(0.0, 0.5, n_features)

    def act(self, moment: Moment, state):
        state = np.zeros(len(moment.rows)) if state is None else state
        assert moment.starts.all() == (not state.any())
        seen = moment.observations[:, : len(self.weights)].astype(float) @ self.weights
        state = 0.8 * state + np.tanh(seen)
        return np.tanh(state)[:, None].astype(np.float32), state

    def receive(self, state, rewards):
        return state + 10.0 * rewards + 1e-12

    def forecast(self, state):
        return Forecast(np.tile([0.0, 1.0], (len(state), 1)), np.full((len(state), 2), 0.5))


@pytest.fixture(scope="module")
def market():
    bars = make_bars(120, 3, seed=4, volatility=0.02)
    features = np.random.default_rng(1).normal(size=(bars.n_bars, 3)).astype(np.float32)
    return bars, features


@pytest.fixture(scope="module")
def task(market):
    # two windows of the first symbol, one of each other, of different lengths and times
    rows = np.array([[20, 60], [70, 110], [150, 240], [300, 330]])
    return MarketTask.of_rows(*market, rows, CONFIG)


@pytest.fixture(scope="module")
def track(task):
    return backtest(task, Wandering(3))


def test_windows_belong_to_their_symbols(task, market):
    symbols = market[0].symbols
    assert [symbol for symbol, _ in task.windows] == [
        symbols[0],
        symbols[0],
        symbols[1],
        symbols[2],
    ]


def test_every_bar_of_every_window_is_there_once(track, task, market):
    bars = market[0]
    for index, (symbol, rows) in enumerate(task.windows):
        series = track.window(index)
        # the first decision is made at the close of the first bar, so its return is none of ours
        np.testing.assert_array_equal(series.time, bars.time[rows.start + 1 : rows.stop])
        np.testing.assert_array_equal(series.price, bars.close[rows.start + 1 : rows.stop])
        assert track.windows[index].symbol == symbol
    assert len(track.bars) == sum(rows.stop - rows.start - 1 for _, rows in task.windows)


def test_a_window_alone_gives_the_same_bars(track, task):
    for index, window in enumerate(task.windows):
        alone = backtest(dataclasses.replace(task, windows=(window,)), Wandering(3))
        for name in ("net_return", "equity", "position", "turnover", *COST_NAMES):
            np.testing.assert_allclose(
                getattr(alone.bars, name), getattr(track.window(index), name), atol=1e-12
            )


def test_a_plain_loop_over_one_account_gives_the_same_equity(track, task, market):
    symbol, rows = task.windows[2]
    sim = MarketSim.over_windows(*market, [(symbol, rows)], CONFIG)
    policy, state, observation = Wandering(3), None, sim.reset()
    equity, position = [], []
    for step in range(rows.stop - rows.start - 1):
        moment = Moment(observation.copy(), np.array([rows.start + step]), np.array([step == 0]))
        action, state = policy.act(moment, state)
        out = sim.step(action)
        state = policy.receive(state, out.reward)
        equity.append(out.column("equity")[0])
        position.append(out.column("position")[0])
        observation = out.observation
    np.testing.assert_allclose(track.window(2).equity, np.array(equity) / 10_000, rtol=1e-12)
    np.testing.assert_allclose(track.window(2).position, position, rtol=1e-12)


def test_equity_compounds_net_returns_in_each_window(track):
    for index in range(len(track.windows)):
        series = track.window(index)
        np.testing.assert_allclose(series.equity, np.cumprod(1.0 + series.net_return), rtol=1e-12)
    assert (track.bars.fee > 0).any()
    assert (track.bars.slippage > 0).any()
    assert (track.bars.borrow > 0).any()
    np.testing.assert_array_equal(track.bars.exposure, np.abs(track.bars.position))


def test_net_return_is_price_move_less_costs(market):
    # Filled at the close that is seen, a position earns the next close-to-close move, less costs.
    config = SimConfig(
        fill=FillConfig(price="close", delay=0), account=EXACT,
        costs=CostConfig(slippage=NoSlippage(), borrow_rate=0.05),
    )  # fmt: skip
    task = MarketTask.of_rows(*market, np.array([[20, 60]]), config)
    series = backtest(task, Wandering(3)).bars
    close = market[0].close[19:60]
    move = (close[2:] / close[1:-1] - 1.0)[: len(series)]
    # the position after the fill: that at the close, taken back over the bar's move
    held = series.position * (1.0 + series.net_return) / (1.0 + move)
    np.testing.assert_allclose(series.net_return, held * move - series.costs, atol=1e-12)


def test_the_portfolio_is_the_mean_of_the_windows_that_trade(track):
    portfolio, bars = track.portfolio, track.bars
    assert (np.diff(portfolio.time) > np.timedelta64(0)).all()
    assert set(portfolio.time) == set(bars.time)
    counts = set()
    for moment in portfolio.time[::7]:
        rows, here = bars.time == moment, portfolio.time == moment
        counts.add(int(rows.sum()))
        for name in ("net_return", "position", "exposure", "turnover", *COST_NAMES):
            expected = getattr(bars, name)[rows].mean()
            assert getattr(portfolio, name)[here][0] == pytest.approx(expected, abs=1e-15)
    assert len(counts) > 1
    np.testing.assert_allclose(portfolio.equity, np.cumprod(1.0 + portfolio.net_return))


def test_later_bars_do_not_matter(track, task, market):
    bars, features = market
    changed = features.copy()
    changed[110:] = 7.0
    prices = {
        name: np.where(np.arange(bars.n_bars) >= 110, 3.0, 1.0) * getattr(bars, name)
        for name in ("open", "high", "low", "close")
    }
    first = dataclasses.replace(
        task, bars=dataclasses.replace(bars, **prices), features=changed, windows=task.windows[:2]
    )
    for index in range(2):
        np.testing.assert_array_equal(
            backtest(first, Wandering(3)).window(index).equity, track.window(index).equity
        )


def test_several_simulators_run_as_each_alone(task):
    sims = [task.simulator(), task.simulator(cost_scale=3.0), task.delayed(2).simulator()]
    together = run_markets(sims, Wandering(3), forecast_every=10)
    alone = [
        run_market(sim, Wandering(3), 10)
        for sim in (task.simulator(), task.simulator(cost_scale=3.0), task.delayed(2).simulator())
    ]
    for ours, theirs in zip(together, alone, strict=True):
        np.testing.assert_allclose(ours.record, theirs.record, rtol=1e-12)
        np.testing.assert_allclose(ours.rewards, theirs.rewards, atol=1e-12)
        assert len(ours.forecasts) == len(theirs.forecasts) == 9
        assert ours.forecasts[0].atoms.shape == (4, 2)
    equities = [run.column("equity")[-1, 2] for run in together]
    assert len(set(equities)) == 3


def test_stress_of_training_is_switched_off(task, track):
    stressed = dataclasses.replace(
        CONFIG, stress=StressConfig(cost_multiplier=(2.0, 5.0), missing_probability=0.2)
    )
    again = backtest(dataclasses.replace(task, config=stressed), Wandering(3))
    np.testing.assert_array_equal(again.bars.equity, track.bars.equity)


def test_costs_scale_and_delays_delay(task):
    rule = TargetRule(np.sign(np.sin(np.arange(360) / 3.0))[:, None], CONFIG.actions, 4)
    plain, double = (
        make_track(task, run_market(task.simulator(cost_scale=scale), rule), name="", label="")
        for scale in (1.0, 2.0)
    )
    first = slice(0, 1)  # before equity differs
    assert double.bars.fee[first] == pytest.approx(2.0 * plain.bars.fee[first], rel=0.01)
    late = backtest(task.delayed(1), rule)
    assert plain.bars.position[0] != 0.0
    assert late.bars.position[0] == 0.0
    assert np.sign(late.bars.position[1:38]).tolist() == np.sign(plain.bars.position[:37]).tolist()


def test_a_ruined_account_stays_in_the_portfolio(market):
    config = SimConfig(
        account=AccountConfig(max_leverage=20.0, minimum_trade=0.0), costs=FREE,
        actions=ContinuousActions(),
    )  # fmt: skip
    rows = np.array([[0, 120], [120, 240]])
    task = MarketTask.of_rows(*market, rows, config)
    targets = np.zeros((360, 1))
    targets[:120] = 1.0  # 20 times the equity in the first symbol, none in the second
    track = backtest(task, TargetRule(targets, config.actions, 2))
    assert [window.ended for window in track.windows] == ["bankrupt", ""]
    first = track.window(0)
    end = int(np.flatnonzero(first.position)[-1]) + 1
    assert end < len(first)
    assert first.equity[-1] == first.equity[end] <= 0.1
    assert (first.net_return[end + 1 :] == 0.0).all()
    np.testing.assert_allclose(track.portfolio.net_return, 0.5 * first.net_return)


def test_targets_become_the_nearest_actions():
    targets = np.array([-1.0, -0.4, 0.2, 1.0])
    both, long_only = ContinuousActions(), ContinuousActions(long_only=True)
    np.testing.assert_allclose(target_actions(targets, both), targets)
    np.testing.assert_allclose(target_actions(targets, long_only), [-1.0, -1.0, -0.6, 1.0])
    discrete = DiscreteActions(levels=(-1.0, 0.0, 0.5, 1.0))
    assert target_actions(targets, discrete).tolist() == [0, 1, 1, 3]


def test_no_window_is_refused(market):
    with pytest.raises(DataError, match="needs at least one window"):
        MarketTask.of_rows(*market, np.empty((0, 2), np.int64), CONFIG)
