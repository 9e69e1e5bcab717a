"""Advantages in units of their own spread, over the whole rollout."""

import torch
from torch import Tensor

from quantail.errors import DataError
from quantail.flow import AdvantageInfo

# Below this share of the largest advantage (or of 1) a spread is rounding noise, not signal.
_NOISE = 1e-6


def normalize_advantages(
    advantages: Tensor, weights: Tensor, per_env: bool = False
) -> tuple[Tensor, AdvantageInfo]:
    """Return (A - mean) / std, with weighted population statistics in float64.

    Statistics are those of the rollout, never of a micro-batch, so they do not depend on how the
    rows are cut. Where std < 1e-6 max(1, max |A|), as for a single row, the mean is removed and
    nothing is divided: dividing would blow rounding noise up to order one.

    Args:
        advantages: [T, N].
        weights: [T, N]; rows with weight 0 are left out of the statistics and come back as 0.
        per_env: Take the statistics of each environment by itself. This re-weights environments
            whose rewards differ in scale, which changes the objective.

    Returns:
        The normalized advantages, [T, N], and what was done. ``info.mean`` and ``info.std`` are
        those of the whole rollout also with ``per_env``; ``info.degenerate`` is true when any group
        was not divided.

    Raises:
        DataError: shapes differ, weights are negative, or a number is not finite.
    """
    _check(advantages, weights)
    axes = (0,) if per_env else (0, 1)
    rows, shares = advantages.double(), weights.double()
    used = shares > 0
    center, spread = _moments(rows, shares, axes)
    largest = torch.where(used, rows.abs(), 0.0).amax(axes, keepdim=True)
    degenerate = spread < _NOISE * largest.clamp(min=1.0)
    divisor = torch.where(degenerate, 1.0, spread)
    normalized = torch.where(used, (rows - center) / divisor, 0.0)
    mean, std = _moments(rows, shares, (0, 1))
    info = AdvantageInfo(
        mean=mean.reshape(()),
        std=std.reshape(()),
        max_abs=normalized.abs().max(),
        degenerate=degenerate.any(),
    )
    return normalized.to(advantages.dtype), info


def _moments(rows: Tensor, shares: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Weighted mean and population standard deviation over ``axes``; 0 where no row has weight."""
    total = shares.sum(axes, keepdim=True)
    total = torch.where(total > 0, total, 1.0)
    center = (shares * rows).sum(axes, keepdim=True) / total
    variance = (shares * (rows - center).square()).sum(axes, keepdim=True) / total
    return center, variance.sqrt()


def _check(advantages: Tensor, weights: Tensor) -> None:
    if advantages.ndim != 2 or advantages.shape != weights.shape or not advantages.numel():
        raise DataError(
            "advantages and weights must share a shape [T, N] with at least one row; shapes were "
            f"{tuple(advantages.shape)} and {tuple(weights.shape)}."
        )
    for name, tensor in (("advantages", advantages), ("weights", weights)):
        bad = int((~torch.isfinite(tensor)).sum())
        if bad:
            raise DataError(
                f"{name} must be finite; {bad} of {tensor.numel()} are not. Look at the rewards "
                "and values they were made from."
            )
    if bool((weights < 0).any()):
        raise DataError(f"weights must be at least 0; the least was {float(weights.min())}.")
