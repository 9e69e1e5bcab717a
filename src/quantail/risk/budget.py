"""The budget process, which makes static CVaR an ordinary decision problem.

    b_0 = ν,   b_{t+1} = (b_t - r_t) / γ

so that γ^t (b_t - Z_t) = ν - G for the return Z_t from t on: the shortfall of the whole episode is
that of its rest against its budget (Bäuerle and Ott 2011).
"""

from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

from quantail.flow import BudgetCarry

# γ^-t overflows in long episodes; a budget this far out is above or below every return anyway.
_FAR = 1e12


def next_budget(budget: Tensor, rewards: Tensor, gamma: float) -> Tensor:
    """Return (b - r) / γ in float64, held within ±1e12."""
    return ((budget.double() - rewards.double()) / gamma).clamp(-_FAR, _FAR)


@dataclass(frozen=True, slots=True)
class TargetDraw:
    """From which targets episodes start."""

    target: float
    """ν."""
    low: float
    high: float
    share: float
    """Share of episodes that start from another target, ν + s^focus (u - ν), with u drawn from
    [low, high] and s from [0, 1]."""
    focus: float = 0.0

    def __call__(self, n: int, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
        """Return targets [n] in float64 and which of them were drawn, [n] bool."""
        dice = torch.rand(2, n, dtype=torch.float64, generator=generator)
        explored = dice[0] < self.share
        drawn = self.low + (self.high - self.low) * dice[1]
        if self.focus:
            nearness = torch.rand(n, dtype=torch.float64, generator=generator)
            drawn = self.target + nearness**self.focus * (drawn - self.target)
        return torch.where(explored, drawn, self.target), explored


def start_budgets(n: int, draw: TargetDraw, generator: Generator | None = None) -> BudgetCarry:
    """Return the budgets of ``n`` episodes that are about to start."""
    target, explored = draw(n, generator)
    return BudgetCarry(
        budget=target,
        target=target,
        explored=explored,
        returns=torch.zeros(n, dtype=torch.float64),
        discount=torch.ones(n, dtype=torch.float64),
    )


def after_step(
    carry: BudgetCarry, rewards: Tensor, gamma: float, measured: Tensor | None = None
) -> BudgetCarry:
    """Return the budgets after a step, before finished episodes are followed by new ones.

    Args:
        carry: Before the step.
        rewards: [N], finite.
        gamma: Discount.
        measured: [N], what the return is made of, if it differs: where it is not finite the return
            of the episode is unknown, while its budget goes on.
    """
    gained = rewards if measured is None else measured
    return replace(
        carry,
        budget=next_budget(carry.budget, rewards, gamma),
        returns=carry.returns + carry.discount * gained.double(),
        discount=carry.discount * gamma,
    )


def renewed(
    carry: BudgetCarry, done: Tensor, draw: TargetDraw, generator: Generator | None = None
) -> BudgetCarry:
    """Return the budgets with new ones where an episode has ended, ``done`` [N] bool."""
    if not bool(done.any()):
        return carry
    fresh = start_budgets(len(done), draw, generator)
    return BudgetCarry(
        budget=torch.where(done, fresh.budget, carry.budget),
        target=torch.where(done, fresh.target, carry.target),
        explored=torch.where(done, fresh.explored, carry.explored),
        returns=torch.where(done, fresh.returns, carry.returns),
        discount=torch.where(done, fresh.discount, carry.discount),
    )
