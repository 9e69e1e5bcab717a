"""Recurrent PPO: ours against sb3-contrib's, in one interleaved run.

The same work: two LSTMs (actor and critic), scalar critic, no twin, one thread, the same rollouts,
epochs and minibatches, and nothing that theirs has not: observations are not normalized, and the
critic is not asked again after the update. Short episodes (CartPole) show what padding costs; long
ones (512 steps) what is left. Reported: environment steps per CPU second, median of the rounds, and
the ratio of neighbors, median, least and greatest. A round of the long environment is one episode:
theirs reads a minibatch as one sequence unless an episode starts in it, and step by step if one
does, so parts of an episode would measure the one or the other. Theirs trains memory over whole
rollouts (128 rows), ours over chunks, by default of 64; ``--chunk 128`` makes them equal.

Usage: python benchmarks/recurrent.py [--rounds 5] [--envs 64] [--chunk 64]
"""

import argparse
import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from quantail import DistributionalPPO
from quantail.config import ExplainedVariance
from quantail.nets.critics import ScalarCritic

EPISODE = 512
"""Steps of a long episode."""


class LongEpisodes(VecEnv):
    """A cheap vectorized environment: 32 random features, long episodes that end together."""

    def __init__(self, n_envs: int) -> None:
        box = spaces.Box(-np.inf, np.inf, (32,), np.float32)
        super().__init__(n_envs, box, spaces.Box(-1.0, 1.0, (1,), np.float32))
        self.rng = np.random.default_rng(0)
        self.steps = 0

    def reset(self) -> Any:
        self.observation = self.rng.normal(size=(self.num_envs, 32)).astype(np.float32)
        return self.observation

    def step_async(self, actions: Any) -> None:
        self.actions = actions

    def step_wait(self) -> Any:
        self.steps += 1
        rewards = self.observation[:, 0] * self.actions[:, 0]
        done = self.steps % EPISODE == 0
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        return self.reset(), rewards, np.full(self.num_envs, done), infos

    def close(self) -> None: ...
    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self, attr_name)] * self.num_envs

    def has_attr(self, attr_name: str) -> bool:
        return hasattr(self, attr_name)

    def set_attr(self, *_: Any, **__: Any) -> None: ...
    def env_method(self, *_: Any, **__: Any) -> list[Any]:
        return []

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: Any = None
    ) -> list[bool]:
        return [False] * self.num_envs


def environment(name: str, n_envs: int) -> VecEnv:
    if name == "long episodes":
        return LongEpisodes(n_envs)
    return make_vec_env("CartPole-v1", n_envs, seed=0)


def agents(name: str, n_envs: int, chunk: int | None = None) -> dict[str, Any]:
    shared: dict[str, Any] = {
        "n_steps": 128,
        "batch_size": 128 * n_envs // 4,
        "n_epochs": 4,
        "seed": 0,
        "device": "cpu",
    }
    theirs = RecurrentPPO(
        "MlpLstmPolicy",
        environment(name, n_envs),
        policy_kwargs={"lstm_hidden_size": 128, "net_arch": [64, 64]},
        **shared,
    )
    ours = DistributionalPPO(
        "MlpLstmPolicy",
        environment(name, n_envs),
        critic=ScalarCritic(),
        twin="off",
        chunk_length=chunk,
        explained_variance=ExplainedVariance(after_update=False),
        policy_kwargs={
            "lstm_hidden_size": 128,
            "net_arch": [64, 64],
            "normalize_observations": False,
        },
        **shared,
    )
    return {"sb3-contrib RecurrentPPO": theirs, "quantail": ours}


def measure(name: str, n_envs: int, rounds: int, chunk: int | None) -> None:
    models = agents(name, n_envs, chunk)
    steps = 128 * n_envs
    for model in models.values():
        model.learn(steps)
    rates: dict[str, list[float]] = {label: [] for label in models}
    per_round = steps * (EPISODE // 128 if name == "long episodes" else 2)
    for _ in range(rounds):
        for label, model in models.items():
            before = time.process_time()
            model.learn(per_round, reset_num_timesteps=False)
            rates[label].append(per_round / (time.process_time() - before))
    median = {label: float(np.median(values)) for label, values in rates.items()}
    print(f"\n{name}, {n_envs} environments: environment steps per CPU second")
    for label, value in median.items():
        print(f"  {label:28s}{value:10.0f}")
    ratios = np.divide(rates["quantail"], rates["sb3-contrib RecurrentPPO"])
    low, middle, high = np.quantile(ratios, (0, 0.5, 1))
    print(f"  {'ratio':28s}{middle:10.2f} ({low:.2f} to {high:.2f})")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--chunk", type=int, default=None)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for problem in ("CartPole", "long episodes"):
        measure(problem, given.envs, given.rounds, given.chunk)
