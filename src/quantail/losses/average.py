"""The terms of a minibatch from those of its micro-batches."""

from collections.abc import Sequence
from dataclasses import fields

import torch
from torch import Tensor

from quantail.flow import LossTerms, RatioInfo

# Fields of RatioInfo that are no means over rows.
_EXTREMES = frozenset({"log_ratio_max_abs"})
_COUNTS = frozenset({"log_ratio_nan_count", "log_ratio_inf_count"})


def average_terms(
    terms: Sequence[LossTerms], shares: Sequence[float], every: Sequence[LossTerms] | None = None
) -> LossTerms:
    """Return the terms over all rows, outside the graph.

    Args:
        terms: Of each micro-batch: weighted means over its rows.
        shares: Sum of row weights of each micro-batch.
        every: Of all micro-batches, those left out too: counts are theirs; None has none left out.

    Returns:
        Means weighted by ``shares``, counts summed, extremes kept. A standard deviation is averaged
        as if the micro-batches had the same mean.
    """
    weights = torch.tensor(shares)
    weights = weights / weights.sum()

    def mean(rows: Sequence[Tensor]) -> Tensor:
        return (weights * torch.stack([row.detach() for row in rows])).sum()

    ratios: dict[str, Tensor] = {}
    for field in fields(RatioInfo):
        rows = [getattr(term.ratio, field.name) for term in terms]
        if field.name in _EXTREMES:
            ratios[field.name] = torch.stack(rows).amax()
        elif field.name in _COUNTS:
            counted = [getattr(term.ratio, field.name) for term in every or terms]
            ratios[field.name] = torch.stack(counted).sum()
        else:
            ratios[field.name] = mean(rows)
    costs = [term.cost for term in terms if term.cost is not None]
    return LossTerms(
        total=mean([term.total for term in terms]),
        policy=mean([term.policy for term in terms]),
        entropy=mean([term.entropy for term in terms]),
        values=tuple(mean(rows) for rows in zip(*(term.values for term in terms), strict=True)),
        penalty=mean([term.penalty for term in terms]),
        imitation=mean([term.imitation for term in terms]),
        ratio=RatioInfo(**ratios),
        cost=mean(costs) if costs else None,
    )
