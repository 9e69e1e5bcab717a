"""CVaR by numerical integration of the quantile function."""

from collections.abc import Sequence


def quantile(atoms: Sequence[float], weights: Sequence[float], tau: float) -> float:
    """Return the least atom whose cumulative weight reaches ``tau``."""
    total = 0.0
    for atom, weight in sorted(zip(atoms, weights, strict=True)):
        total += weight
        if total >= tau - 1e-12:
            return atom
    return max(atoms)


def cvar(atoms: Sequence[float], weights: Sequence[float], alpha: float, cells: int) -> float:
    """Return the mean of the quantile function over (0, alpha), by the midpoint rule."""
    points = [alpha * (i + 0.5) / cells for i in range(cells)]
    return sum(quantile(atoms, weights, tau) for tau in points) / cells
