"""Exploration noise that depends on the state and stays the same for many steps (gSDE).

The noise of an action is a linear function of the features, ε(s) = Wᵀ f(s), with weights W_ij drawn
from N(0, S_ij²) and kept for a while: the same state gets the same noise, and actions do not
tremble from step to step. Over draws of W the action is Gaussian, with variance

    σ_j² = Σ_i f_i² S_ij²

References:
    Raffin, Kober, Stulp (2021), Smooth Exploration for Robotic Reinforcement Learning.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from quantail.config_class import config
from quantail.nets.actors.gaussian import DiagonalGaussian, SquashedGaussian

# Keeps the logarithm finite where all features are zero.
_LEAST_VARIANCE = 1e-6


@config
class StateNoise:
    """Noise that is a function of the state."""

    per_action: bool = True
    """One deviation for each feature and action; else one for each feature."""
    expln: bool = False
    """Deviations grow like a logarithm above 1, instead of exponentially."""

    def std(self, log_std: Tensor) -> Tensor:
        """Return the deviations of the weights, positive."""
        if not self.expln:
            return log_std.exp()
        # e^x below 0 and 1 + log(1 + x) above: value and slope agree at 0.
        return torch.where(
            log_std > 0, log_std.clamp(min=0).log1p() + 1, log_std.clamp(max=0).exp()
        )


@dataclass(frozen=True, slots=True)
class StateGaussian(DiagonalGaussian):
    """A Gaussian whose noise can be drawn as a function of the features."""

    features: Tensor
    """[..., F], outside the graph."""

    ROW_FIELDS: ClassVar[tuple[str, ...]] = ("location", "log_std", "features")


@dataclass(frozen=True, slots=True)
class SquashedStateGaussian(SquashedGaussian):
    """The same, squashed by tanh."""

    features: Tensor
    """[..., F], outside the graph."""

    ROW_FIELDS: ClassVar[tuple[str, ...]] = ("location", "log_std", "features")


def explored(law: StateGaussian | SquashedStateGaussian, weights: Tensor) -> Tensor:
    """Return raw actions f(s)ᵀ W + location, [..., A].

    Args:
        law: Rows [...].
        weights: [..., F, A], or [F, A] for all rows; see :func:`draw_weights`.
    """
    noise = (law.features.unsqueeze(-2) @ weights).squeeze(-2)
    return (law.location + noise).detach()


def draw_weights(std: Tensor, count: int, generator: Generator | None = None) -> Tensor:
    """Draw ``count`` weight matrices, [count, F, A], with deviations ``std`` [F, A]."""
    shape = (count, *std.shape)
    noise = torch.randn(shape, generator=generator, dtype=std.dtype, device=std.device)
    return std.detach() * noise


def log_std_of(features: Tensor, std: Tensor) -> Tensor:
    """Return log σ_j = ½ log Σ_i f_i² S_ij², [..., A]."""
    return 0.5 * (features.square() @ std.square() + _LEAST_VARIANCE).log()
