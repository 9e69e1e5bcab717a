"""Control problems with known scores: one agent, one problem, one seed, one number.

``python -m tests.learning.control PROBLEM SEED`` runs one of them and prints its score.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv

from quantail import DistributionalPPO
from quantail.nets.cores import LruConfig
from quantail.optim.schedules import LinearSchedule
from quantail.sb3.problem_vec_env import ProblemVecEnv
from quantail.sim.problems import TMaze


class WithoutVelocity(gym.ObservationWrapper[Any, Any, Any]):
    """CartPole that shows positions only; velocities must be remembered."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        space = env.observation_space
        assert isinstance(space, spaces.Box)
        self.observation_space = spaces.Box(space.low[[0, 2]], space.high[[0, 2]], dtype=np.float32)

    def observation(self, observation: Any) -> Any:
        return observation[[0, 2]]


def classic(env_id: str, wrapper: Any = None) -> Callable[[int, int], VecEnv]:
    return lambda n_envs, seed: make_vec_env(env_id, n_envs, seed=seed, wrapper_class=wrapper)


def t_maze(length: int) -> Callable[[int, int], VecEnv]:
    return lambda n_envs, seed: ProblemVecEnv(TMaze(length=length).build(n_envs, seed))


@dataclass(frozen=True)
class Problem:
    """What to train on, how, and what must come out."""

    title: str
    make: Callable[[int, int], VecEnv]
    n_envs: int
    steps: int
    agent: dict[str, Any]
    policy: str = "MlpPolicy"
    kind: type[Any] = DistributionalPPO
    episodes: int = 20
    bar: float = 0.0
    """The score that must be reached."""
    at_least: int = 4
    """Of 5 seeds, how many must reach it."""
    asked: str = ""
    """What must come out, in words."""

    def holds(self, scores: list[float]) -> bool:
        """Whether enough seeds reach the bar."""
        return sum(value >= self.bar for value in scores) >= self.at_least


def linear(start: float) -> LinearSchedule:
    return LinearSchedule(start=start)


CARTPOLE = {
    "n_steps": 128,
    "batch_size": 256,
    "n_epochs": 10,
    "learning_rate": linear(1e-3),
    "gamma": 0.98,
    "gae_lambda": 0.9,
}
NO_VELOCITY = {
    "n_steps": 64,
    "batch_size": 256,
    "n_epochs": 15,
    "learning_rate": linear(1.5e-3),
    "gamma": 0.98,
    "gae_lambda": 0.95,
    "chunk_length": 32,
    "max_grad_norm": 1.0,
    # One memory for both: that velocities matter shows in the returns long before it shows in the
    # policy's gradient.
    "policy_kwargs": {
        "net_arch": {"pi": [], "vf": [64]},
        "shared_lstm": True,
        "critic_gradient_scale": 1.0,
    },
}
PENDULUM = {
    "n_steps": 512,
    "batch_size": 128,
    "n_epochs": 10,
    "learning_rate": linear(1e-3),
    "gamma": 0.9,
    "gae_lambda": 0.95,
}
MAZE = {
    "n_steps": 52,
    "batch_size": 52 * 32,
    "n_epochs": 4,
    "learning_rate": linear(2e-3),
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "ent_coef": 0.01,
}
LUNAR = {
    "n_steps": 1024,
    "batch_size": 64,
    "n_epochs": 4,
    "gamma": 0.999,
    "gae_lambda": 0.98,
    "ent_coef": 0.01,
}

PROBLEMS = {
    "cartpole": Problem(
        "CartPole-v1",
        classic("CartPole-v1"),
        8,
        100_000,
        CARTPOLE,
        bar=475.0,
        asked="475 in 4 of 5",
    ),
    "cartpole_positions": Problem(
        "CartPole-v1 without velocities, lstm",
        classic("CartPole-v1", WithoutVelocity),
        8,
        100_000,
        NO_VELOCITY,
        "MlpLstmPolicy",
        bar=475.0,
        asked="475 in 4 of 5",
    ),
    "pendulum": Problem(
        "Pendulum-v1",
        classic("Pendulum-v1"),
        4,
        100_000,
        PENDULUM,
        bar=-250.0,
        at_least=5,
        asked="-250 in 5 of 5",
    ),
    "t_maze_lru": Problem(
        "T-maze of length 50, lru",
        t_maze(50),
        64,
        1_000_000,
        {**MAZE, "policy_kwargs": {"core": LruConfig(hidden_size=64)}},
        "MlpLstmPolicy",
        episodes=500,
        bar=0.99,
        at_least=5,
        asked="0.99 in 5 of 5",
    ),
    "t_maze_memoryless": Problem(
        "T-maze of length 50, no memory",
        t_maze(50),
        64,
        300_000,
        MAZE,
        episodes=2000,
        asked="0.5, a coin toss",
    ),
    "lunar_lander": Problem(
        "LunarLander-v3",
        classic("LunarLander-v3"),
        16,
        300_000,
        LUNAR,
        asked="not worse than the next row",
    ),
    "lunar_lander_sb3": Problem(
        "LunarLander-v3, SB3 PPO", classic("LunarLander-v3"), 16, 300_000, LUNAR, kind=PPO
    ),
}


def score(name: str, seed: int) -> float:
    """Train one agent and return its mean return over fresh episodes, acting deterministically."""
    torch.set_num_threads(1)
    problem = PROBLEMS[name]
    model = problem.kind(
        problem.policy, problem.make(problem.n_envs, seed), seed=seed, device="cpu", **problem.agent
    )
    model.learn(problem.steps)
    fresh = problem.make(1 if problem.episodes < 100 else 64, 10_000 + seed)
    mean, _ = evaluate_policy(model, fresh, problem.episodes, deterministic=True, warn=False)
    return float(mean)


if __name__ == "__main__":
    print(sys.argv[1], sys.argv[2], score(sys.argv[1], int(sys.argv[2])))  # noqa: T201
