"""Critic losses of one row as double loops over Python floats."""

from collections.abc import Sequence


def quantile_loss(
    quantiles: Sequence[float],
    levels: Sequence[float],
    atoms: Sequence[float],
    weights: Sequence[float],
    kappa: float,
) -> float:
    """Mean over quantiles of the weighted sum over atoms."""
    total = 0.0
    for quantile, level in zip(quantiles, levels, strict=True):
        for atom, weight in zip(atoms, weights, strict=True):
            error = atom - quantile
            if kappa == 0:
                size = abs(error)
            elif abs(error) <= kappa:
                size = error**2 / 2 / kappa
            else:
                size = abs(error) - kappa / 2
            total += weight * size * (level if error >= 0 else 1 - level)
    return total / len(quantiles)


def project(
    atoms: Sequence[float], weights: Sequence[float], low: float, high: float, count: int
) -> list[float]:
    """Give each atom's weight to the grid points by their tent functions."""
    step = (high - low) / (count - 1)
    mass = [0.0] * count
    for atom, weight in zip(atoms, weights, strict=True):
        held = min(max(atom, low), high)
        for k in range(count):
            mass[k] += weight * max(0.0, 1 - abs(held - (low + k * step)) / step)
    return mass
