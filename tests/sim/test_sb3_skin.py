"""The VecEnv skin under Stable-Baselines3's own tools."""

import numpy as np
import pytest
from sb3_contrib import MaskablePPO
from stable_baselines3 import PPO
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize

from quantail import DistributionalPPO
from quantail.errors import ConfigError
from quantail.sb3.vec_env import MarketVecEnv
from quantail.sim.actions import DiscreteActions
from quantail.sim.config import SimConfig
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.gym_env import MarketEnv
from quantail.sim.rewards import PotentialShaped
from quantail.sim.simulator import MarketSim
from tests.sim.markets import make_bars, make_features

BARS = make_bars(120, no_trade=True)
FEATURES = make_features(BARS)
SHORT = SimConfig(episodes=EpisodeConfig(length=10))
DISCRETE = SimConfig(episodes=EpisodeConfig(length=10), actions=DiscreteActions())


def make(config=SHORT, n_envs=4, **kwargs) -> MarketVecEnv:
    return MarketVecEnv(MarketSim(BARS, FEATURES, config=config, n_envs=n_envs), **kwargs)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("config", [SHORT, DISCRETE], ids=["continuous", "discrete"])
def test_sb3_checker_finds_nothing(config):
    check_env(MarketEnv(BARS, FEATURES, config=config))


def test_skin_equals_sb3s_own_vec_env_over_single_envs():
    ours = make()
    theirs = DummyVecEnv([lambda: MarketEnv(BARS, FEATURES, config=SHORT)] * 4)
    theirs._seeds = list(ours.seed(21))
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    rng = np.random.default_rng(0)
    endings = 0
    for _ in range(35):
        actions = rng.uniform(-1, 1, (4, 1)).astype(np.float32)
        a, b = ours.step(actions), theirs.step(actions)
        for mine, reference in zip(a[:3], b[:3], strict=True):
            np.testing.assert_array_equal(mine, reference)
            assert mine.dtype == reference.dtype
        for mine, reference, done in zip(a[3], b[3], a[2], strict=True):
            if not done:
                assert mine == {}  # built lazily
                continue
            endings += 1
            assert mine["TimeLimit.truncated"] == reference["TimeLimit.truncated"]
            np.testing.assert_array_equal(
                mine["terminal_observation"], reference["terminal_observation"]
            )
    assert endings == 12


def test_neighboring_seeds_share_no_env():
    first, second = make().seed(0), make().seed(1)
    assert not set(first) & set(second)
    assert make().seed(0) == first


def test_requested_keys_are_in_every_info():
    env = make(info_keys=("equity", "cost_fraction", "sample_weight"))
    env.reset()
    infos = env.step(np.full((4, 1), 0.5))[3]
    out = env.sim.out
    assert [info["equity"] for info in infos] == out.column("equity").tolist()
    assert [info["sample_weight"] for info in infos] == env.sample_weight.tolist()


def test_what_is_written_into_an_info_does_not_come_back():
    env = make()
    env.reset()
    infos = env.step(np.zeros((4, 1)))[3]
    infos[2]["mine"] = 1
    later = env.step(np.zeros((4, 1)))[3]
    assert later == [{}, {}, {}, {}]
    assert infos[2] == {"mine": 1}


def test_returned_arrays_do_not_change_with_the_next_step():
    env = make()
    env.reset()
    first = env.step(np.ones((4, 1)))
    kept = [array.copy() for array in first[:3]]
    env.step(-np.ones((4, 1)))
    for array, copy in zip(first[:3], kept, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_ppo_learns_through_wrappers():
    env = VecNormalize(VecMonitor(make(n_envs=8)))
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=64, n_epochs=1, seed=0)
    model.learn(512)
    assert len(model.ep_info_buffer) > 0
    assert {"r", "l"} <= set(model.ep_info_buffer[0])


def test_maskable_ppo_reads_the_masks():
    env = make(DISCRETE)
    model = MaskablePPO("MlpPolicy", env, n_steps=32, batch_size=64, n_epochs=1, seed=0)
    model.learn(128)
    masks = model.rollout_buffer.action_masks
    assert (masks == 0).any()
    assert (masks == 1).any()


def test_the_agents_discount_is_checked_against_the_reward():
    env = VecNormalize(
        VecMonitor(make(SimConfig(reward=PotentialShaped(gamma=0.9), episodes=SHORT.episodes)))
    )
    env.unwrapped.check_gamma(0.9)
    with pytest.raises(ConfigError, match="reward.gamma: must equal the agent's gamma, 0.99"):
        env.unwrapped.check_gamma(0.99)
    with pytest.raises(ConfigError, match="reward.gamma: must equal the agent's gamma, 0.99"):
        DistributionalPPO("MlpPolicy", env, gamma=0.99)
    agent = DistributionalPPO("MlpPolicy", VecMonitor(make()), gamma=0.99, n_steps=8, batch_size=32)
    agent.set_env(env)
    with pytest.raises(ConfigError, match="reward.gamma: must equal the agent's gamma, 0.99"):
        agent.learn(8)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: make(info_keys=("equty",)), "info_keys must be among equity_before.*'equty'"),
        (
            lambda: MarketVecEnv(MarketSim(BARS, FEATURES, autoreset="disabled", config=SHORT)),
            "must be 'same_step' for a VecEnv; was 'disabled'",
        ),
        (lambda: make().set_attr("config", 1), "config cannot be set: the envs share one"),
    ],
)
def test_misuse_is_refused(build, message):
    with pytest.raises(ConfigError, match=message):
        build()


def test_a_method_that_no_env_has_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no method 'restart'; call it on the simulator"):
        make().env_method("restart")
