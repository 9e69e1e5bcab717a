"""What the critic predicts for episodes that would start from other targets."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Generator, Tensor

from quantail.flow import Rollout
from quantail.nets.actor_critic import ActorCritic
from quantail.nets.observations import map_observation
from quantail.risk.cvar import cvar, quantile
from quantail.risk.search import TargetCurve
from quantail.risk.tail_advantage import shortfall
from quantail.targets.twin import twin_atoms
from quantail.types import FloatArray

_MOST_STARTS = 32


@torch.no_grad()
def target_curve(
    policy: ActorCritic, rollout: Rollout, grid: FloatArray, generator: Generator
) -> TargetCurve | None:
    """Predict mean and shortfall of an episode for each target.

    The law is the mixture over up to 32 start observations of the rollout, read by one pass.

    Args:
        policy: With a budget.
        rollout: Where start observations are taken from.
        grid: [G] targets.
        generator: Draws atoms, where a critic needs it.

    Returns:
        The prediction, or None when no episode started in the rollout.
    """
    law = start_laws(policy, rollout, grid, generator)
    if law is None:
        return None
    atoms, shares = law
    targets = torch.from_numpy(grid)
    return TargetCurve(
        means=(atoms @ shares).numpy(),
        shortfalls=shortfall(targets, atoms, shares).numpy(),
    )


@dataclass(frozen=True, slots=True)
class StartTail:
    """What the critics predict for the tail of an episode."""

    cvar: float
    quantile: float
    """VaR, the quantile at the level of CVaR."""


@torch.no_grad()
def start_tail(
    policy: ActorCritic, rollout: Rollout, target: float, alpha: float, generator: Generator
) -> StartTail | None:
    """Predict CVaR and quantile of an episode from ``target``; else as :func:`target_curve`."""
    law = start_laws(policy, rollout, np.array([target]), generator)
    if law is None:
        return None
    atoms, shares = law
    return StartTail(float(cvar(atoms, shares, alpha)), float(quantile(atoms, shares, alpha)))


def start_laws(
    policy: ActorCritic, rollout: Rollout, grid: FloatArray, generator: Generator
) -> tuple[Tensor, Tensor] | None:
    """Return atoms [G, M] and weights [M] of an episode's return from each target [G].

    None when no episode started in the rollout.
    """
    assert policy.budget is not None, "targets are those of a budget"
    rows = rollout.episode_starts.flatten().nonzero().squeeze(1)
    if not len(rows):
        return None
    rows = rows[:: max(1, len(rows) // _MOST_STARTS)][:_MOST_STARTS]
    n_grid, n_starts = len(grid), len(rows)
    starts = map_observation(
        rollout.observations,
        lambda part: part.flatten(0, 1)[rows].repeat(n_grid, *[1] * (part.ndim - 2)),
    )
    count = n_grid * n_starts
    inputs = policy.budget(torch.from_numpy(grid).repeat_interleave(n_starts))
    is_first = torch.ones(count, dtype=torch.bool)
    output = policy.step(starts, policy.initial_state(count), is_first, None, inputs)
    atoms, weights = twin_atoms(output.values, policy.config.twin, generator)
    return atoms.double().view(n_grid, -1), weights.double().repeat(n_starts) / n_starts
