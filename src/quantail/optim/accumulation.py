"""Gradients of one optimizer step from several micro-batches.

g = Σ_i W_i g_i / Σ_i W_i over the micro-batches really used, where g_i is the gradient of a
weighted mean over rows and W_i the sum of its row weights. So the cut into micro-batches does not
matter: the result is the gradient of the weighted mean over all rows.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Parameter

GRADIENT_NORM = "gradient norm"
"""What is bad when every part of a gradient is finite and their norm overflows."""


@dataclass(frozen=True, slots=True)
class AccumulationInfo:
    """Which micro-batches made the gradient."""

    used: tuple[bool, ...]
    """For each micro-batch, in order."""
    bad: tuple[str, ...]
    """For each micro-batch what was not finite first: "loss", the name of a parameter, or "gradient
    norm" when only the norm over all overflows; empty if all was well."""
    weight: float
    """Σ W over the micro-batches used; with 0 no gradient was set and no step may be taken."""
    empty: int
    """Micro-batches left out because no row had weight."""
    non_finite: int
    """Micro-batches left out because their loss or a gradient was not finite."""


def accumulate(
    parameters: Mapping[str, Parameter], losses: Iterable[tuple[Tensor, float]]
) -> AccumulationInfo:
    """Set ``.grad`` of the parameters to the weighted mean gradient of the micro-batches.

    A micro-batch without weight contributes nothing. One whose loss or gradient is not finite is
    left out whole, its weight out of the denominator, so the gradient is the one of a run without
    it.

    Args:
        parameters: By name; those that require no gradient are left alone.
        losses: For each micro-batch its loss, a scalar in the graph, and the sum of its row
            weights. A generator keeps one graph in memory at a time.

    Returns:
        What was used. Where nothing was, every ``.grad`` is None.
    """
    moving = {name: tensor for name, tensor in parameters.items() if tensor.requires_grad}
    names, tensors = list(moving), list(moving.values())
    sums: list[Tensor | None] = [None] * len(tensors)
    used: list[bool] = []
    found: list[str] = []
    weight, empty, non_finite = 0.0, 0, 0
    for loss, share in losses:
        if share == 0:
            empty += 1
            used.append(False)
            found.append("")
            continue
        gradients, bad = _finite_gradients(loss, share, names, tensors)
        used.append(not bad)
        found.append(bad)
        if bad:
            non_finite += 1
            continue
        weight += share
        sums = [_plus(total, part) for total, part in zip(sums, gradients, strict=True)]
    for parameter, total in zip(tensors, sums, strict=True):
        parameter.grad = None if total is None else total / weight
    return AccumulationInfo(tuple(used), tuple(found), weight, empty, non_finite)


def _finite_gradients(
    loss: Tensor, share: float, names: Sequence[str], tensors: Sequence[Parameter]
) -> tuple[Sequence[Tensor | None], str]:
    """Return the gradients of ``share * loss`` and what was not finite first, if anything."""
    if not (math.isfinite(share) and bool(torch.isfinite(loss))):
        return (), "loss"
    gradients = torch.autograd.grad(share * loss, tensors, allow_unused=True)
    present = [
        (name, part) for name, part in zip(names, gradients, strict=True) if part is not None
    ]
    # A norm is finite only if every entry is, and if none is so large that the norm overflows.
    norms = [torch.linalg.vector_norm(part) for _, part in present]
    if not norms or bool(torch.isfinite(torch.stack(norms).sum())):
        return gradients, ""
    bad = [name for (name, _), norm in zip(present, norms, strict=True) if not norm.isfinite()]
    return (), bad[0] if bad else GRADIENT_NORM


def _plus(total: Tensor | None, part: Tensor | None) -> Tensor | None:
    """Add, never in place: autograd may hand the same tensor to several parameters."""
    if total is None or part is None:
        return part if total is None else total
    return total + part
