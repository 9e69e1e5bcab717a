"""The categorical critic (C51): probabilities on an even grid of returns.

The grid is centered on the mean of returns and reaches ``half_width`` of their deviations to either
side. It stays where it is while it still fits the return scale, so that moving the scale moves no
prediction at all. When it no longer fits it is laid anew, and new logits are local averages of the
old ones. Averages are linear, so the last layer takes them up for every input at once:

    W' = P W,   b' = P b + e

with P the averages around the new grid points, and e a steep slope for points that the old grid did
not reach. No head of this kind can keep every law exactly on another grid;
:meth:`CategoricalHead.update_scale` says how closely this one does.

References:
    Bellemare et al. 2017, A distributional perspective on reinforcement learning.
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal, Self

import torch
from annotated_types import Ge, Gt, Le
from torch import Generator, Tensor

from quantail.config_class import config
from quantail.errors import ConfigError
from quantail.losses.value import categorical_loss, project
from quantail.nets.critics.base import CriticHead
from quantail.nets.critics.quantile import weighted_std
from quantail.nets.layers import orthogonal_linear
from quantail.nets.rows import RowLaw
from quantail.risk import cvar

# A grid fits while it is between these factors of the width it would be laid with now, and its
# center within this many of its deviations of the mean.
_WIDEST, _NARROWEST, _FARTHEST = 2.0, 0.8, 0.5

# Logits fall by 1 per grid step beyond the old grid, but by this much at most: mass there starts
# small, and is not out of reach of learning after a great jump of the scale.
_DEEPEST = 8.0

# Probability below which a re-projected law's logarithm is not followed.
_FLOOR = 1e-8


@config
class CategoricalCritic:
    """Predicts probabilities of returns on a grid."""

    kind: Literal["categorical"] = "categorical"
    n_atoms: Annotated[int, Ge(2)] = 51
    """Points of the grid."""
    half_width: Annotated[float, Gt(0)] = 5.0
    """Reach of the grid to either side, in return deviations; returns beyond it are clipped."""
    scale_rate: Annotated[float, Ge(0), Le(1)] = 0.2
    """Weight of a new rollout in the return scale; 0 keeps the scale at 1."""

    def build(self, input_size: int) -> "CategoricalHead":
        """Build the head for latents of ``input_size``."""
        return CategoricalHead(input_size, self)


@dataclass(frozen=True, slots=True)
class CategoricalValues(RowLaw):
    """Probabilities on a grid that all rows share."""

    log_probs: Tensor
    """[..., K], normalized."""
    support: Tensor
    """[K], even and ascending, in raw units."""
    scale: Tensor

    ROW_FIELDS: ClassVar[tuple[str, ...]] = ("log_probs",)

    def probs(self) -> Tensor:
        """Probabilities, [..., K]."""
        return self.log_probs.exp()

    def mean(self) -> Tensor:
        """Expected return, [...]."""
        return self.probs() @ self.support

    def std(self) -> Tensor:
        """Standard deviation of the return, [...]."""
        return weighted_std(self.support, self.mean(), self.probs())

    def quantile(self, tau: float) -> Tensor:
        """Return the ``tau``-quantile, [...]."""
        return cvar.quantile(self.support, self.probs(), tau)

    def cvar(self, alpha: float) -> Tensor:
        """Mean of the worst ``alpha`` share of returns, [...]."""
        return cvar.cvar(self.support, self.probs(), alpha)

    def atoms(self, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
        """Return K atoms of weight 1/K, [..., K]: the means of K equal slices of the law.

        With G(u) = ∫_0^u F⁻¹, which is linear between the steps of F, atom j is
        K (G((j + 1)/K) - G(j/K)). The mean of the atoms is that of the law.
        """
        count = len(self.support)
        probs = self.probs().double()
        support = self.support.double()
        steps = probs.cumsum(-1)
        steps = steps / steps[..., -1:]
        integral = (probs / probs.sum(-1, keepdim=True) * support).cumsum(-1)
        edges = torch.arange(1, count, device=probs.device, dtype=probs.dtype) / count
        edges = edges.expand(*probs.shape[:-1], -1).contiguous()
        cell = torch.searchsorted(steps, edges).clamp(max=count - 1)
        # G at the edge, from the step above it: no index before the first is needed.
        at_edges = integral.gather(-1, cell) - (steps.gather(-1, cell) - edges) * support[cell]
        ends = torch.zeros_like(integral[..., :1])
        curve = torch.cat([ends, at_edges, integral[..., -1:]], dim=-1)
        atoms = (curve.diff(dim=-1) * count).to(self.log_probs.dtype)
        return atoms, self.support.new_full((count,), 1 / count)

    def affine(self, shift: Tensor, scale: Tensor) -> Self:
        """Return the law of ``shift + scale * Z``, projected back onto the grid.

        Mass that leaves the grid is put on its ends; then the mean falls short of
        ``shift + scale * mean``.
        """
        moved = shift.unsqueeze(-1) + scale.unsqueeze(-1) * self.support
        return self._with_probs(self._projected(moved, self.probs()))

    def clamp(self, center: Self, width: Tensor) -> Self:
        """Refuse: grid points do not move, so there is nothing to hold."""
        raise ConfigError(
            'value_clip.kind = "per_quantile" needs critic.kind quantile or scalar; it was '
            '"categorical", whose grid does not move. Use value_clip.kind = "mean_only".'
        )

    def loss(self, atoms: Tensor, weights: Tensor) -> Tensor:
        """Cross-entropy to the projected target law, in units of log K, [...]."""
        return categorical_loss(self.log_probs, self._projected(atoms, weights))

    def outside(self, atoms: Tensor, weights: Tensor) -> Tensor:
        """Share [...] of the target law [..., M] that lies beyond the grid and is clipped to it."""
        beyond = (atoms < self.support[0]) | (atoms > self.support[-1])
        return (beyond * weights).sum(-1)

    def _projected(self, atoms: Tensor, weights: Tensor) -> Tensor:
        low, high = self.support[0], self.support[-1]
        return project(atoms, weights, low, high, len(self.support))

    def _with_probs(self, probs: Tensor) -> Self:
        probs = probs.clamp(min=_FLOOR)
        return replace(self, log_probs=(probs / probs.sum(-1, keepdim=True)).log())


class CategoricalHead(CriticHead[CategoricalValues]):
    """One linear layer of logits, and the grid as a buffer."""

    support: Tensor

    def __init__(self, input_size: int, config: CategoricalCritic) -> None:
        super().__init__(config.scale_rate)
        self.half_width = config.half_width
        self.linear = orthogonal_linear(input_size, config.n_atoms, gain=0.01)
        reach = torch.linspace(-config.half_width, config.half_width, config.n_atoms)
        self.register_buffer("support", reach)
        with torch.no_grad():
            # An untrained critic predicts a normal law of deviation 1.
            self.linear.bias.copy_(-0.5 * reach.square())

    def forward(self, latent: Tensor) -> CategoricalValues:
        """Return the law of each row."""
        log_probs = self.linear(latent).log_softmax(-1)
        return CategoricalValues(log_probs, self.support, self.scale.std)

    @torch.no_grad()
    def update_scale(self, atoms: Tensor, weights: Tensor, row_weights: Tensor) -> None:
        """Move the return scale, and lay the grid anew when it no longer fits.

        While the grid stays, every prediction stays. When it is laid anew for a scale up to twice
        as large or as small, means of laws wider than a grid step move by 0.03 old deviations at
        most; after a greater jump, by 0.05 new deviations. The first call lays the grid without
        keeping predictions: nothing is learned yet.
        """
        change = self.scale.update(atoms, weights, row_weights)
        if self.scale.rate == 0 or not int(self.scale.updates):
            return
        first = int(self.scale.updates) == 1
        if not first and self._fits(change.mean, change.std):
            return
        unit = torch.linspace(-self.half_width, self.half_width, len(self.support))
        grid = (change.mean + change.std * unit.to(self.scale.std)).to(self.support)
        if not first:
            self._reread_logits(grid)
        # A new tensor: laws of earlier passes hold on to the old grid.
        self.support = grid

    def _fits(self, mean: float, std: float) -> bool:
        low, high = float(self.support[0]), float(self.support[-1])
        grid_std = (high - low) / (2 * self.half_width)
        near = abs(mean - (low + high) / 2) <= _FARTHEST * grid_std
        return near and _NARROWEST * std <= grid_std <= _WIDEST * std

    def _reread_logits(self, grid: Tensor) -> None:
        """Let the linear layer give at the points of ``grid`` what it gave around them before.

        Each new logit is the average of the old ones under a hat as wide as the coarser grid step.
        """
        old = self.support.double()
        point = grid.double().clamp(old[0], old[-1])
        width = torch.maximum(old[1] - old[0], (grid[1] - grid[0]).double())
        hats = (1 - (point.unsqueeze(1) - old).abs() / width).clamp(min=0)
        hats /= hats.sum(1, keepdim=True)
        steps_outside = (grid.double() - point).abs() / (old[1] - old[0])
        # The nearest point takes the mass when none lies on the old grid.
        steps_outside -= steps_outside.min()
        self.linear.weight.copy_(hats @ self.linear.weight.double())
        bias = hats @ self.linear.bias.double()
        self.linear.bias.copy_(bias - steps_outside.clamp(max=_DEEPEST))
