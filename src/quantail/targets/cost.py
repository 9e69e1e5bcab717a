"""What the costs of a rollout teach: the actor through an advantage, the cost critic by returns."""

from dataclasses import dataclass

import torch
from torch import Tensor

from quantail.flow import CostRows, CostTargets, Rollout
from quantail.targets.advantages import gae, lambda_returns, next_values


@dataclass(frozen=True, slots=True)
class CostObjective:
    """How much the cost counts in this cycle beside the mean."""

    weight: float
    """w, at least 0, in units of the advantages' spreads."""
    price: float
    """μ, the same in return per cost."""


def cost_targets(
    rollout: Rollout, cost: CostRows, mean_advantages: Tensor, *, gamma: float, lam: float
) -> CostTargets:
    """Return advantages and λ-returns of the cost, as of a reward; a termination costs no more.

    Args:
        rollout: Its ends and weights.
        cost: Its costs.
        mean_advantages: [T, N], of the mean return.
        gamma: Discount.
        lam: λ.
    """
    values = cost.values.mean()
    following = next_values(
        values, cost.last_values.mean(), rollout.truncated, cost.truncated_values.mean()
    )
    ends = (rollout.terminated, rollout.truncated)
    advantages = gae(cost.costs, values, following, *ends, gamma=gamma, lam=lam)
    returns = lambda_returns(cost.costs, following, *ends, gamma=gamma, lam=lam)
    return CostTargets(
        advantages=advantages,
        returns=returns,
        advantage_std=_std(advantages, rollout.weights),
        mean_std=_std(mean_advantages, rollout.weights),
    )


def _std(rows: Tensor, weights: Tensor) -> float:
    """Return the weighted population standard deviation; 0 where no row has weight."""
    rows, shares = rows.double(), weights.double()
    shares = shares / torch.where(shares.sum() > 0, shares.sum(), 1.0)
    center = (shares * rows).sum()
    return float((shares * (rows - center).square()).sum().sqrt())
