"""From a rollout to what policy and critics learn toward."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Le
from torch import Generator, Tensor

from quantail.config_class import config
from quantail.errors import ConfigError
from quantail.flow import CostTargets, Rollout, TailTargets, Targets
from quantail.risk.tail_advantage import tail_errors
from quantail.targets.advantages import gae, lambda_returns, next_values
from quantail.targets.cost import CostObjective, cost_targets
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


@dataclass(frozen=True, slots=True)
class TailObjective:
    """How much the tail counts in this cycle.

    The objective E[G] + λ(ν - E(ν - G)⁺/α) is the mean of a utility with slope 1 above ν and
    1 + λ/α below. At a row whose return falls short with probability p, a gain is worth
    1 + λ p/α on average, and

    A = (A_mean + λ A_tail) / (1 + λ p/α)

    is its advantage in units of return. A row's factor changes none of its preferences; without
    it, rows in the tail outweigh by 1 + λ/α those that could afford to take risks, which then
    learn little.
    """

    alpha: float
    """The tail is the worst share α."""
    weight: float
    """λ, at least 0."""


def compute_targets(
    rollout: Rollout,
    settings: TargetConfig,
    twin: Twin,
    generator: Generator,
    objective: TailObjective | None = None,
    cost_objective: CostObjective | None = None,
) -> Targets:
    """Return advantages, scalar returns and target atoms for every row.

    Args:
        rollout: As acted; its values and bootstraps are combined by one rule.
        settings: Discount and kind of target.
        twin: How the critics are combined.
        generator: Draws the atoms.
        objective: What the tail counts beside the mean; None leaves it out.
        cost_objective: What the cost counts; None leaves it out of the advantages.

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

    law, law_weights = twin_atoms(rollout.values, twin, generator)
    knows_law = law_weights.numel() > 1
    if settings.critic_target == "sr_lambda" and not knows_law:
        raise ConfigError(
            "critic_target 'sr_lambda' needs a critic that learns a law; the critic is scalar. "
            "Use critic_target='scalar' or another critic"
        )
    is_scalar = settings.critic_target == "scalar" or not knows_law
    atoms, weights = returns.unsqueeze(-1), torch.ones(1)
    tail: TailTargets | None = None
    cost: CostTargets | None = None
    if rollout.cost is not None:
        cost = cost_targets(rollout, rollout.cost, advantages, gamma=gamma, lam=lam)
    assert objective is None or not is_scalar, "tail risk is refused without a law"
    if not is_scalar:
        last, _ = twin_atoms(rollout.last_values, twin, generator)
        cut, _ = twin_atoms(rollout.truncated_values, twin, generator)
        next_atoms, weights = next_values(law, last, rollout.truncated, cut), law_weights
        atoms = sr_lambda(
            rollout.rewards, next_atoms, *ends, gamma=gamma, lam=lam, generator=generator
        )
        if objective is not None:
            tail = tail_targets(rollout, settings, objective.alpha, law, next_atoms, law_weights)

    advantages = _mixed(advantages, rollout.weights, tail, objective, cost, cost_objective)
    normalized, info = normalize_advantages(
        advantages, rollout.weights, settings.normalize_advantage_per_env
    )
    return Targets(
        advantages=normalized if settings.normalize_advantage else advantages,
        returns=returns,
        atoms=atoms,
        atom_weights=weights,
        info=info,
        tail=tail,
        cost=cost,
    )


def _mixed(
    mean: Tensor,
    weights: Tensor,
    tail: TailTargets | None,
    tail_objective: TailObjective | None,
    cost: CostTargets | None,
    cost_objective: CostObjective | None,
) -> Tensor:
    """Return (A_mean + λ A_tail - v μ A_cost) / (1 + λ p/α + v w), [T, N].

    v is the mean of 1 + λ p/α, what a unit of return is worth: a price in return grows with it.
    """
    mixed: Tensor = mean.double()
    total = torch.ones(())
    if tail is not None and tail_objective is not None:
        mixed = mixed + tail_objective.weight * tail.advantages
        total = total + tail_objective.weight * tail.probability / tail_objective.alpha
    if cost is not None and cost_objective is not None:
        worth = float((weights * total).sum() / weights.sum().clamp(min=1e-12))
        mixed = mixed - worth * cost_objective.price * cost.advantages.double()
        total = total + worth * cost_objective.weight
    return (mixed / total).to(mean.dtype)


def tail_targets(
    rollout: Rollout,
    settings: TargetConfig,
    alpha: float,
    atoms: Tensor,
    next_atoms: Tensor,
    weights: Tensor,
) -> TailTargets:
    """Return the advantages of the risk value, Σ_k (γλ)^k δ_{t+k}.

    Args:
        rollout: As acted, with its budgets.
        settings: Discount.
        alpha: α.
        atoms: [T, N, M], of the law at each row.
        next_atoms: [T, N, M], of what followed.
        weights: [M], of the atoms.
    """
    assert rollout.budget is not None, "a rollout for a tail objective carries its budgets"
    budgets, terminated = rollout.budget.budgets, rollout.terminated
    errors = tail_errors(
        rollout.rewards,
        budgets,
        atoms.cpu(),
        next_atoms.cpu(),
        weights.cpu(),
        terminated,
        alpha=alpha,
        gamma=settings.gamma,
    )
    nothing = torch.zeros_like(errors)
    ends = (terminated, rollout.truncated)
    gamma, lam = settings.gamma, settings.gae_lambda
    is_open = (budgets > atoms.amin(-1)) & (budgets < atoms.amax(-1))
    is_short = (atoms.double() < budgets.unsqueeze(-1)).double()
    return TailTargets(
        advantages=gae(errors, nothing, nothing, *ends, gamma=gamma, lam=lam),
        probability=is_short @ weights.double(),
        tail_share=is_open.double().mean(),
    )
