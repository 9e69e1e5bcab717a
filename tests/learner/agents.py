"""Small real agents on the noisy environment, for tests of the learner."""

from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import spaces

from quantail.config import LearnerConfig
from quantail.flow import Coefficients, Rollout, RolloutCarry, Targets
from quantail.nets.actor_critic import ActorCritic, PolicyConfig
from quantail.nets.actors import ActorConfig
from quantail.rollout.collect import collect, start
from quantail.targets.compute import compute_targets
from tests.rollout.noisy_env import NoisyEnv

NOW = Coefficients(learning_rate=1e-3, clip_range=0.2, entropy=0.01, value=0.5)
SPACES: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "box": spaces.Box(-1.0, 1.0, (2,), np.float32),
    "squashed": spaces.Box(-1.0, 1.0, (2,), np.float32),
    "multi_discrete": spaces.MultiDiscrete([3, 2]),
    "multi_binary": spaces.MultiBinary(3),
}


class Acted(NamedTuple):
    """A policy, what it acted, and where it stands."""

    policy: ActorCritic
    env: NoisyEnv
    rollout: Rollout
    carry: RolloutCarry
    targets: Targets
    generator: torch.Generator


def small(**settings: Any) -> PolicyConfig:
    return PolicyConfig(**{"actor_layers": (16,), "critic_layers": (16,), **settings})


def settings(**given: Any) -> LearnerConfig:
    return LearnerConfig(**{"n_steps": 32, "batch_size": 64, "n_epochs": 2, **given})


def acted(
    config: PolicyConfig | None = None,
    space: str = "discrete",
    n_envs: int = 8,
    seed: int = 0,
    n_steps: int = 32,
    length: int = 8,
    masked: bool = False,
    end_probability: float = 0.15,
) -> Acted:
    """Act twice with a fresh policy, so that the second rollout starts in mid-episode."""
    torch.manual_seed(seed)
    config = config or small()
    if space == "squashed":
        config = PolicyConfig(
            core=config.core,
            critic=config.critic,
            twin=config.twin,
            actor=ActorConfig(squash=True),
            actor_layers=(16,),
            critic_layers=(16,),
        )
    env = NoisyEnv(n_envs, SPACES[space], seed, end_probability, masked)
    policy = ActorCritic(env.observation_space, env.action_space, config)
    generator = torch.Generator().manual_seed(seed)
    carry = start(policy, *env.reset(), n_envs)
    _, carry = collect(policy, env, carry, n_steps, length, generator)
    rollout, carry = collect(policy, env, carry, n_steps, length, generator)
    targets = compute_targets(rollout, settings().targets, config.twin, generator)
    return Acted(policy, env, rollout, carry, targets, generator)
