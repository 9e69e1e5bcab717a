"""What an action does to the tail: temporal differences of the risk value.

    w_t = -(1/α) E(b_t - Z_t)⁺,   δ_t = γ w'_t - w_t

with Z_t the critic's law at t and w' the risk value of what followed: of the next row, of the final
observation where the row is truncated, and -(1/α)(b')⁺ where it is terminated, because nothing
follows there (Z = 0) and the shortfall stays. Σ_k (γλ)^k δ_{t+k} is the tail advantage; ν and the
limit drop out of it as constants.

Since E(b - Z)⁺ = b - E[Z] + E(Z - b)⁺, the same difference is

    δ_t = (1/α) (r_t + γ V'_t - V_t + E(Z_t - b_t)⁺ - γ E(Z'_t - b'_t)⁺)

which holds also for a budget so large that it had to be held: there the last two terms vanish and
the tail advantage is 1/α times that of the mean. Far below all returns it is 0.
"""

import torch
from torch import Tensor

from quantail.errors import DataError
from quantail.risk.budget import next_budget
from quantail.risk.cvar import check_alpha


def shortfall(budgets: Tensor, atoms: Tensor, weights: Tensor) -> Tensor:
    """Return E(b - Z)⁺, [...].

    Args:
        budgets: [...], b.
        atoms: [..., M], of the law of Z.
        weights: [M], sum to 1.
    """
    return ((budgets.unsqueeze(-1) - atoms).clamp(min=0.0) * weights).sum(-1)


def risk_values(budgets: Tensor, atoms: Tensor, weights: Tensor, alpha: float) -> Tensor:
    """Return w = -(1/α) E(b - Z)⁺, [...]; arguments as for :func:`shortfall`."""
    check_alpha(alpha)
    return -shortfall(budgets.double(), atoms.double(), weights.double()) / alpha


def tail_errors(
    rewards: Tensor,
    budgets: Tensor,
    atoms: Tensor,
    next_atoms: Tensor,
    weights: Tensor,
    terminated: Tensor,
    *,
    alpha: float,
    gamma: float,
) -> Tensor:
    """Return δ_t, the temporal difference of the risk value at each row.

    Args:
        rewards: [T, N], raw.
        budgets: [T, N], b_t before the action of the row.
        atoms: [T, N, M], of the critic's law at the row.
        next_atoms: [T, N, M], of what followed the row; whatever stands there where the row is
            terminated is not read.
        weights: [M], of the atoms; sum to 1.
        terminated: [T, N] bool.
        alpha: α, in (0, 1].
        gamma: Discount.

    Returns:
        [T, N] in float64.

    Raises:
        ConfigError: ``alpha`` is out of range.
        DataError: Shapes differ, or a reward is not finite.
    """
    check_alpha(alpha)
    if not rewards.shape == budgets.shape == terminated.shape == atoms.shape[:-1]:
        raise DataError(
            "rewards, budgets, terminated and atoms must share their rows [T, N]; shapes were "
            f"{tuple(rewards.shape)}, {tuple(budgets.shape)}, {tuple(terminated.shape)} and "
            f"{tuple(atoms.shape)}."
        )
    if not torch.isfinite(rewards).all():
        raise DataError("rewards must be finite to measure their tail; some were not.")
    atoms, weights, budgets = atoms.double(), weights.double(), budgets.double()
    following = torch.where(terminated.unsqueeze(-1), 0.0, next_atoms.double())
    after = next_budget(budgets, rewards, gamma)
    low = shortfall(budgets, atoms, weights) - gamma * shortfall(after, following, weights)
    mean = rewards.double() + gamma * (following @ weights) - atoms @ weights
    high = (
        mean + shortfall(-budgets, -atoms, weights) - gamma * shortfall(-after, -following, weights)
    )
    # Both are the same number; each is exact where the other loses digits.
    return torch.where(budgets > 0, high, low) / alpha
