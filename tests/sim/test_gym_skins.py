"""Gymnasium skins: the checkers pass, and every skin shows the same trajectories."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from quantail.errors import ConfigError
from quantail.sim.actions import DiscreteActions
from quantail.sim.config import SimConfig
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.gym_env import MarketEnv, MarketVectorEnv
from quantail.sim.random import env_seeds
from quantail.sim.simulator import MarketSim
from tests.sim.markets import make_bars, make_features

BARS = make_bars(120)
FEATURES = make_features(BARS)
SHORT = SimConfig(episodes=EpisodeConfig(length=10))
DISCRETE = SimConfig(episodes=EpisodeConfig(length=10), actions=DiscreteActions())


@pytest.mark.parametrize("config", [SHORT, DISCRETE], ids=["continuous", "discrete"])
def test_gymnasium_checker_finds_nothing(config):
    env = gym.make("Quantail/Market-v0", bars=BARS, features=FEATURES, config=config)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # An observation without bounds is meant: features are not ours to limit.
        warnings.filterwarnings("ignore", message=".*Box observation space m.*imum value is.*inf")
        check_env(env.unwrapped)


@pytest.mark.parametrize("config", [SHORT, DISCRETE], ids=["continuous", "discrete"])
def test_env_gives_the_trajectory_of_the_simulator(config):
    env = MarketEnv(BARS, FEATURES, config=config)
    sim = MarketSim(BARS, FEATURES, config=config, seed=11, autoreset="disabled")
    observation, _ = env.reset(seed=11)
    np.testing.assert_array_equal(observation, sim.out.observation[0])
    env.action_space.seed(0)
    for step in range(10):
        action = env.action_space.sample()
        observation, reward, terminated, truncated, info = env.step(action)
        out = sim.step(np.atleast_1d(action))
        np.testing.assert_array_equal(observation, out.observation[0])
        assert (reward, terminated, truncated) == (out.reward[0], False, step == 9)
        assert info["equity"] == out.column("equity")[0]
        assert info["sample_weight"] == 1.0
    assert info["episode_summary"]["length"] == 10
    assert info["episode_summary"]["end_reason"] == "time_limit"


def test_env_without_a_seed_differs_from_run_to_run_but_goes_on_with_its_stream():
    first, second = (MarketEnv(BARS, FEATURES, config=SHORT) for _ in range(2))
    starts = [[env.reset()[0].tobytes() for _ in range(8)] for env in (first, second)]
    assert starts[0] != starts[1]
    assert len(set(starts[0])) > 1


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_vector_env_resets_like_gymnasiums_own(mode):
    """Against gymnasium's SyncVectorEnv over our single env, through three episodes."""
    n_envs = 3
    ours = gym.make_vec(
        "Quantail/Market-v0", num_envs=n_envs, bars=BARS, features=FEATURES, config=SHORT,
        autoreset_mode=mode,
    )  # fmt: skip
    assert isinstance(ours, MarketVectorEnv)
    theirs = gym.vector.SyncVectorEnv(
        [lambda: MarketEnv(BARS, FEATURES, config=SHORT)] * n_envs, autoreset_mode=mode
    )
    assert ours.metadata["autoreset_mode"] == mode
    one, two = ours.reset(seed=4)[0], theirs.reset(seed=env_seeds(4, n_envs))[0]
    np.testing.assert_array_equal(one, two)
    rng = np.random.default_rng(0)
    for _ in range(35):
        actions = rng.uniform(-1, 1, (n_envs, 1)).astype(np.float32)
        a, b = ours.step(actions), theirs.step(actions)
        for mine, reference in zip(a[:4], b[:4], strict=True):
            np.testing.assert_array_equal(mine, reference)
        assert ("final_obs" in a[4]) == ("final_obs" in b[4])
        if "final_obs" in a[4]:
            for env in range(n_envs):
                np.testing.assert_array_equal(a[4]["final_obs"][env], b[4]["final_obs"][env])


def test_vector_env_without_autoreset_resets_by_mask():
    env = MarketVectorEnv(BARS, FEATURES, config=SHORT, num_envs=2, autoreset_mode="Disabled")
    env.reset(seed=1)
    for _ in range(12):
        observation, _, _, truncated, _ = env.step(np.zeros((2, 1)))
    assert truncated.all()
    fresh, _ = env.reset(options={"reset_mask": np.array([True, False])})
    np.testing.assert_array_equal(fresh[1], observation[1])
    assert fresh[0, -1] == 1.0  # time left
    assert not env.step(np.zeros((2, 1)))[3][0]


def test_vector_env_refuses_half_given_seeds():
    env = MarketVectorEnv(BARS, FEATURES, config=SHORT, num_envs=2)
    with pytest.raises(ConfigError, match="one number for each env; some were None"):
        env.reset(seed=[1, None])
