"""What the controllers are for: learning rates too high, and rewards too rare to be found.

``python -m tests.learning.controllers rate FACTOR with|without SEED`` and
``python -m tests.learning.controllers lock with|without SEED`` run one agent each and print what
came out.
"""

import sys
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv

from quantail import DistributionalPPO
from quantail.losses.imitation import Cloning
from quantail.optim.kl_control import KlControl, KlLearningRate, KlStop
from quantail.optim.schedules import Schedules, StepLinear
from quantail.rollout.demonstrations import Demonstrations
from quantail.sb3.environment import SB3Environment

RATE = 1e-2
"""With this one CartPole is learned in ``STEPS``."""
STEPS = 50_000
CONTROL = KlControl(
    target=0.05,
    stop=KlStop(undo=True),
    learning_rate=KlLearningRate(change=2.0, least=0.001),
)
LOCK = (1, 0, 0, 1, 1, 0, 1, 0, 1, 1, 0, 0, 0, 1, 1, 0)
"""The one sequence that opens the lock."""
LOCK_STEPS = 80_000
SHOWN = 2_000
"""Steps of demonstration."""


def cartpole(factor: float, controlled: bool, seed: int) -> float:
    """Return the mean of 20 episodes after training with ``factor`` times the good rate."""
    torch.set_num_threads(1)
    model = DistributionalPPO(
        "MlpPolicy",
        make_vec_env("CartPole-v1", 16, seed=seed),
        learning_rate=factor * RATE,
        n_steps=128,
        batch_size=512,
        n_epochs=10,
        gamma=0.98,
        gae_lambda=0.9,
        seed=seed,
        device="cpu",
        kl_control=CONTROL if controlled else None,
    )
    model.learn(STEPS)
    fresh = make_vec_env("CartPole-v1", 4, seed=10_000 + seed)
    mean, _ = evaluate_policy(model, fresh, 20, deterministic=True, warn=False)
    return float(mean)


class Lock(gym.Env[int, int]):
    """Pays 1 for the right sequence of 16 choices; the first wrong one ends the episode."""

    def __init__(self) -> None:
        self.observation_space = spaces.Discrete(len(LOCK))
        self.action_space = spaces.Discrete(2)
        self.place = 0

    def reset(self, **given: Any) -> tuple[int, dict[str, Any]]:
        super().reset(**given)
        self.place = 0
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        if int(action) != LOCK[self.place]:
            return self.place, 0.0, True, False, {}
        self.place += 1
        if self.place == len(LOCK):
            return 0, 1.0, True, False, {}
        return self.place, 0.0, False, False, {}


class Reached(BaseCallback):
    """Stops when the mean return of a rollout's episodes reaches 90 % of the optimum, 1."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: int | None = None

    def _on_step(self) -> bool:
        return self.steps is None

    def _on_rollout_end(self) -> None:
        returns = self.locals["rollout"].episodes.returns
        if self.steps is None and returns and float(np.mean(returns)) >= 0.9:
            self.steps = self.num_timesteps


def lock_steps(shown: bool, seed: int) -> int:
    """Return the steps after which the lock is opened 9 times of 10; the most if never."""
    torch.set_num_threads(1)
    env: VecEnv = make_vec_env(Lock, 64, seed=seed)
    demonstrations = None
    if shown:
        keys = np.array(LOCK)
        expert = SB3Environment(make_vec_env(Lock, 1, seed=seed))
        demonstrations = Demonstrations.from_policy(lambda seen: keys[seen], expert, SHOWN)
    model = DistributionalPPO(
        "MlpPolicy",
        env,
        learning_rate=1e-3,
        n_steps=32,
        batch_size=512,
        n_epochs=4,
        ent_coef=0.01,
        seed=seed,
        device="cpu",
        imitation=Cloning(batch_size=128) if shown else None,
        demonstrations=demonstrations,
        schedules=Schedules(imitation=StepLinear(start=1.0, end_step=40_000)) if shown else None,
    )
    reached = Reached()
    model.learn(LOCK_STEPS, reached)
    return LOCK_STEPS if reached.steps is None else reached.steps


if __name__ == "__main__":
    kind, *rest = sys.argv[1:]
    seed = int(rest[-1])
    found = (
        cartpole(float(rest[0]), rest[1] == "with", seed)
        if kind == "rate"
        else lock_steps(rest[0] == "with", seed)
    )
    print(*sys.argv[1:], found, flush=True)  # noqa: T201
