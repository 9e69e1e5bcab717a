"""The quantile critic: a staircase of quantiles that rises by construction.

    q_i = μ + σ (m + exp(c) Σ_k A_ki softplus(g_k)),   A_ki = 1{k < i} - Σ_{j>k} w_j

with m (mean), c (log spread) and g (gaps) linear in the latent vector, w_j the width of cell j. The
columns of A take the weighted mean out, so that Σ w_i q_i = μ + σ m: the mean is a direct output.
When the return scale moves, m is rescaled as a linear output and c takes log(σ/σ'): every quantile
stays where it was.

References:
    Dabney et al. 2018 (quantile regression); Zhou et al. 2020 (non-crossing quantiles).
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Generator, Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812 - the usual name

from quantail.config_class import config
from quantail.errors import ConfigError
from quantail.losses.value import quantile_loss
from quantail.nets.critics.base import CriticHead
from quantail.nets.critics.return_scale import rescale_output
from quantail.nets.critics.scalar import hold_within
from quantail.nets.layers import orthogonal_linear
from quantail.nets.rows import RowLaw
from quantail.risk import cvar

_LEAST_SLOPE = 1.0
"""Of the spread by its logarithm, on the way back; see :func:`spread_of`."""

_TAIL_CELLS = 8
"""Cells inside [0, alpha] from which CVaR of a normal law is right within 1 %."""


@config
class QuantileCritic:
    """Predicts quantiles of the return."""

    kind: Literal["quantile"] = "quantile"
    n_quantiles: Annotated[int, Ge(2)] = 32
    """Cells of the quantile function."""
    levels: Literal["uniform", "tail"] = "uniform"
    """``tail`` puts a quarter of the cells, at least 8, inside [0, tail_alpha]."""
    tail_alpha: Annotated[float, Gt(0), Lt(1)] | None = None
    """The level whose tail is wanted; needed by, and only for, ``levels = "tail"``."""
    kappa: Annotated[float, Ge(0)] = 0.0
    """Half-width of the quadratic part of the loss, in return scales; above 0.05 tails shrink."""
    scale_rate: Annotated[float, Ge(0), Le(1)] = 0.2
    """Weight of a new rollout in the return scale; 0 keeps the scale at 1."""

    def check(self) -> None:
        """Refuse a tail without its level, and a level without its tail."""
        if self.levels == "uniform" and self.tail_alpha is not None:
            raise ConfigError(
                f'critic.tail_alpha has no effect with critic.levels = "uniform"; was '
                f'{self.tail_alpha}. Set critic.levels = "tail", or leave tail_alpha out.'
            )
        if self.levels == "tail" and self.tail_alpha is None:
            raise ConfigError(
                'critic.levels = "tail" needs critic.tail_alpha, the level of the CVaR that is '
                "wanted; it was not given. Set it, for example to 0.05."
            )
        if self.levels == "tail" and self.n_quantiles < 2 * _TAIL_CELLS:
            raise ConfigError(
                f'critic.n_quantiles must be at least {2 * _TAIL_CELLS} with critic.levels = "tail"'
                f"; was {self.n_quantiles}. Use 32."
            )

    def edges(self) -> Tensor:
        """Edges of the cells, [Q + 1] in float64, from 0 to 1."""
        count = self.n_quantiles
        if self.tail_alpha is None:
            return torch.linspace(0, 1, count + 1, dtype=torch.float64)
        inside = max(_TAIL_CELLS, count // 4)
        tail = torch.linspace(0, self.tail_alpha, inside + 1, dtype=torch.float64)
        body = torch.linspace(self.tail_alpha, 1, count - inside + 1, dtype=torch.float64)
        return torch.cat([tail, body[1:]])

    def build(self, input_size: int) -> "QuantileHead":
        """Build the head for latents of ``input_size``."""
        return QuantileHead(input_size, self)


@dataclass(frozen=True, slots=True)
class QuantileValues(RowLaw):
    """A staircase: cell i of width ``weights[i]`` has the value ``quantiles[..., i]``."""

    quantiles: Tensor
    """[..., Q], ascending."""
    levels: Tensor
    """[Q], the middle of each cell."""
    weights: Tensor
    """[Q], the width of each cell; sum to 1."""
    scale: Tensor
    kappa: float

    ROW_FIELDS: ClassVar[tuple[str, ...]] = ("quantiles",)

    def mean(self) -> Tensor:
        """Expected return, [...]."""
        return self.quantiles @ self.weights

    def std(self) -> Tensor:
        """Standard deviation of the return, [...]."""
        return weighted_std(self.quantiles, self.mean(), self.weights)

    def quantile(self, tau: float) -> Tensor:
        """Return the ``tau``-quantile, [...]."""
        return cvar.quantile(self.quantiles, self.weights, tau)

    def cvar(self, alpha: float) -> Tensor:
        """Mean of the worst ``alpha`` share of returns, [...]."""
        return cvar.cvar(self.quantiles, self.weights, alpha)

    def atoms(self, generator: Generator | None = None) -> tuple[Tensor, Tensor]:
        """Return the quantiles [..., Q] and the cell widths [Q]."""
        return self.quantiles, self.weights

    def affine(self, shift: Tensor, scale: Tensor) -> Self:
        """Return the law of ``shift + scale * Z``."""
        shift, scale = shift.unsqueeze(-1), scale.unsqueeze(-1)
        return self.map_rows(lambda quantiles: shift + scale * quantiles)

    def clamp(self, center: Self, width: Tensor) -> Self:
        """Hold every quantile within ``width`` ([...] or scalar) of that of ``center``."""
        width = width.unsqueeze(-1) if width.ndim else width
        return self.map_rows(lambda quantiles: hold_within(quantiles, center.quantiles, width))

    def loss(self, atoms: Tensor, weights: Tensor) -> Tensor:
        """Quantile loss to the target law, in units of the return scale, [...]."""
        predicted, target = self.quantiles / self.scale, atoms / self.scale
        return quantile_loss(predicted, self.levels, target, weights, self.kappa)


def weighted_std(atoms: Tensor, mean: Tensor, weights: Tensor) -> Tensor:
    """Return √(Σ_j w_j (z_j - mean)²), [...]; its gradient is 0 where all atoms agree."""
    variance = ((atoms - mean.unsqueeze(-1)).square() * weights).sum(-1)
    return variance.clamp(min=torch.finfo(variance.dtype).tiny).sqrt()


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, log_spread: Tensor) -> Tensor:
        spread = log_spread.exp()
        ctx.save_for_backward(spread)
        return spread

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (spread,) = ctx.saved_tensors
        result: Tensor = gradient * spread.clamp(min=_LEAST_SLOPE)
        return result


def spread_of(log_spread: Tensor) -> Tensor:
    """Return exp(c), with a slope of at least ``_LEAST_SLOPE`` on the way back.

    After the return scale has grown a thousandfold, exp(c) is a thousand times too small and so
    would be its gradient, far below what the optimizer's moments remember; the spread would not
    recover. A steeper slope has the same sign and the same zeros. It also lets rows of little
    spread learn it as quickly, in proportion, as rows of much spread.
    """
    result: Tensor = _Spread.apply(log_spread)  # type: ignore[no-untyped-call]
    return result


class QuantileHead(CriticHead[QuantileValues]):
    """One linear layer with the outputs mean, log spread and Q - 1 gaps."""

    levels: Tensor
    weights: Tensor
    spread: Tensor

    def __init__(self, input_size: int, config: QuantileCritic) -> None:
        super().__init__(config.scale_rate)
        self.kappa = config.kappa
        edges = config.edges()
        levels, weights = (edges[1:] + edges[:-1]) / 2, edges.diff()
        above = torch.ones(len(levels) - 1, len(levels)).triu(1).double()
        spread = above - (above @ weights).unsqueeze(1)
        self.register_buffer("levels", levels.float())
        self.register_buffer("weights", weights.float())
        self.register_buffer("spread", spread.float())
        self.linear = orthogonal_linear(input_size, len(levels) + 1, gain=0.01)
        nn.init.orthogonal_(self.linear.weight[:1], gain=1.0)
        with torch.no_grad():
            # An untrained critic predicts a normal law of deviation 1.
            normal = math.sqrt(2) * torch.erfinv(2 * levels - 1)
            self.linear.bias[2:] = normal.diff().expm1().log()

    def forward(self, latent: Tensor) -> QuantileValues:
        """Return the staircase of each row."""
        mean, log_spread, gaps = self.linear(latent).split_with_sizes((1, 1, len(self.spread)), -1)
        normalized = mean + (F.softplus(gaps) * spread_of(log_spread)) @ self.spread
        quantiles = normalized * self.scale.std + self.scale.mean
        return QuantileValues(quantiles, self.levels, self.weights, self.scale.std, self.kappa)

    @torch.no_grad()
    def update_scale(self, atoms: Tensor, weights: Tensor, row_weights: Tensor) -> None:
        """Move the return scale; every quantile stays."""
        change = self.scale.update(atoms, weights, row_weights)
        rescale_output(self.linear.weight[:1], self.linear.bias[:1], change)
        self.linear.bias[1] += math.log(change.ratio)
