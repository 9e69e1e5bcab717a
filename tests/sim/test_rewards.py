"""Rewards: contracts over the whole union, and each one's own law."""

import dataclasses
from typing import get_args

import numpy as np
import pytest

from quantail.config_file import parse_config, write_config
from quantail.errors import ConfigError
from quantail.sim.config import SimConfig
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.random import env_seeds
from quantail.sim.rewards import (
    DifferentialSharpe,
    DrawdownPenalty,
    LogReturn,
    PotentialShaped,
    RewardConfig,
    SimpleReturn,
    check_gamma,
)
from quantail.sim.simulator import MarketSim
from tests.catalogue import catalogue
from tests.sim.markets import EXACT, FREE, bars_of_closes, make_bars

KINDS = get_args(get_args(RewardConfig)[0])
BARS = make_bars(120, volatility=0.05, jumps=0.05)
EPISODE = EpisodeConfig(length=60)


def rewards(config, actions, bars=BARS, seed=0):
    sim = MarketSim(bars, config=config, n_envs=actions.shape[1], seed=seed)
    return np.array([sim.step(a).reward.copy() for a in actions]), sim


@pytest.mark.parametrize("kind", KINDS)
def test_a_flat_market_gives_zero(kind):
    flat = bars_of_closes(np.full(80, 100.0))
    config = SimConfig(reward=kind(), costs=FREE, episodes=EPISODE)
    idle, _ = rewards(config, np.zeros((60, 2)), flat)
    assert (idle == 0).all()


@pytest.mark.parametrize("kind", KINDS)
def test_a_reward_is_finite_and_does_not_depend_on_other_envs(kind):
    config = SimConfig(reward=kind(), episodes=EPISODE)
    actions = np.random.default_rng(0).uniform(-1, 1, (100, 6))
    together, _ = rewards(config, actions)
    assert np.isfinite(together).all()
    assert np.abs(together).max() > 0
    alone, _ = rewards(config, actions[:, 2:3], seed=env_seeds(0, 6)[2])
    np.testing.assert_array_equal(alone[:, 0], together[:, 2])


@pytest.mark.parametrize("kind", KINDS)
def test_money_has_no_unit(kind):
    config = SimConfig(reward=kind(), episodes=EPISODE, costs=FREE)
    rich = dataclasses.replace(
        config, account=dataclasses.replace(config.account, initial_equity=1e6)
    )
    actions = np.random.default_rng(0).uniform(-1, 1, (50, 4))
    np.testing.assert_allclose(
        rewards(config, actions)[0], rewards(rich, actions)[0], rtol=1e-7, atol=1e-9
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_configuration_survives_the_file(kind):
    config = SimConfig(reward=kind())
    assert parse_config(SimConfig, write_config(config)) == config


def test_codes_are_all_different():
    assert len({kind.code for kind in KINDS}) == len(KINDS)


def test_log_rewards_add_up_to_the_growth_of_the_episode():
    config = SimConfig(reward=LogReturn(), episodes=EPISODE)
    actions = np.random.default_rng(1).uniform(-1, 1, (59, 5))
    values, sim = rewards(config, actions)
    growth = np.log(sim.out.column("equity") / 10_000.0)
    np.testing.assert_allclose(values.sum(axis=0), growth, rtol=1e-9, atol=1e-12)


def test_simple_returns_multiply_to_the_growth_of_the_episode():
    config = SimConfig(reward=SimpleReturn(), episodes=EPISODE)
    actions = np.random.default_rng(1).uniform(-1, 1, (59, 5))
    values, sim = rewards(config, actions)
    np.testing.assert_allclose((1 + values).prod(axis=0), sim.out.column("equity") / 10_000.0)


def test_differential_sharpe_is_the_slope_of_the_weighted_sharpe_ratio():
    """D = dS/dη at η = 0, by finite differences of S = A / √(B - A²)."""
    config = SimConfig(reward=DifferentialSharpe(eta=0.1), episodes=EPISODE, costs=FREE)
    actions = np.random.default_rng(1).uniform(-1, 1, (40, 1))
    values, _ = rewards(config, actions)
    returns, _ = rewards(dataclasses.replace(config, reward=SimpleReturn()), actions)
    mean = square = 0.0
    step = 1e-5

    def sharpe(eta, r):
        a, b = mean + eta * (r - mean), square + eta * (r * r - square)
        return a / np.sqrt(b - a * a)

    for value, r in zip(values[:, 0], returns[:, 0], strict=True):
        if square - mean**2 > 1e-6:
            slope = (sharpe(step, r) - sharpe(-step, r)) / (2 * step)
            assert value == pytest.approx(slope, rel=1e-4, abs=1e-6)
        else:
            assert value == 0
        mean, square = mean + 0.1 * (r - mean), square + 0.1 * (r * r - square)


def test_drawdown_is_charged_when_it_deepens_and_not_repaid():
    """All in: 100, 80, 100, 80: drawdown deepens twice by 0.2."""
    bars = bars_of_closes([100, 100, 80, 100, 80, 80])
    config = SimConfig(
        reward=DrawdownPenalty(coefficient=2.0), account=EXACT, costs=FREE,
        episodes=EpisodeConfig(length=4, start="first"),
    )  # fmt: skip
    values, _ = rewards(config, np.ones((4, 1)), bars)
    logs = np.log([1, 0.8, 1.25, 0.8])
    np.testing.assert_allclose(values[:, 0], logs - np.array([0, 0.4, 0, 0.4]), atol=1e-12)


def test_shaping_telescopes_over_an_episode():
    """Σ γ^t (shaped - plain) = γ^T Φ(s_T) - Φ(s_0) = γ^T Φ(s_T)."""
    gamma = 0.9
    shaped = PotentialShaped(gamma=gamma, position_weight=0.3, drawdown_weight=2.0)
    config = SimConfig(reward=shaped, episodes=EPISODE)
    plain = dataclasses.replace(config, reward=LogReturn())
    actions = np.random.default_rng(3).uniform(-1, 1, (25, 4))
    (one, sim), (two, _) = rewards(config, actions), rewards(plain, actions)
    discount = gamma ** np.arange(25)[:, None]
    drawdown = sim.out.observation[:, 2]
    end = -np.tanh(0.3 * np.abs(sim.out.column("position")) + 2.0 * drawdown)
    total = ((one - two) * discount).sum(axis=0)
    np.testing.assert_allclose(total, gamma**25 * end, rtol=1e-5, atol=1e-8)


def test_the_potential_of_a_ruined_account_is_zero():
    bars = bars_of_closes([100, 100, 60, 5, 5])
    shaped = PotentialShaped(gamma=1.0, position_weight=0.5, drawdown_weight=2.0)
    config = SimConfig(
        reward=shaped, account=EXACT, costs=FREE, episodes=EpisodeConfig(length=4, start="first")
    )
    values, sim = rewards(config, np.ones((3, 1)), bars)
    assert sim.out.terminated[0]
    assert values.sum() == pytest.approx(np.log(500 / 10_000))  # nothing of Φ is left


def test_gamma_of_the_shaping_must_be_the_agents():
    check_gamma(PotentialShaped(gamma=0.95), 0.95)
    check_gamma(LogReturn(), 0.5)
    with pytest.raises(
        ConfigError, match="reward.gamma: must equal the agent's gamma, 0.99; was 0.95"
    ):
        check_gamma(PotentialShaped(gamma=0.95), 0.99)


def test_clipping_happens_once_after_costs_and_the_record_keeps_the_raw_value():
    config = SimConfig(episodes=EPISODE, reward_clip=0.001, turnover_penalty=0.01)
    actions = np.random.default_rng(0).uniform(-1, 1, (30, 8))
    sim = MarketSim(BARS, config=config, n_envs=8)
    for a in actions:
        out = sim.step(a)
        raw = out.column("reward_raw")
        np.testing.assert_array_equal(out.reward, np.clip(raw, -0.001, 0.001))
        penalty = 0.01 * out.column("traded") / out.column("equity_before")
        np.testing.assert_allclose(out.column("turnover_penalty"), penalty)
        growth = np.log(out.column("equity") / out.column("equity_before"))
        np.testing.assert_allclose(raw, growth - penalty, rtol=1e-9, atol=1e-12)


def test_the_turnover_penalty_never_touches_the_books():
    actions = np.random.default_rng(0).uniform(-1, 1, (30, 3))
    one = rewards(SimConfig(episodes=EPISODE), actions)[1]
    two = rewards(SimConfig(episodes=EPISODE, turnover_penalty=0.5), actions)[1]
    np.testing.assert_array_equal(one.out.column("equity"), two.out.column("equity"))


@catalogue("X39")
def test_costs_are_in_the_reward_by_default_and_the_header_says_which():
    actions = np.random.default_rng(0).uniform(-1, 1, (30, 3))
    config = SimConfig(episodes=EPISODE)
    assert config.costs_in_reward
    sim = MarketSim(BARS, config=config, n_envs=3)
    bare = MarketSim(BARS, config=dataclasses.replace(config, costs_in_reward=False), n_envs=3)
    for a in actions:
        out, other = sim.step(a), bare.step(a)
        np.testing.assert_array_equal(out.column("equity"), other.column("equity"))
        before, after = out.column("equity_before"), out.column("equity")
        np.testing.assert_allclose(out.reward, np.log(after / before), rtol=1e-9)
        gross = after + out.column("cost_fraction") * before
        np.testing.assert_allclose(other.reward, np.log(gross / before), rtol=1e-6, atol=1e-12)
        assert (out.column("fees") > 0).any()
    assert "costs in the reward: yes; reward log_return, not clipped" in sim.describe()
    assert "COSTS IN THE REWARD: NO" in bare.describe()


def test_an_empty_potential_is_refused():
    with pytest.raises(ConfigError, match="must not both be 0"):
        PotentialShaped(position_weight=0.0, drawdown_weight=0.0)
