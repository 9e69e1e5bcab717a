"""How actions are drawn during a rollout."""

import torch
from torch import Generator, Tensor

from quantail.flow import ActionDistribution
from quantail.rollout.collect import Draw
from quantail.sb3.policy import MlpPolicy


def seeded(seed: int | None) -> Generator:
    """Return a generator with this seed, or with one from the system."""
    generator = torch.Generator()
    if seed is None:
        generator.seed()
        return generator
    return generator.manual_seed(seed)


def state_noise(policy: MlpPolicy, n_envs: int, sample_freq: int, generator: Generator) -> Draw:
    """Return draws for one rollout of a policy that explores by a function of the state.

    Args:
        policy: With ``use_sde``.
        n_envs: Each gets a function of its own.
        sample_freq: Steps after which new functions are drawn; -1 keeps them.
        generator: Draws them.
    """
    policy.reset_noise(n_envs, generator)

    def draw(step: int, law: ActionDistribution) -> Tensor:
        if sample_freq > 0 and step % sample_freq == 0:
            policy.reset_noise(n_envs, generator)
        return policy.draw(law)

    return draw
