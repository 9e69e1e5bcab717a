"""Running mean and deviation of returns, in whose units a critic predicts.

    μ ← (1 - η_t) μ + η_t E[G],   m ← (1 - η_t) m + η_t E[G²],
    σ = clip(√(m - μ²), max(1e-4, 1e-5 |μ|), 1e6)

with η_t = η / (1 - (1 - η)^t), so that the first batch sets μ and σ exactly and the average is not
drawn toward its starting point.

References:
    van Hasselt et al. 2016, Learning values across many orders of magnitude (PopArt).
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from quantail.errors import DataError

_LEAST, _GREATEST = 1e-4, 1e6

# Predictions are raw and in float32: a finer spread around a large mean could not be told apart.
_LEAST_SHARE = 1e-5


class ScaleChange(NamedTuple):
    """How the units of a critic moved; raw = mean + std * normalized."""

    old_mean: float
    old_std: float
    mean: float
    std: float

    @property
    def ratio(self) -> float:
        """Old deviation over new."""
        return self.old_std / self.std

    @property
    def offset(self) -> float:
        """Move of the mean, in new units: normalized' = ratio * normalized + offset."""
        return (self.old_mean - self.mean) / self.std


class ReturnScale(nn.Module):
    """Statistics of returns as buffers, so that they travel with every copy of the network."""

    mean: Tensor
    std: Tensor
    square: Tensor
    updates: Tensor

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("mean", torch.zeros((), dtype=torch.float64))
        self.register_buffer("std", torch.ones((), dtype=torch.float64))
        self.register_buffer("square", torch.ones((), dtype=torch.float64))
        self.register_buffer("updates", torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def update(self, atoms: Tensor, weights: Tensor, row_weights: Tensor) -> ScaleChange:
        """Take in the target laws of one rollout.

        Args:
            atoms: [R, M], in raw units.
            weights: [M], sum to 1.
            row_weights: [R]; a row of weight 0 does not count. If all are 0 nothing changes.

        Returns:
            The units before and after.

        Raises:
            DataError: an atom that counts is not finite, or shapes do not fit.
        """
        if atoms.ndim != 2 or weights.shape != atoms.shape[1:] or len(row_weights) != len(atoms):
            raise DataError(
                "update_scale takes atoms [R, M], weights [M] and row_weights [R]; shapes were "
                f"{tuple(atoms.shape)}, {tuple(weights.shape)} and {tuple(row_weights.shape)}."
            )
        old = float(self.mean), float(self.std)
        counted = row_weights > 0
        atoms, row_weights = atoms[counted].double(), row_weights[counted].double()
        if self.rate == 0 or not len(atoms):
            return ScaleChange(*old, *old)
        if not torch.isfinite(atoms).all():
            bad = int((~torch.isfinite(atoms)).any(dim=1).sum())
            raise DataError(
                f"update_scale: {bad} of {len(atoms)} rows of target atoms are not finite. Look "
                "for the first reward or value that is not finite."
            )
        share = row_weights / row_weights.sum()
        self.updates += 1
        rate = self.rate / (1 - (1 - self.rate) ** int(self.updates))
        # New tensors, not changes in place: laws of earlier passes hold on to the old scale.
        self.mean = self.mean.lerp(share @ atoms @ weights.double(), rate)
        self.square = self.square.lerp(share @ atoms.square() @ weights.double(), rate)
        variance = (self.square - self.mean.square()).clamp(min=0)
        least = max(_LEAST, _LEAST_SHARE * abs(float(self.mean)))
        self.std = variance.sqrt().clamp(min=least, max=max(_GREATEST, least))
        return ScaleChange(*old, float(self.mean), float(self.std))


def rescale_output(weight: Tensor, bias: Tensor, change: ScaleChange) -> None:
    """Give a normalized linear output its new units in place, so that the raw output stays.

    w' = w σ/σ',   b' = (σ b + μ - μ')/σ'
    """
    weight.mul_(change.ratio)
    bias.copy_(bias.double() * change.ratio + change.offset)
