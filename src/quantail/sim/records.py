"""Summaries of the record over many steps."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from quantail.types import FloatArray


@dataclass(frozen=True, slots=True)
class CostSummary:
    """Costs per step as fractions of equity; what is no finite number is left out and counted."""

    mean: float
    """NaN when nothing is left."""
    median: float
    excluded: int
    """Values that were no finite number."""
    n: int
    """Values that entered mean and median."""


def finite_fractions(values: Iterable[object]) -> FloatArray:
    """Return ``values`` as an array in which everything but a finite number is NaN."""
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        flat = values.astype(np.float64).ravel()
        return np.where(np.isfinite(flat), flat, np.nan)
    return np.array([_finite_or_nan(value) for value in values], np.float64)


def _finite_or_nan(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return math.nan
    number = float(value)
    return number if math.isfinite(number) else math.nan


def summarize_costs(values: Iterable[object]) -> CostSummary:
    """Return mean and median of cost fractions, without those that are no finite number."""
    fractions = finite_fractions(values)
    good = fractions[np.isfinite(fractions)]
    return CostSummary(
        mean=float(good.mean()) if len(good) else math.nan,
        median=float(np.median(good)) if len(good) else math.nan,
        excluded=len(fractions) - len(good),
        n=len(good),
    )
