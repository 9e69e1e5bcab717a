"""Small agents over any spaces, for tests of saving."""

from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from quantail import DistributionalPPO

SMALL: dict[str, Any] = {"n_steps": 8, "batch_size": 16, "n_epochs": 1, "seed": 0}


class Spaces(gym.Env[Any, Any]):
    """Random observations and rewards over any spaces; episodes of random length."""

    def __init__(self, observation_space: Any, action_space: Any) -> None:
        self.observation_space, self.action_space = deepcopy((observation_space, action_space))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        observation, reward = self.observation_space.sample(), float(self.np_random.normal())
        return observation, reward, self.np_random.random() < 0.2, False, {"cost": abs(reward)}


VECTOR = spaces.Box(-1.0, 1.0, (3,), np.float32)
IMAGE = spaces.Box(0, 255, (3, 36, 36), np.uint8)
MIXED = spaces.Dict({"vector": VECTOR, "choice": spaces.Discrete(3)})
CHOICE = spaces.Discrete(3)


def env_of(observation_space: Any = VECTOR, action_space: Any = CHOICE, n: int = 2) -> VecEnv:
    env = DummyVecEnv([lambda: Spaces(observation_space, action_space)] * n)
    env.seed(0)
    return env


def agent(env: Any = None, policy: str = "MlpPolicy", **given: Any) -> Any:
    return DistributionalPPO(policy, env or env_of(), **{**SMALL, **given})


def assert_same_state(first: Any, second: Any) -> None:
    """Weights, buffers and optimizer state equal to the bit; counters equal."""
    ours, theirs = first.get_parameters(), second.get_parameters()
    assert list(ours["policy"]) == list(theirs["policy"])
    for name, tensor in ours["policy"].items():
        assert tensor.dtype == theirs["policy"][name].dtype
        assert tensor.numpy().tobytes() == theirs["policy"][name].numpy().tobytes(), name
    a, b = ours["policy.optimizer"], theirs["policy.optimizer"]
    assert a["param_groups"] == b["param_groups"]
    assert list(a["state"]) == list(b["state"])
    assert a["state"], "an optimizer that has stepped has a state"
    for number in a["state"]:
        for name, value in a["state"][number].items():
            assert torch.equal(value, b["state"][number][name]), (number, name)
    for name in ("num_timesteps", "_total_timesteps", "_n_updates", "_current_progress_remaining"):
        assert getattr(first, name) == getattr(second, name), name
    assert list(first.ep_info_buffer) == list(second.ep_info_buffer)
