"""Exact CVaR of laws made of weighted atoms: quantile cells, categorical laws, samples.

CVaR_α(Z) = (1/α) ∫_0^α F⁻¹(u) du, the mean of the worst α share; bigger is better. For atoms
z_1 <= ... <= z_M with weights p_i and F_i = p_1 + ... + p_i the quantile function is a staircase,
so

CVaR_α = (1/α) Σ_i w_i z_i,   w_i = clip(α - F_{i-1}, 0, p_i)

exactly: continuous and monotone in α, never below the least atom, the mean at α = 1. Nothing is
extrapolated below the least atom. ∂CVaR/∂z_i = w_i/α and ∂CVaR/∂p_i = min(z_i - z_k, 0)/α, where
z_k is the α-quantile.

How close a staircase of perfect quantiles comes to the law behind it: docs/cvar_accuracy.md.
"""

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from quantail.errors import ConfigError, DataError, QuantailWarning

# Weights such as 1/20 are rounded; a level this close to a step of F is meant to lie on it.
_STEP_TOLERANCE = 1e-6


def cvar(atoms: Tensor, weights: Tensor, alpha: float) -> Tensor:
    """Return CVaR_α of each row's law.

    Args:
        atoms: [..., M] in any order, or [M] for atoms that all rows share.
        weights: [M], or [..., M] for weights that differ between rows; sum to 1.
        alpha: α, in (0, 1].

    Returns:
        [...], differentiable in atoms and weights.

    Raises:
        ConfigError: ``alpha`` is out of range.
        DataError: shapes do not fit.
    """
    check_alpha(alpha)
    atoms, weights = _sorted_law(atoms, weights)
    return (tail_weights(weights, alpha) * atoms).sum(-1) / alpha


def quantile(atoms: Tensor, weights: Tensor, tau: float) -> Tensor:
    """Return the τ-quantile of each row's law: the least atom with F_i >= τ (VaR for τ = α).

    Args:
        atoms: As for :func:`cvar`.
        weights: As for :func:`cvar`.
        tau: τ, in (0, 1].

    Returns:
        [...], differentiable in atoms.

    Raises:
        ConfigError: ``tau`` is out of range.
        DataError: shapes do not fit.
    """
    check_alpha(tau, "tau")
    atoms, weights = _sorted_law(atoms, weights)
    below = weights.double().cumsum(-1) < tau - _STEP_TOLERANCE
    index = below.sum(-1).clamp(max=atoms.shape[-1] - 1)
    shape = _law_shape(atoms, weights)
    index = index.expand(shape[:-1]).unsqueeze(-1)
    return atoms.expand(shape).gather(-1, index).squeeze(-1)


def tail_weights(weights: Tensor, alpha: float) -> Tensor:
    """Return w_i = clip(α - F_{i-1}, 0, p_i) for atoms in ascending order, [..., M]."""
    before = weights.cumsum(-1) - weights
    return torch.minimum((alpha - before).clamp(min=0.0), weights)


@dataclass(frozen=True, slots=True)
class EmpiricalCVaR:
    """CVaR of a sample with its uncertainty."""

    cvar: float
    var: float
    """The α-quantile of the sample."""
    standard_error: float
    """Of ``cvar``; infinite for fewer than 2 samples."""
    tail_count: float
    """α times the number of samples; below 20 the estimate and its error are rough."""


def empirical_cvar(samples: Tensor, alpha: float) -> EmpiricalCVaR:
    """Estimate CVaR_α from independent samples.

    s.e. = √(Var(tail) + (1 - α)(VaR - CVaR)²) / √(αn), with Var(tail) under the tail weights.

    Args:
        samples: [n], for example raw discounted returns of episodes, neither clipped nor scaled.
        alpha: α, in (0, 1].

    Raises:
        ConfigError: ``alpha`` is out of range.
        DataError: there is no sample, or one is not finite.

    References:
        Trindade et al. 2007, Financial prediction with constrained tail risk, for the error.
    """
    check_alpha(alpha)
    if samples.ndim != 1 or not samples.numel() or not torch.isfinite(samples).all():
        raise DataError(
            "samples must be a vector of at least one finite number; shape was "
            f"{tuple(samples.shape)} with {int(torch.isfinite(samples).sum())} finite entries."
        )
    count = samples.numel()
    ordered = samples.detach().double().sort().values
    weights = torch.full_like(ordered, 1 / count)
    shares = tail_weights(weights, alpha) / alpha
    center = (shares * ordered).sum()
    var = quantile(ordered, weights, alpha)
    spread = (shares * (ordered - center).square()).sum() + (1 - alpha) * (var - center).square()
    error = float((spread / (alpha * count)).sqrt()) if count > 1 else float("inf")
    return EmpiricalCVaR(float(center), float(var), error, alpha * count)


def check_alpha(alpha: float, name: str = "cvar_alpha") -> None:
    """Raise :class:`ConfigError` unless 0 < α <= 1."""
    if not 0 < alpha <= 1:
        raise ConfigError(f"{name} must lie in (0, 1]; was {alpha}. Try 0.05.")


def warn_if_coarse(weights: Tensor, alpha: float) -> None:
    """Warn when not even one whole atom fits into the tail, so that CVaR_α is the least atom.

    Args:
        weights: [M], of atoms in ascending order.
        alpha: α.
    """
    check_alpha(alpha)
    if float(weights[0]) > alpha + _STEP_TOLERANCE:
        warnings.warn(
            f"cvar_alpha = {alpha} is smaller than the first cell ({float(weights[0]):.4g}), so "
            "CVaR is read from a single quantile and is too optimistic, by about 20 % on a normal "
            'law. Use tail levels (critic.levels = "tail") or more quantiles.',
            QuantailWarning,
            stacklevel=2,
        )


def _sorted_law(atoms: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the law with atoms in ascending order; weights move with their atoms."""
    shared = atoms.ndim == 1 or weights.ndim == 1
    if atoms.shape[-1:] != weights.shape[-1:] or not (shared or atoms.shape == weights.shape):
        raise DataError(
            "atoms and weights must be [..., M] and [M], [M] and [..., M], or share a shape; "
            f"shapes were {tuple(atoms.shape)} and {tuple(weights.shape)}."
        )
    if bool((atoms[..., 1:] >= atoms[..., :-1]).all()):
        return atoms, weights
    shape = _law_shape(atoms, weights)
    atoms, order = atoms.expand(shape).sort(-1)
    return atoms, weights.expand(shape).gather(-1, order)


def _law_shape(atoms: Tensor, weights: Tensor) -> torch.Size:
    return atoms.shape if atoms.ndim >= weights.ndim else weights.shape
