"""The scalar critic: the mean alone, by squared error."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

import torch
from annotated_types import Ge, Le
from torch import Generator, Tensor

from quantail.config_class import config
from quantail.losses.value import scalar_loss
from quantail.nets.critics.base import CriticHead
from quantail.nets.critics.return_scale import rescale_output
from quantail.nets.layers import orthogonal_linear
from quantail.nets.rows import RowLaw
from quantail.risk.cvar import check_alpha


@config
class ScalarCritic:
    """Predicts the expected return; knows nothing of risk."""

    kind: Literal["scalar"] = "scalar"
    scale_rate: Annotated[float, Ge(0), Le(1)] = 0.2
    """Weight of a new rollout in the return scale; 0 keeps the scale at 1."""

    def build(self, input_size: int) -> "ScalarHead":
        """Build the head for latents of ``input_size``."""
        return ScalarHead(input_size, self)


@dataclass(frozen=True, slots=True)
class ScalarValues(RowLaw):
    """All mass on one point."""

    values: Tensor
    """[...]"""
    scale: Tensor

    ROW_FIELDS: ClassVar[tuple[str, ...]] = ("values",)

    def mean(self) -> Tensor:
        """Expected return, [...]."""
        return self.values

    def std(self) -> Tensor:
        """Zeros, [...]."""
        return torch.zeros_like(self.values)

    def quantile(self, tau: float) -> Tensor:
        """Return the value, which is every quantile of a point, [...]."""
        check_alpha(tau, "tau")
        return self.values

    def cvar(self, alpha: float) -> Tensor:
        """Return the value, [...]: a point has no tail."""
        check_alpha(alpha)
        return self.values

    def atoms(self, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
        """Return the value as one atom [..., 1] of weight 1."""
        return self.values.unsqueeze(-1), self.values.new_ones(1)

    def affine(self, shift: Tensor, scale: Tensor) -> Self:
        """Return the law of ``shift + scale * Z``."""
        return self.map_rows(lambda values: shift + scale * values)

    def clamp(self, center: Self, width: Tensor) -> Self:
        """Hold the value within ``width`` of that of ``center``."""
        return self.map_rows(lambda values: hold_within(values, center.values, width))

    def loss(self, atoms: Tensor, weights: Tensor) -> Tensor:
        """Squared error to the mean of the target law, in units of the return scale, [...]."""
        return scalar_loss(self.values / self.scale, atoms / self.scale, weights)


def hold_within(values: Tensor, center: Tensor, width: Tensor) -> Tensor:
    """Return ``center + clip(values - center, ±width)``."""
    return torch.minimum(torch.maximum(values, center - width), center + width)


class ScalarHead(CriticHead[ScalarValues]):
    """One linear output in units of the return scale."""

    def __init__(self, input_size: int, config: ScalarCritic) -> None:
        super().__init__(config.scale_rate)
        self.linear = orthogonal_linear(input_size, 1, gain=1.0)

    def forward(self, latent: Tensor) -> ScalarValues:
        """Return μ + σ (w h + b)."""
        values = self.linear(latent).squeeze(-1) * self.scale.std + self.scale.mean
        return ScalarValues(values, self.scale.std)

    @torch.no_grad()
    def update_scale(self, atoms: Tensor, weights: Tensor, row_weights: Tensor) -> None:
        """Move the return scale; every prediction stays."""
        change = self.scale.update(atoms, weights, row_weights)
        rescale_output(self.linear.weight, self.linear.bias, change)
