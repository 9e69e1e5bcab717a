"""From a rollout to what policy and critics learn toward."""

from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Le
from torch import Generator

from quantail.config_class import config
from quantail.errors import ConfigError
from quantail.flow import Rollout, Targets
from quantail.targets.advantages import gae, lambda_returns, next_values
from quantail.targets.distributions import sr_lambda
from quantail.targets.normalize import normalize_advantages
from quantail.targets.twin import Twin, twin_atoms, twin_mean


@config
class TargetConfig:
    """How returns are estimated."""

    gamma: Annotated[float, Gt(0), Le(1)] = 0.99
    """Discount per step."""
    gae_lambda: Annotated[float, Ge(0), Le(1)] = 0.95
    """1 trusts sampled rewards alone, 0 the critic alone; for advantages and critic targets."""
    critic_target: Literal["auto", "sr_lambda", "scalar"] = "auto"
    """What critics learn toward: atoms with the law of the return (``sr_lambda``), or its scalar
    lambda-return, which is too narrow for a law. ``auto`` takes atoms, except for a scalar critic.
    """
    normalize_advantage: bool = True
    """Bring the advantages of a rollout to mean 0 and standard deviation 1."""
    normalize_advantage_per_env: bool = False
    """Do so for each environment by itself, which weights environments equally."""

    def check(self) -> None:
        """Refuse a setting without effect."""
        if self.normalize_advantage_per_env and not self.normalize_advantage:
            raise ConfigError(
                "normalize_advantage_per_env has no effect without normalize_advantage; "
                "was True. Switch both on or this one off"
            )


def compute_targets(
    rollout: Rollout, settings: TargetConfig, twin: Twin, generator: Generator
) -> Targets:
    """Return advantages, scalar returns and target atoms for every row.

    Args:
        rollout: As acted; its values and bootstraps are combined by one rule.
        settings: Discount and kind of target.
        twin: How the critics are combined.
        generator: Draws the atoms.

    Raises:
        ConfigError: Atoms are asked of a critic that knows no law.
    """
    values = twin_mean(rollout.values, twin)
    following = next_values(
        values,
        twin_mean(rollout.last_values, twin),
        rollout.truncated,
        twin_mean(rollout.truncated_values, twin),
    )
    ends = (rollout.terminated, rollout.truncated)
    gamma, lam = settings.gamma, settings.gae_lambda
    advantages = gae(rollout.rewards, values, following, *ends, gamma=gamma, lam=lam)
    returns = lambda_returns(rollout.rewards, following, *ends, gamma=gamma, lam=lam)

    law, weights = twin_atoms(rollout.values, twin, generator)
    knows_law = weights.numel() > 1
    if settings.critic_target == "sr_lambda" and not knows_law:
        raise ConfigError(
            "critic_target 'sr_lambda' needs a critic that learns a law; the critic is scalar. "
            "Use critic_target='scalar' or another critic"
        )
    if settings.critic_target == "scalar" or not knows_law:
        atoms, weights = returns.unsqueeze(-1), torch.ones(1)
    else:
        last, _ = twin_atoms(rollout.last_values, twin, generator)
        cut, _ = twin_atoms(rollout.truncated_values, twin, generator)
        next_atoms = next_values(law, last, rollout.truncated, cut)
        atoms = sr_lambda(
            rollout.rewards, next_atoms, *ends, gamma=gamma, lam=lam, generator=generator
        )

    normalized, info = normalize_advantages(
        advantages, rollout.weights, settings.normalize_advantage_per_env
    )
    return Targets(
        advantages=normalized if settings.normalize_advantage else advantages,
        returns=returns,
        atoms=atoms,
        atom_weights=weights,
        info=info,
    )
