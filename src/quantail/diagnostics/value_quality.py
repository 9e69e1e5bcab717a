"""How well values predict returns."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from quantail.errors import DataError


def explained_variance(predicted: Tensor, observed: Tensor, weights: Tensor) -> Tensor:
    """Return 1 - Var(y - ŷ) / Var(y), with weights; NaN where it is undefined.

    1 is perfect, 0 is no better than a constant, below 0 is worse. With unpredictable returns the
    best possible value is 0.

    Args:
        predicted: [...], ŷ.
        observed: [...], y, in the same units.
        weights: [...]; rows with weight 0 are left out.

    Returns:
        Scalar; NaN for fewer than two rows or Var(y) <= 1e-8.
    """
    used = weights > 0
    y, shares = observed[used].double(), weights[used].double()
    if y.numel() < 2:
        return torch.tensor(torch.nan)
    error = y - predicted[used].double()
    total = _variance(y, shares)
    return (
        (1 - _variance(error, shares) / total).float() if total > 1e-8 else torch.tensor(torch.nan)
    )


def grouped_explained_variance(
    predicted: Tensor, observed: Tensor, weights: Tensor, groups: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Return :func:`explained_variance` of each group of rows, by name.

    Args:
        predicted: [T, N].
        observed: [T, N].
        weights: [T, N].
        groups: [T][N], the group of each row.
    """
    names = np.asarray(groups)
    if names.shape != tuple(weights.shape):
        raise DataError(
            f"groups must name one group per row, shape {tuple(weights.shape)}; shape was "
            f"{names.shape}"
        )
    found = {}
    for name in np.unique(names):
        chosen = torch.as_tensor(names == name)
        parts = (part.cpu()[chosen] for part in (predicted, observed, weights))
        found[str(name)] = float(explained_variance(*parts))
    return found


def _variance(rows: Tensor, shares: Tensor) -> Tensor:
    shares = shares / shares.sum()
    mean = (shares * rows).sum()
    return (shares * (rows - mean).square()).sum()
