"""One constant position is told from trading, whatever its size."""

import numpy as np
import pytest
import torch

from quantail import DistributionalPPO
from quantail.evaluation.backtest import MarketTask
from quantail.evaluation.bootstrap import BootstrapConfig
from quantail.evaluation.constant import (
    LEAST_SHARE,
    constant_position,
    largest_position,
    size_of,
)
from quantail.evaluation.curves import MarketEvaluation
from quantail.evaluation.evaluate_market import judge_market
from quantail.sb3.vec_env import MarketVecEnv
from quantail.sim.account import AccountConfig
from quantail.sim.actions import ContinuousActions, DiscreteActions
from quantail.sim.config import SimConfig
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.simulator import MarketSim
from tests.sim.markets import make_bars


@pytest.mark.parametrize("held", [-1.0, -0.3, 0.0, 0.5, 1.0])
def test_a_position_of_any_size_that_is_held_nearly_always_is_found(held):
    rng = np.random.default_rng(0)
    positions = held + rng.normal(0.0, 0.005, 1000)  # drifts with the price
    positions[:10] = 0.7  # before it came to that
    found = constant_position(positions, 1.0)
    assert found.position == pytest.approx(held, abs=0.01)
    assert found.share == pytest.approx(0.99)
    assert f"about {f'{held:+.2f}' if held else '0'} for 99.0% of the test" in found.sentence(
        "the test"
    )


def test_the_share_decides():
    positions = np.full(1000, -1.0)
    positions[: round(1000 * (1.0 - LEAST_SHARE))] = 1.0
    assert constant_position(positions, 1.0).share == pytest.approx(LEAST_SHARE)
    positions[: round(1000 * (1.0 - LEAST_SHARE)) + 1] = 1.0
    assert constant_position(positions, 1.0) is None


def test_small_moves_count_by_the_largest_position():
    positions = np.tile([-0.04, 0.04], 500)
    assert constant_position(positions, 1.0).position == pytest.approx(0.0)
    assert constant_position(positions, 0.1) is None


@pytest.mark.parametrize(
    "positions",
    [np.tile([-1.0, 1.0], 50), np.repeat([-1.0, 1.0], 50), np.full(9, np.nan), np.zeros(0)],
    ids=["often", "once", "unknown", "none"],
)
def test_trading_and_the_unknown_are_not_constant(positions):
    assert constant_position(positions, 1.0) is None


def test_where_one_position_is_the_best_there_is_holding_it_is_no_fault():
    assert size_of(np.tile([-2.0, 1.0], 50)) == 2.0
    for best in (np.zeros(100), np.full(100, 1.0), np.full(100, np.nan)):
        assert np.isnan(size_of(best))
        assert constant_position(np.zeros(100), size_of(best)) is None


@pytest.mark.parametrize(
    ("account", "actions", "largest"),
    [
        ({"max_leverage": 3.0}, ContinuousActions(), 3.0),
        ({"max_leverage": 3.0}, DiscreteActions(levels=(-0.1, 0.0, 0.05)), 0.3),
        ({"max_notional": 200.0, "initial_equity": 10_000.0}, ContinuousActions(), 0.02),
        ({"max_notional": 9_000.0}, DiscreteActions(levels=(0.0, 0.01)), 0.01),
    ],
    ids=["leverage", "levels", "notional", "the least of them"],
)
def test_the_largest_position_is_what_all_limits_leave(account, actions, largest):
    config = SimConfig(account=AccountConfig(**account), actions=actions)
    assert largest_position(config) == pytest.approx(largest)


def one_judgment(bias, weight, account=AccountConfig()):  # noqa: B008 - frozen
    bars = make_bars(200, 2, seed=3, volatility=0.01)
    features = np.random.default_rng(0).normal(size=(400, 2)).astype(np.float32)
    config = SimConfig(account=account, episodes=EpisodeConfig(length=50))
    env = MarketVecEnv(MarketSim(bars, features, config=config, n_envs=4))
    agent = DistributionalPPO("MlpPolicy", env, n_steps=8, batch_size=16, gamma=0.6, seed=0)
    with torch.no_grad():
        for name, parameter in agent.policy.net.actor.named_parameters():
            parameter.mul_(weight) if name.endswith("weight") else parameter.fill_(bias)
    task = MarketTask.of_rows(bars, features, np.array([[100, 200], [300, 400]]), config)
    settings = MarketEvaluation(
        bootstrap=BootstrapConfig(samples=100), cost_factors=(), delays=(), sampled=False
    )
    return judge_market(task, agent, role="test", split="x", settings=settings)


def test_an_evaluation_says_that_the_agent_sits_at_minus_one():
    found, evidence = one_judgment(bias=-50.0, weight=1.0)
    (said,) = (note for note in found.notes if "one constant position" in note)
    assert said.startswith("The agent holds a position of about -1.00 for 99.0% of the test")
    assert said == evidence.constant.sentence("the test")


def test_an_evaluation_of_an_agent_that_trades_says_nothing_of_the_kind():
    found, evidence = one_judgment(bias=0.0, weight=100.0)
    assert found.measures["agent"].turnover.value > 10.0
    assert evidence.constant is None
    assert not any("one constant position" in note for note in found.notes)


def test_an_agent_that_trades_within_a_small_notional_is_not_constant():
    account = AccountConfig(initial_equity=10_000.0, max_notional=200.0)
    found, evidence = one_judgment(bias=0.0, weight=100.0, account=account)
    assert 0.01 < np.abs(found.track("agent").bars.position).max() < 0.025
    assert evidence.constant is None
    assert not any("one constant position" in note for note in found.notes)
