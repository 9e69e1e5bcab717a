"""Problems behind gymnasium's and Stable-Baselines3's interfaces."""

import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecMonitor

from quantail.errors import ConfigError
from quantail.sb3.problem_vec_env import ProblemVecEnv
from quantail.sim.problems import HiddenRegime, ProportionalCost, TMaze
from quantail.sim.problems.vector_env import ProblemVectorEnv


@pytest.mark.parametrize("problem", [ProportionalCost(episode_length=5), TMaze(length=4)])
def test_gymnasium_vector_env_passes_the_problem_through(problem):
    env, plain = ProblemVectorEnv(problem.build(3, 0)), problem.build(3, 0)
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    observation, info = env.reset(seed=9)
    np.testing.assert_array_equal(observation, plain.reset(9))
    assert info == {}
    assert env.observation_space.contains(observation)
    env.action_space.seed(0)
    for step in range(5):
        actions = env.action_space.sample()
        observation, reward, terminated, truncated, info = env.step(actions)
        expected = plain.step(actions)
        np.testing.assert_array_equal(observation, expected.observation)
        np.testing.assert_array_equal(reward, expected.reward)
        np.testing.assert_array_equal(terminated, expected.terminated)
        np.testing.assert_array_equal(truncated, expected.truncated)
        assert ("final_obs" in info) == (step == 4)
    np.testing.assert_array_equal(info["final_obs"], expected.final_observation)
    np.testing.assert_array_equal(info["_final_obs"], [True, True, True])
    env.close()


def test_gymnasium_vector_env_refuses_what_it_cannot_do():
    env = ProblemVectorEnv(TMaze().build(2, 0))
    with pytest.raises(ConfigError, match="seed: must be one whole number.* a list of 2"):
        env.reset(seed=[1, 2])
    with pytest.raises(ConfigError, match="options: must be empty"):
        env.reset(options={"low": 1})


@pytest.mark.parametrize(
    ("problem", "is_truncated"),
    [(ProportionalCost(episode_length=5), True), (TMaze(length=4), False)],
)
def test_sb3_vec_env_gives_final_observations_and_time_limits(problem, is_truncated):
    env, plain = ProblemVecEnv(problem.build(3, 0)), problem.build(3, 0)
    env.seed(9)
    np.testing.assert_array_equal(env.reset(), plain.reset(9))
    for _ in range(5):
        actions = np.array([env.action_space.sample() for _ in range(3)])
        observation, reward, done, infos = env.step(actions)
        expected = plain.step(actions)
    np.testing.assert_array_equal(observation, expected.observation)
    np.testing.assert_allclose(reward, expected.reward, rtol=1e-6)
    assert done.all()
    for i, info in enumerate(infos):
        np.testing.assert_array_equal(info["terminal_observation"], expected.final_observation[i])
        assert info["TimeLimit.truncated"] is is_truncated


def test_sb3_vec_env_reaches_the_problem():
    env = ProblemVecEnv(HiddenRegime().build(3, 0))
    env.reset()
    env.env_method("set_cost_scale", 0.5)
    assert env.get_attr("cost_scale") == [0.5, 0.5, 0.5]
    assert env.get_attr("cost_scale", indices=1) == [0.5]
    assert env.env_is_wrapped(VecMonitor) == [False, False, False]
    with pytest.raises(ConfigError, match="indices: must be None, as the instances share"):
        env.env_method("set_cost_scale", 0.5, indices=[0])
    with pytest.raises(ConfigError, match="indices: must be None"):
        env.set_attr("episode_length", 3, indices=0)
    env.set_attr("episode_length", 3)
    assert env.problem.episode_length == 3
    env.close()


def test_sb3_ppo_learns_on_the_adapter():
    env = VecMonitor(ProblemVecEnv(TMaze(length=1).build(16, 0)))
    model = PPO("MlpPolicy", env, n_steps=16, batch_size=64, n_epochs=1, seed=0, device="cpu")
    model.learn(512)
    assert model.num_timesteps == 512
    assert len(model.ep_info_buffer) == 100
    assert {info["l"] for info in model.ep_info_buffer} == {2}
