"""How rows become one number."""

import torch
from torch import Tensor

from quantail.errors import DataError


def weighted_mean(rows: Tensor, weights: Tensor) -> Tensor:
    """Return Σ w x / Σ w; rows with weight 0 are left out, whatever they hold.

    Args:
        rows: [...], one number per row.
        weights: [...], at least 0.

    Returns:
        Scalar; 0 when no row has weight.

    Raises:
        DataError: shapes differ. Rows must be reduced to one number each before they come here.
    """
    check_rows("rows", rows, weights)
    used = weights > 0
    total = weights.sum()
    return torch.where(used, rows * weights, 0.0).sum() / torch.where(total > 0, total, 1.0)


def check_rows(name: str, rows: Tensor, weights: Tensor) -> None:
    """Raise :class:`DataError` unless there is one number per row."""
    if rows.shape != weights.shape:
        raise DataError(
            f"{name} must hold one number per row, shape {tuple(weights.shape)}; shape was "
            f"{tuple(rows.shape)}. Sum over action dimensions once, in the policy."
        )
