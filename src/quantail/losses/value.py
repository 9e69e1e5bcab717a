"""Distances between a critic's prediction and a target law of weighted atoms, row by row.

A target law has atoms ``y`` [..., M] and weights ``p`` [M] that sum to 1. Atoms are constants here:
no gradient flows to them. Everything is in the units it is given in; critics hand over predictions
and atoms divided by their return scale.
"""

import math
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from quantail.errors import ConfigError, DataError


def quantile_loss(
    quantiles: Tensor, levels: Tensor, atoms: Tensor, weights: Tensor, kappa: float = 0.0
) -> Tensor:
    """Return the pinball loss (κ = 0) or the quantile Huber loss of each row.

    loss = (1/Q) Σ_i Σ_j p_j ρ_i(y_j - q_i)
    ρ_i(u) = |τ_i - 1{u < 0}| L_κ(u) / κ,  L_κ(u) = u²/2 if |u| <= κ else κ (|u| - κ/2)
    and ρ_i(u) = |τ_i - 1{u < 0}| |u| for κ = 0, its limit.

    u is the target minus the prediction; the other sign would exchange the tails. Within κ the loss
    estimates expectiles, which pulls the quantiles together: keep κ below 0.05 return deviations.

    Args:
        quantiles: [..., Q].
        levels: [Q], τ_i in (0, 1).
        atoms: [..., M], the same leading axes as ``quantiles``.
        weights: [M], sum to 1.
        kappa: Half-width of the quadratic part.

    Returns:
        [...].

    Raises:
        ConfigError: ``kappa`` is negative or not finite.
        DataError: shapes do not fit.

    References:
        Dabney et al. 2018, Distributional RL with quantile regression, eq. 9 and 10.
    """
    if not (math.isfinite(kappa) and kappa >= 0):
        raise ConfigError(f"kappa must be at least 0 and finite; was {kappa}. Try 0.")
    _check_law(quantiles, atoms, weights, "quantiles")
    if levels.shape != quantiles.shape[-1:]:
        raise DataError(
            f"levels must have one entry per quantile, shape {tuple(quantiles.shape[-1:])}; shape "
            f"was {tuple(levels.shape)}."
        )
    levels, atoms = levels.to(quantiles.dtype), atoms.detach().to(quantiles.dtype)
    weights = weights.to(quantiles.dtype)
    if quantiles.device.type == "cpu":
        rows: Tensor = _FusedQuantileLoss.apply(  # type: ignore[no-untyped-call]
            quantiles, levels, atoms, weights, kappa
        )
        return rows
    return pairwise_quantile_loss(quantiles, levels, atoms, weights, kappa)


def pairwise_quantile_loss(
    quantiles: Tensor, levels: Tensor, atoms: Tensor, weights: Tensor, kappa: float
) -> Tensor:
    """Return :func:`quantile_loss` from all [..., Q, M] pairs; for devices without the kernel."""
    error = atoms.unsqueeze(-2) - quantiles.unsqueeze(-1)
    size = error.abs()
    if kappa > 0:
        size = torch.where(size <= kappa, error.square() / (2 * kappa), size - kappa / 2)
    tilt = (levels.unsqueeze(-1) - (error < 0).to(levels.dtype)).abs()
    return (tilt * size * weights).sum(-1).mean(-1)


class _FusedQuantileLoss(torch.autograd.Function):
    """Loss and gradient in one pass over the pairs, which are never stored."""

    @staticmethod
    def forward(
        ctx: Any, quantiles: Tensor, levels: Tensor, atoms: Tensor, weights: Tensor, kappa: float
    ) -> Tensor:
        predictions = _matrix(quantiles)
        gradient = np.empty_like(predictions)
        loss = np.empty(len(predictions), predictions.dtype)
        kernel = _huber_nb if kappa > 0 else _pinball_nb
        width = predictions.dtype.type(kappa)
        kernel(
            predictions, _vector(levels), _matrix(atoms), _vector(weights), width, loss, gradient
        )
        ctx.save_for_backward(torch.from_numpy(gradient).view(quantiles.shape))
        return torch.from_numpy(loss).view(quantiles.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return grad.unsqueeze(-1) * gradient, None, None, None, None


def project(atoms: Tensor, weights: Tensor, low: Tensor, high: Tensor, count: int) -> Tensor:
    """Project weighted atoms onto an even grid: linear shares to the two neighbors of each atom.

    b = (clip(y, low, high) - low) / Δ,   m_floor(b) += p (1 - frac b),   m_floor(b)+1 += p frac b

    Mass is conserved, and so is the mean of the clipped atoms. Differentiable in ``weights`` and,
    between grid points, in ``atoms``.

    Args:
        atoms: [..., M].
        weights: [M] or [..., M].
        low: Scalar, the first grid point.
        high: Scalar, the last grid point.
        count: K, points of the grid; at least 2.

    Returns:
        [..., K]. A row with an atom that is not finite comes back as NaN: it is never moved to an
        end of the grid.

    Raises:
        ConfigError: ``count`` is less than 2.

    References:
        Bellemare et al. 2017, A distributional perspective on RL, eq. 7.
    """
    if count < 2:
        raise ConfigError(
            f"n_atoms must be at least 2; was {count}. Use a scalar critic for a point estimate."
        )
    in_graph = torch.is_grad_enabled() and (atoms.requires_grad or weights.requires_grad)
    if in_graph or atoms.device.type != "cpu":
        return scattered_projection(atoms, weights, low, high, count)
    points = _matrix(atoms)
    mass = np.zeros((len(points), count), points.dtype)
    shares = _matrix(weights.to(atoms.dtype).expand(atoms.shape))
    _project_nb(points, shares, float(low), float(high), mass)
    return torch.from_numpy(mass).view(*atoms.shape[:-1], count)


def scattered_projection(
    atoms: Tensor, weights: Tensor, low: Tensor, high: Tensor, count: int
) -> Tensor:
    """Return :func:`project` by operations that autograd and every device know."""
    position = (atoms.clamp(low, high) - low) * ((count - 1) / (high - low))
    # The last grid point belongs to the cell before it, so no mass is lost where b is an integer.
    cell = position.detach().nan_to_num().long().clamp(0, count - 2)
    share = torch.where(torch.isfinite(atoms), position - cell, torch.nan)
    mass = weights.expand(atoms.shape)
    grid = torch.zeros((*atoms.shape[:-1], count), dtype=share.dtype, device=share.device)
    grid = grid.scatter_add(-1, cell, mass * (1 - share))
    return grid.scatter_add(-1, cell + 1, mass * share)


def categorical_loss(log_probs: Tensor, target: Tensor) -> Tensor:
    """Return the cross-entropy to the target law in units of log K, row by row.

    loss = -Σ_k m_k log p_k / log K; the uniform prediction has loss 1 whatever the target.

    Args:
        log_probs: [..., K], normalized.
        target: [..., K], as :func:`project` gives it; no gradient flows to it.

    Returns:
        [...].

    Raises:
        DataError: shapes differ, or there are fewer than 2 atoms.
    """
    if log_probs.shape != target.shape or log_probs.shape[-1] < 2:
        raise DataError(
            "log_probs and target must share a shape [..., K] with K at least 2; shapes were "
            f"{tuple(log_probs.shape)} and {tuple(target.shape)}."
        )
    return -(target.detach() * log_probs).sum(-1) / math.log(log_probs.shape[-1])


def scalar_loss(values: Tensor, atoms: Tensor, weights: Tensor) -> Tensor:
    """Return (v - Σ_j p_j y_j)², the squared distance to the mean of the target law, row by row.

    Args:
        values: [...].
        atoms: [..., M].
        weights: [M], sum to 1.

    Returns:
        [...].

    Raises:
        DataError: shapes do not fit.
    """
    _check_law(values.unsqueeze(-1), atoms, weights, "values")
    mean = (atoms.detach().to(values.dtype) * weights.to(values.dtype)).sum(-1)
    return (values - mean).square()


def _check_law(predictions: Tensor, atoms: Tensor, weights: Tensor, name: str) -> None:
    if atoms.shape[:-1] != predictions.shape[:-1]:
        raise DataError(
            f"atoms must have shape [..., M] with the rows {tuple(predictions.shape[:-1])} of "
            f"{name}; shape was {tuple(atoms.shape)}. An extra axis would couple the rows."
        )
    if weights.shape != atoms.shape[-1:]:
        raise DataError(
            f"weights must have one entry per atom, shape {tuple(atoms.shape[-1:])}; shape was "
            f"{tuple(weights.shape)}."
        )


def _matrix(tensor: Tensor) -> np.ndarray[Any, np.dtype[Any]]:
    flat = tensor.detach().reshape(-1, tensor.shape[-1]).contiguous()
    result: np.ndarray[Any, np.dtype[Any]] = flat.numpy()
    return result


def _vector(tensor: Tensor) -> np.ndarray[Any, np.dtype[Any]]:
    result: np.ndarray[Any, np.dtype[Any]] = tensor.detach().contiguous().numpy()
    return result


# Sums may be reordered, so that they fill vector registers; NaN and infinity keep their meaning.
_REORDER = {"reassoc", "contract"}


# Every number in the kernels has the dtype of the predictions: one wider constant would halve what
# a vector register holds.
@njit(cache=True, fastmath=_REORDER)
def _pinball_nb(quantiles, levels, atoms, weights, kappa, loss, gradient):  # type: ignore[no-untyped-def]
    rows, count = quantiles.shape
    share = quantiles.dtype.type(1.0 / count)
    one, zero = quantiles.dtype.type(1.0), quantiles.dtype.type(0.0)
    for r in range(rows):
        total = zero
        for i in range(count):
            value, slope = zero, zero
            for j in range(atoms.shape[1]):
                error = atoms[r, j] - quantiles[r, i]
                tilt = levels[i] - (one if error < zero else zero)
                value += weights[j] * tilt * error
                slope -= weights[j] * tilt
            total += value
            gradient[r, i] = slope * share
        loss[r] = total * share


@njit(cache=True, fastmath=_REORDER)
def _huber_nb(quantiles, levels, atoms, weights, kappa, loss, gradient):  # type: ignore[no-untyped-def]
    rows, count = quantiles.shape
    share = quantiles.dtype.type(1.0 / count) / kappa
    one, zero = quantiles.dtype.type(1.0), quantiles.dtype.type(0.0)
    half = quantiles.dtype.type(0.5)
    for r in range(rows):
        total = zero
        for i in range(count):
            value, slope = zero, zero
            for j in range(atoms.shape[1]):
                error = atoms[r, j] - quantiles[r, i]
                tilt = levels[i] - (one if error < zero else zero)
                # With c = min(|u|, κ): L(u) = c (|u| - c / 2) and |tilt| L'(u) = tilt c.
                size = abs(error)
                core = size if size < kappa else kappa
                value += weights[j] * abs(tilt) * core * (size - half * core)
                slope -= weights[j] * tilt * core
            total += value
            gradient[r, i] = slope * share
        loss[r] = total * share


@njit(cache=True)
def _project_nb(atoms, weights, low, high, mass):  # type: ignore[no-untyped-def]
    rows, count = mass.shape
    per_unit = (count - 1) / (high - low)
    for r in range(rows):
        for j in range(atoms.shape[1]):
            if not np.isfinite(atoms[r, j]):
                mass[r, :] = np.nan
                break
            position = (min(max(atoms[r, j], low), high) - low) * per_unit
            cell = min(int(position), count - 2)
            share = weights[r, j] * (position - cell)
            mass[r, cell] += weights[r, j] - share
            mass[r, cell + 1] += share
