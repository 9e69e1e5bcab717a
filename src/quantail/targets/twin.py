"""How twin critics become one estimate: the same rule for values, bootstraps and atoms."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Generator, Tensor

from quantail.flow import ValueDistribution

Twin: TypeAlias = Literal["min", "mean", "off"]
"""``min``: the critic with the smaller mean speaks for a row. ``mean``: the average of both.
``off``: there is one critic."""


def twin_mean(values: Sequence[ValueDistribution], twin: Twin) -> Tensor:
    """Return the value of each row, [...].

    V = min_k V_k, or their mean.
    """
    means = torch.stack([value.mean() for value in values])
    return means.mean(0) if twin == "mean" else means.amin(0)


def twin_atoms(
    values: Sequence[ValueDistribution], twin: Twin, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Return atoms [..., M] of one law for each row, and their weights [M].

    With ``min`` the whole law of the critic with the smaller mean: an element-wise minimum would be
    the law of neither. With ``mean`` the average of the sorted atoms, whose mean is the mean of the
    two.
    """
    pairs = [value.atoms(generator) for value in values]
    atoms, weights = torch.stack([pair[0] for pair in pairs]), pairs[0][1]
    if twin == "mean":
        return atoms.mean(0), weights
    chosen = torch.stack([value.mean() for value in values]).argmin(0)
    index = chosen[None, ..., None].expand(1, *atoms.shape[1:])
    return atoms.gather(0, index).squeeze(0), weights
