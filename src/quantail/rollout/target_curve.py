"""What the critic predicts for episodes that would start from other targets."""

import torch
from torch import Generator

from quantail.flow import Rollout
from quantail.nets.actor_critic import ActorCritic
from quantail.nets.observations import map_observation
from quantail.risk.cvar import cvar, quantile
from quantail.risk.search import TargetCurve
from quantail.targets.twin import twin_atoms
from quantail.types import FloatArray

_MOST_STARTS = 32


@torch.no_grad()
def target_curve(
    policy: ActorCritic, rollout: Rollout, grid: FloatArray, alpha: float, generator: Generator
) -> TargetCurve | None:
    """Predict mean, CVaR and quantile of an episode for each target.

    The law is the mixture over up to 32 start observations of the rollout, read by one pass.

    Args:
        policy: With a budget.
        rollout: Where start observations are taken from.
        grid: [G] targets.
        alpha: Level of CVaR.
        generator: Draws atoms, where a critic needs it.

    Returns:
        The prediction, or None when no episode started in the rollout.
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
    mixture = atoms.double().view(n_grid, -1)
    shares = weights.double().repeat(n_starts) / n_starts
    return TargetCurve(
        means=(mixture @ shares).numpy(),
        tails=cvar(mixture, shares, alpha).numpy(),
        quantiles=quantile(mixture, shares, alpha).numpy(),
    )
