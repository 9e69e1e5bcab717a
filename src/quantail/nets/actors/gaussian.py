"""Laws over continuous actions: a diagonal Gaussian, as it is or squashed by tanh."""

import math
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional as F  # noqa: N812 - the usual name

from quantail.laws import ActionDistribution
from quantail.nets.rows import RowLaw

_LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The box that actions must lie in, flattened."""

    low: Tensor
    """[A]"""
    high: Tensor
    """[A]"""
    shape: tuple[int, ...]
    """Of one action of the environment."""

    def shaped(self, flat: Tensor) -> Tensor:
        """Return [..., *shape] from [..., A]."""
        return flat.reshape(*flat.shape[:-1], *self.shape)


@dataclass(frozen=True, slots=True)
class DiagonalGaussian(RowLaw):
    """Independent normal laws; actions are clipped into the box on the way to the environment.

    The stored raw action is the one before clipping, so that its density is the law's.
    """

    location: Tensor
    """[..., A]"""
    log_std: Tensor
    """[..., A]"""
    bounds: Bounds

    ROW_FIELDS: ClassVar[tuple[str, ...]] = ("location", "log_std")

    def sample(self, generator: Generator | None = None) -> Tensor:
        """Draw a raw action, [..., A]."""
        where = {"dtype": self.location.dtype, "device": self.location.device}
        noise = torch.randn(self.location.shape, generator=generator, **where)  # type: ignore[call-overload]
        raw: Tensor = self.location + self.log_std.exp() * noise
        return raw.detach()

    def mode(self) -> Tensor:
        """Return the location, [..., A]."""
        return self.location

    def to_env(self, raw: Tensor) -> Tensor:
        """Clip into the box, [..., *shape]."""
        return self.bounds.shaped(
            torch.minimum(torch.maximum(raw, self.bounds.low), self.bounds.high)
        )

    def log_prob(self, raw: Tensor) -> Tensor:
        """Log-density of the raw action, summed over dimensions, [...]."""
        z = (raw - self.location) * (-self.log_std).exp()
        return (-0.5 * (z.square() + _LOG_2PI) - self.log_std).sum(-1)

    def entropy(self) -> Tensor:
        """Sum over dimensions of log σ + ½ log 2πe, [...]."""
        return (self.log_std + 0.5 * (1 + _LOG_2PI)).sum(-1)

    def kl(self, new: Self) -> Tensor:
        """KL(self || new), [...].

        Σ_a log(σ'/σ) + (σ² + (m - m')²)/(2σ'²) - ½
        """
        spread = (2 * (self.log_std - new.log_std)).exp()
        shift = ((self.location - new.location) * (-new.log_std).exp()).square()
        return (new.log_std - self.log_std + 0.5 * (spread + shift - 1)).sum(-1)


@dataclass(frozen=True, slots=True)
class SquashedGaussian(DiagonalGaussian):
    """The law of tanh(u), u normal, stretched over the box.

    The raw action is u: log π(a) = log N(u) - Σ log(1 - tanh² u), where the last logarithm is
    2 (log 2 - u - softplus(-2u)), which never takes the logarithm of a rounded zero. Densities are
    per unit of tanh(u); the constant of the stretch cancels in every ratio and divergence.
    """

    def to_env(self, raw: Tensor) -> Tensor:
        """Return low + (high - low)(1 + tanh u)/2, [..., *shape]."""
        low, high = self.bounds.low, self.bounds.high
        return self.bounds.shaped(low + (high - low) * (raw.tanh() + 1) / 2)

    def log_prob(self, raw: Tensor) -> Tensor:
        """Log-density of the squashed action at its raw one, [...]."""
        return DiagonalGaussian.log_prob(self, raw) - log_slope(raw).sum(-1)

    def entropy(self) -> Tensor:
        """Entropy of the Gaussian plus E[log(1 - tanh² u)], [...].

        The expectation is a Gauss-Hermite sum: no noise, so equal laws have equal entropies.
        """
        nodes, weights = _hermite(self.location.dtype, self.location.device)
        u = self.location.unsqueeze(-1) + self.log_std.exp().unsqueeze(-1) * nodes
        return DiagonalGaussian.entropy(self) + (log_slope(u) @ weights).sum(-1)


def base_entropy(law: ActionDistribution) -> Tensor:
    """Return the entropy of each row before any squashing, [...].

    Squashing adds a term that follows the location; without it only the spread counts, so a policy
    that moves its actions without narrowing them shows a flat line.
    """
    if isinstance(law, DiagonalGaussian):
        return DiagonalGaussian.entropy(law)
    return law.entropy()


def log_slope(u: Tensor) -> Tensor:
    """Return log(1 - tanh² u) without cancellation."""
    return 2 * (math.log(2) - u - F.softplus(-2 * u))


@cache
def _hermite(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Nodes and weights of E f(z), z standard normal; constants, so they are made once."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(48)
    weights = weights / weights.sum()
    return (
        torch.as_tensor(nodes, dtype=dtype, device=device),
        torch.as_tensor(weights, dtype=dtype, device=device),
    )
