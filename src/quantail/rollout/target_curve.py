"""What the critic predicts for episodes that would start from other targets."""

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from quantail.flow import Rollout
from quantail.nets.actor_critic import ActorCritic
from quantail.nets.observations import map_observation
from quantail.risk.cvar import cvar, quantile
from quantail.risk.search import TargetCurve
from quantail.risk.tail_advantage import shortfall
from quantail.targets.twin import Twin, twin_atoms
from quantail.types import FloatArray

_MOST_STARTS = 32
_GOLDEN = (math.sqrt(5) - 1) / 2


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
    rollout: Rollout, target: float, alpha: float, twin: Twin, generator: Generator
) -> StartTail | None:
    """Return the tail of an episode from ``target`` as the critics predicted it when it started.

    They had not learned from this rollout yet, so its episodes can judge them. None when no episode
    started from the target.
    """
    assert rollout.budget is not None, "with tail risk a rollout carries its budgets"
    rows = _some(rollout.episode_starts & (rollout.budget.budgets == target))
    count = len(rows[0])
    if not count:
        return None
    atoms, weights = twin_atoms([law.rows(rows) for law in rollout.values], twin, generator)
    atoms, shares = atoms.double().flatten(), weights.double().repeat(count) / count
    return StartTail(float(cvar(atoms, shares, alpha)), float(quantile(atoms, shares, alpha)))


def start_laws(
    policy: ActorCritic, rollout: Rollout, grid: FloatArray, generator: Generator
) -> tuple[Tensor, Tensor] | None:
    """Return atoms [G, M] and weights [M] of an episode's return from each target [G].

    None when no episode started in the rollout.
    """
    assert policy.budget is not None, "targets are those of a budget"
    rows = _some(rollout.episode_starts)
    n_grid, n_starts = len(grid), len(rows[0])
    if not n_starts:
        return None
    starts = map_observation(
        rollout.observations, lambda part: part[rows].repeat(n_grid, *[1] * (part.ndim - 2))
    )
    count = n_grid * n_starts
    inputs = policy.budget(torch.from_numpy(grid).repeat_interleave(n_starts))
    is_first = torch.ones(count, dtype=torch.bool)
    output = policy.step(starts, policy.initial_state(count), is_first, None, inputs)
    atoms, weights = twin_atoms(output.values, policy.config.twin, generator)
    return atoms.double().view(n_grid, -1), weights.double().repeat(n_starts) / n_starts


def _some(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Return times and environments of up to 32 of the chosen rows, [R] each for [T, N] bool.

    Steps by the golden ratio visit all environments and all times; equal steps may meet the same
    few environments in every round.
    """
    times, envs = chosen.nonzero(as_tuple=True)
    if len(times) <= _MOST_STARTS:
        return times, envs
    places = torch.arange(_MOST_STARTS, dtype=torch.float64) * _GOLDEN % 1 * len(times)
    return times[places.long()], envs[places.long()]
