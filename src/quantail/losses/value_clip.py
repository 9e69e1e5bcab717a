"""Value clipping: each mode written once, over the methods of a value law.

A mode builds, from a critic's new law and its own old one, a law that has moved no further than
the range allows. The loss of a row is the greater of the losses of the new and the held law, both
to the same, unclipped target: clipping can only make the critic look worse, never hide an error.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeAlias, TypeVar

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from quantail.config_class import BY_KIND, config
from quantail.errors import ConfigError
from quantail.flow import ValueDistribution

_Law = TypeVar("_Law", bound=ValueDistribution)

# A re-projected mean this close to the one asked for, in return scales, needs no solving.
_MEAN_TOLERANCE = 1e-6

# Doublings that cross any grid of ours, and halvings that reach the precision of float32.
_WALKS, _HALVINGS = 16, 40


@config
class NoClip:
    """The critic may move freely."""

    kind: Literal["off"] = "off"
    critics: ClassVar[tuple[str, ...]] = ("quantile", "categorical", "scalar")


@config
class MeanClip:
    """Hold the mean near the old mean; shape and spread stay free."""

    kind: Literal["mean_only"] = "mean_only"
    range: Annotated[float, Gt(0)] = 0.2
    """Greatest move of the mean, in return scales."""
    critics: ClassVar[tuple[str, ...]] = ("quantile", "categorical", "scalar")

    def held(self, new: _Law, old: _Law) -> _Law:
        """Return Z + (clip(μ, μ_0 ± ε) - μ)."""
        return _with_mean(new, _held_mean(new, old, self.range), torch.ones_like(new.mean()))


@config
class MeanAndVarianceClip:
    """Hold the mean near the old mean, and the spread within a factor of the old spread."""

    kind: Literal["mean_and_variance"] = "mean_and_variance"
    range: Annotated[float, Gt(0)] = 0.2
    """Greatest move of the mean, in return scales."""
    spread_factor: Annotated[float, Ge(1)] = 2.0
    """f: the standard deviation stays within [σ_0 / f, σ_0 f]."""
    critics: ClassVar[tuple[str, ...]] = ("quantile", "categorical")

    def held(self, new: _Law, old: _Law) -> _Law:
        """Return μ_c + (clip(σ, σ_0/f, σ_0 f) / σ)(Z - μ), with μ_c = clip(μ, μ_0 ± ε)."""
        floor = _MEAN_TOLERANCE * new.scale
        reference, spread = old.std().detach().clamp(min=floor), new.std().clamp(min=floor)
        bound = torch.maximum(spread, reference / self.spread_factor)
        factor = torch.minimum(bound, reference * self.spread_factor) / spread
        return _with_mean(new, _held_mean(new, old, self.range), factor)


@config
class QuantileClip:
    """Hold every quantile near its old place; the strongest mode, which can freeze the tails."""

    kind: Literal["per_quantile"] = "per_quantile"
    range: Annotated[float, Gt(0)] = 0.2
    """Greatest move of a quantile, in return scales."""
    critics: ClassVar[tuple[str, ...]] = ("quantile", "scalar")

    def held(self, new: _Law, old: _Law) -> _Law:
        """Return the law with quantiles q_0i + clip(q_i - q_0i, ±ε)."""
        return new.clamp(old.detach(), self.range * new.scale)


ValueClipConfig: TypeAlias = Annotated[
    NoClip | MeanClip | MeanAndVarianceClip | QuantileClip, BY_KIND
]


@dataclass(frozen=True, slots=True)
class ValueLoss:
    """The rows of one critic's loss."""

    rows: Tensor
    """[...], what is minimized."""
    unclipped: Tensor
    """[...], of the new law."""
    clipped: Tensor
    """[...], of the held law; the same as ``unclipped`` without clipping."""


def value_loss(
    new: _Law, old: _Law, atoms: Tensor, weights: Tensor, clip: ValueClipConfig
) -> ValueLoss:
    """Return max(L(new), L(held)) of each row.

    Args:
        new: The critic's law, in the graph; rows [...].
        old: The same critic's law when acting, same rows; no gradient flows to it.
        atoms: [..., M], the target, never clipped.
        weights: [M].
        clip: The mode.
    """
    unclipped = new.loss(atoms, weights)
    if isinstance(clip, NoClip):
        return ValueLoss(unclipped, unclipped, unclipped)
    clipped = clip.held(new, old).loss(atoms, weights)
    return ValueLoss(torch.maximum(unclipped, clipped), unclipped, clipped)


def check_value_clip(clip: ValueClipConfig, critic: str) -> None:
    """Refuse a mode that the critic kind cannot follow.

    Args:
        clip: The mode.
        critic: ``kind`` of the critic's configuration.

    Raises:
        ConfigError: says which kinds the mode works with.
    """
    if critic not in clip.critics:
        raise ConfigError(
            f'value_clip.kind = "{clip.kind}" works with critic.kind {" or ".join(clip.critics)}; '
            f'critic.kind was "{critic}". Use value_clip.kind = "mean_only", or another critic.'
        )


def _held_mean(new: ValueDistribution, old: ValueDistribution, width: float) -> Tensor:
    """Return clip(μ, μ_0 - ε, μ_0 + ε), [...]."""
    center, reach = old.mean().detach(), width * new.scale
    return torch.minimum(torch.maximum(new.mean(), center - reach), center + reach)


def _with_mean(law: _Law, mean: Tensor, factor: Tensor) -> _Law:
    """Return the law of ``mean + factor (Z - E Z)``, such that its mean is ``mean``.

    A categorical law lives on a fixed grid: mass that leaves the grid is put on its ends, and the
    mean falls short of the one asked for. For such rows the shift is solved for.
    """
    shift = mean - factor * law.mean()
    moved = law.affine(shift, factor)
    short = (moved.mean() - mean).detach().abs() > _MEAN_TOLERANCE * law.scale
    if not bool(short.any()):
        return moved
    solved = shift.clone()
    solved[short] = _solved_shift(law.rows(short), mean[short], shift[short], factor[short])
    return law.affine(solved, factor)


def _solved_shift(law: _Law, mean: Tensor, shift: Tensor, factor: Tensor) -> Tensor:
    """Solve E[affine(s)] = mean for s; [n] rows.

    E[affine(s)] rises with s, so the root is bracketed by walking and halved. Its gradient is that
    of one Newton step at the root: ds = (d mean - dE) / (dE/ds). Where no shift moves the mean (all
    mass on one end) the shift gets no gradient.
    """

    def reached(value: Tensor) -> Tensor:
        return law.affine(value, factor).mean()

    with torch.no_grad():
        step = (mean - reached(shift)).abs() + law.scale
        low, high = shift - step, shift + step
        for _ in range(_WALKS):
            above, below = reached(low) > mean, reached(high) < mean
            if not bool((above | below).any()):
                break
            low, high = torch.where(above, low - step, low), torch.where(below, high + step, high)
            step = 2 * step
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = reached(middle) < mean
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        root = (low + high) / 2
        nudge = 1e-4 * law.scale
        slope = (reached(root + nudge) - reached(root - nudge)) / (2 * nudge)
    newton = (mean - reached(root)) / slope.clamp(min=1e-3)
    return root + torch.where(slope > 1e-3, newton, newton.detach())
