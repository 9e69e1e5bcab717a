"""How far episodes fall from what the critics predicted for their targets.

Critics lag behind a policy that still improves, more for some targets than for others, and a choice
among targets by their prediction alone errs the same way. Episodes do not lag, but are noisy. So
the prediction is corrected by the smooth part f of what they missed it by: with n_k episodes near
target k of the grid, which missed the prediction by y_k on average,

    f = argmin Σ_k n_k (y_k - f_k)² + h Σ_k f_k² + n̄ ℓ⁴ Σ_k (f_{k-1} - 2 f_k + f_{k+1})²

a smoothing spline that averages over about 3ℓ neighbors. Older episodes count less and less; h
holds f at 0 until there are episodes enough.
"""

import numpy as np

from quantail.config_class import config
from quantail.types import FloatArray

_LENGTH = 3.0
"""ℓ, in steps of the grid."""
_HELD = 3.0
"""h, in episodes for each target."""


@config
class CurveError:
    """Sums over episodes, for each target of the grid; empty before the first episode."""

    counts: tuple[float, ...] = ()
    """Episodes; one between two targets counts for both in parts."""
    means: tuple[float, ...] = ()
    """By how much they missed the predicted mean."""
    tails: tuple[float, ...] = ()
    """By how much they missed the predicted C."""


def step_error(
    state: CurveError, grid: FloatArray, targets: FloatArray, missed: FloatArray, rate: float
) -> CurveError:
    """Return the sums with more episodes.

    Args:
        state: Before.
        grid: [G], evenly spaced.
        targets: [E], of the episodes.
        missed: [E, 2], seen less predicted, of mean and tail.
        rate: Weight that older episodes lose.
    """
    place = np.clip((targets - grid[0]) / (grid[1] - grid[0]), 0, len(grid) - 1)
    cell = np.minimum(place.astype(np.int64), len(grid) - 2)
    share = place - cell
    rows = np.stack([np.ones_like(targets), *missed.T], axis=1)
    sums = np.zeros((len(grid), 3))
    np.add.at(sums, cell, (1 - share)[:, None] * rows)
    np.add.at(sums, cell + 1, share[:, None] * rows)
    if state.counts:
        sums += (1 - rate) * np.array([state.counts, state.means, state.tails]).T
    return _as_error(sums.T)


def moved_error(state: CurveError, grid: FloatArray, places: FloatArray) -> CurveError:
    """Return the sums on another grid."""
    sums = np.array([state.counts, state.means, state.tails])
    return _as_error(np.stack([np.interp(places, grid, row) for row in sums]))


def fitted_error(state: CurveError) -> FloatArray:
    """Return what is to be added to the predicted means and tails, [2, G]."""
    counts = np.array(state.counts)
    bend = np.diff(np.eye(len(counts)), 2, axis=0)
    stiffness = counts.mean() * _LENGTH**4 * bend.T @ bend
    normal = np.diag(counts + _HELD) + stiffness
    fitted: FloatArray = np.linalg.solve(normal, np.array([state.means, state.tails]).T).T
    return fitted


def _as_error(sums: FloatArray) -> CurveError:
    counts, means, tails = (tuple(row.tolist()) for row in sums)
    return CurveError(counts=counts, means=means, tails=tails)
