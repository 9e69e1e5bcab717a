"""A rollout read as Stable-Baselines3's buffer at the callback hooks."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from quantail import DistributionalPPO
from quantail.errors import ConfigError

SMALL: dict[str, Any] = {"n_steps": 32, "batch_size": 64, "n_epochs": 1, "seed": 0}


class Recorded(BaseCallback):
    """Keeps what a user would read at the end of a rollout, and the steps as seen on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[Any, Any]] = []
        self.rewards = np.zeros(0)
        self.dones = np.zeros(0)

    def _on_step(self) -> bool:
        self.steps.append((self.locals["rewards"].copy(), self.locals["dones"].copy()))
        assert self.locals["rollout_buffer"] is self.model.rollout_buffer
        assert isinstance(self.locals["actions"], np.ndarray)
        return True

    def _on_rollout_end(self) -> None:
        buffer = self.model.rollout_buffer
        assert buffer.full
        assert buffer.pos == buffer.buffer_size == 32
        names = ("actions", "rewards", "episode_starts", "values", "log_probs", "returns")
        self.read = {name: np.array(getattr(buffer, name)) for name in (*names, "advantages")}
        self.observations = buffer.observations
        self.last = self.locals["rollout"].last_values


class Short(gym.Wrapper[Any, Any, Any, Any]):
    """Episodes that end for good at random, under a time limit that often cuts them."""

    def step(self, action: Any) -> Any:
        observation, _, _, truncated, info = super().step(action)
        ends = bool(self.np_random.random() < 0.1)
        return observation, float(self.np_random.normal()), ends, truncated and not ends, info


def short_pendulum() -> gym.Env[Any, Any]:
    return gym.wrappers.TimeLimit(Short(gym.make("Pendulum-v1")), 7)


@pytest.mark.parametrize("policy", ["MlpPolicy", "MlpLstmPolicy"])
def test_buffer_holds_what_sb3_would_compute(policy: str) -> None:
    env, callback = make_vec_env(short_pendulum, 4, seed=0), Recorded()
    model = DistributionalPPO(policy, env, gamma=0.9, gae_lambda=0.8, twin="mean", **SMALL)
    model.learn(128, callback)
    read = callback.read
    dones = np.stack([done for _, done in callback.steps])
    np.testing.assert_array_equal(read["episode_starts"][1:], dones[:-1])
    raw = np.stack([reward for reward, _ in callback.steps])
    bootstrapped = ~np.isclose(read["rewards"], raw)
    assert 0 < bootstrapped.sum() < dones.sum()
    assert (dones | ~bootstrapped).all()

    theirs = RolloutBuffer(
        32, env.observation_space, env.action_space, gamma=0.9, gae_lambda=0.8, n_envs=4
    )
    for name in ("rewards", "episode_starts", "values"):
        getattr(theirs, name)[:] = read[name]
    last = torch.stack([law.mean() for law in callback.last]).mean(0)
    theirs.compute_returns_and_advantage(last, dones[-1])
    np.testing.assert_allclose(read["advantages"], theirs.advantages, atol=1e-4)
    np.testing.assert_allclose(read["returns"], theirs.returns, atol=1e-4)


def test_stored_actions_and_values_are_those_of_the_policy() -> None:
    callback = Recorded()
    model = DistributionalPPO("MlpPolicy", make_vec_env("Pendulum-v1", 2, seed=0), **SMALL)
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    model.learn(64, callback)
    model.policy.load_state_dict(before)
    observations = torch.as_tensor(callback.observations.reshape(-1, 3))
    actions = torch.as_tensor(callback.read["actions"].reshape(-1, 1))
    with torch.no_grad():
        values, log_probs, _ = model.policy.evaluate_actions(observations, actions)
    np.testing.assert_allclose(values.view(32, 2), callback.read["values"], atol=1e-5)
    np.testing.assert_allclose(log_probs.view(32, 2), callback.read["log_probs"], atol=1e-5)


class Mixed(gym.Env[Any, Any]):
    observation_space = spaces.Dict(
        {"a": spaces.Box(-1.0, 1.0, (2, 3)), "b": spaces.Discrete(4), "c": spaces.MultiBinary(2)}
    )
    action_space = spaces.MultiDiscrete([2, 3])

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 1.0, False, False, {}


def test_dict_observations_and_choices() -> None:
    model = DistributionalPPO("MultiInputPolicy", make_vec_env(Mixed, 2), **SMALL).learn(64)
    buffer = model.rollout_buffer
    assert isinstance(buffer, DictRolloutBuffer)
    assert buffer.observations["a"].shape == (32, 2, 2, 3)
    assert buffer.observations["b"].shape == (32, 2, 1)
    assert buffer.actions.shape == (32, 2, 2)
    assert len(list(buffer.get(16))) == 4
    model.learn(64)
    assert model.rollout_buffer.actions.shape == (32, 2, 2)


class Counting(RolloutBuffer):
    """Counts steps, as a user's own class might."""

    def __init__(self, *args: Any, label: str = "", **kwargs: Any) -> None:
        self.label, self.added = label, 0
        super().__init__(*args, **kwargs)

    def add(self, *args: Any, **kwargs: Any) -> None:
        self.added += 1
        super().add(*args, **kwargs)


def test_a_buffer_class_of_the_user_gets_every_step() -> None:
    env = make_vec_env("CartPole-v1", 2, seed=0)
    given = {"rollout_buffer_class": Counting, "rollout_buffer_kwargs": {"label": "mine"}}
    theirs = DistributionalPPO("MlpPolicy", env, **SMALL, **given).learn(128).rollout_buffer
    assert isinstance(theirs, Counting)
    assert (theirs.label, theirs.added) == ("mine", 64)
    ours = DistributionalPPO("MlpPolicy", make_vec_env("CartPole-v1", 2, seed=0), **SMALL)
    ours = ours.learn(128).rollout_buffer
    for name in ("observations", "actions", "values", "log_probs", "advantages", "returns"):
        np.testing.assert_allclose(getattr(theirs, name), getattr(ours, name), atol=1e-5)


def test_a_buffer_class_that_would_change_learning_is_refused() -> None:
    class Prioritized(RolloutBuffer):
        def get(self, batch_size: int | None = None) -> Any:
            return super().get(batch_size)

    for wrong, message in ((Prioritized, "get would have no effect"), (dict, "must be a Rollout")):
        with pytest.raises(ConfigError, match=message):
            DistributionalPPO("MlpPolicy", "CartPole-v1", rollout_buffer_class=wrong)
