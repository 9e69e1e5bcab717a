"""How rows become one number."""

from collections.abc import Sequence

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
    return weighted_means([rows], weights)[0]


def weighted_means(columns: Sequence[Tensor], weights: Tensor) -> Tensor:
    """Return :func:`weighted_mean` of several terms at once.

    Args:
        columns: k tensors [...], one number per row each.
        weights: [...], at least 0.

    Returns:
        [k]; zeros when no row has weight.

    Raises:
        DataError: shapes differ.
    """
    for column in columns:
        check_rows("rows", column, weights)
    rows = torch.stack(tuple(columns)).flatten(1)
    shares = weights.flatten()
    total = shares.sum()
    sums = torch.where(shares > 0, rows * shares, 0.0).sum(1)
    return sums / torch.where(total > 0, total, 1.0)


def check_rows(name: str, rows: Tensor, weights: Tensor) -> None:
    """Raise :class:`DataError` unless there is one number per row."""
    if rows.shape != weights.shape:
        raise DataError(
            f"{name} must hold one number per row, shape {tuple(weights.shape)}; shape was "
            f"{tuple(rows.shape)}. Sum over action dimensions once, in the policy."
        )
