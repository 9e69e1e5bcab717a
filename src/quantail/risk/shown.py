"""What episodes show about targets, and how far it is from what the critics predict.

Critics lag behind a policy that still improves, more for some targets than for others, and a choice
among targets by their prediction alone errs the same way. Episodes do not lag, but are noisy. So
each curve of the critics, c, is brought to the averages y_k of n_k recent episodes near target k:

    base = ȳ + β (c - c̄),   β ∈ [0, 1] by regression: 1 if the curve has the right shape, 0 if none
    f = argmin Σ_k n_k (y_k - base_k - f_k)² + n̄ ℓ⁴ Σ_k (f_{k-1} - 2 f_k + f_{k+1})²

f is a smoothing spline that averages over about 3ℓ neighbors, and base + f the result. Older
episodes count less and less. At every target a few are added that show just what the critics say,
so that their curves stand until there are real ones.
"""

import numpy as np

from quantail.config_class import config
from quantail.types import FloatArray

_LENGTH = 3.0
"""ℓ, in steps of the grid."""
_ADDED = 3.0
"""Episodes for each target that agree with the critics."""


@config
class ShownByTarget:
    """Sums over episodes, for each target of the grid; empty before the first episode."""

    counts: tuple[float, ...] = ()
    """Episodes; one between two targets counts for both in parts."""
    means: tuple[float, ...] = ()
    """Of G."""
    shortfalls: tuple[float, ...] = ()
    """Of (ν - G)⁺."""


def add_episodes(
    state: ShownByTarget, grid: FloatArray, targets: FloatArray, returns: FloatArray, rate: float
) -> ShownByTarget:
    """Return the sums with more episodes; those from targets beyond the grid say nothing of it.

    Args:
        state: Before.
        grid: [G], evenly spaced.
        targets: [E], of the episodes.
        returns: [E], G.
        rate: Weight that older episodes lose.
    """
    inside = (targets >= grid[0]) & (targets <= grid[-1])
    targets, returns = targets[inside], returns[inside]
    place = (targets - grid[0]) / (grid[1] - grid[0])
    cell = np.minimum(place.astype(np.int64), len(grid) - 2)
    share = place - cell
    rows = np.stack([np.ones_like(targets), returns, np.maximum(targets - returns, 0.0)], axis=1)
    sums = np.zeros((len(grid), 3))
    np.add.at(sums, cell, (1 - share)[:, None] * rows)
    np.add.at(sums, cell + 1, share[:, None] * rows)
    if state.counts:
        sums += (1 - rate) * np.array([state.counts, state.means, state.shortfalls]).T
    return _as_shown(sums.T)


def on_grid(state: ShownByTarget, grid: FloatArray, places: FloatArray) -> ShownByTarget:
    """Return the sums on another grid; where the old one did not reach there are none."""
    sums = np.array([state.counts, state.means, state.shortfalls])
    return _as_shown(np.stack([np.interp(places, grid, row, left=0, right=0) for row in sums]))


def corrected(state: ShownByTarget, predicted: FloatArray) -> FloatArray:
    """Return predicted means and shortfalls, [2, G], brought to what episodes show."""
    counts = np.array(state.counts) + _ADDED
    bend = np.diff(np.eye(len(counts)), 2, axis=0)
    normal = np.diag(counts) + counts.mean() * _LENGTH**4 * bend.T @ bend
    sums = np.array([state.means, state.shortfalls]) + _ADDED * predicted
    shares = counts / counts.sum()
    rows = []
    for curve, seen in zip(predicted, sums / counts, strict=True):
        moved = curve - shares @ curve
        slope = (shares * moved) @ seen / max((shares * moved) @ moved, 1e-300)
        base = shares @ seen + np.clip(slope, 0.0, 1.0) * moved
        rows.append(base + np.linalg.solve(normal, counts * (seen - base)))
    return np.stack(rows)


def _as_shown(sums: FloatArray) -> ShownByTarget:
    counts, means, shortfalls = (tuple(row.tolist()) for row in sums)
    return ShownByTarget(counts=counts, means=means, shortfalls=shortfalls)
