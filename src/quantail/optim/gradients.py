"""Norms of gradients and their clipping."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import Parameter

from quantail.errors import ConfigError

DEFAULT_MAX_NORM = 0.5
"""Used when no limit was said; a limit of 0 or less switches clipping off."""


@dataclass(frozen=True, slots=True)
class ClipResult:
    """Norm over all parameters; scalars."""

    before: Tensor
    after: Tensor


def gradient_norm(parameters: Iterable[Parameter]) -> Tensor:
    """Return the L2 norm over all gradients; each parameter counts once, however often it is given.

    Args:
        parameters: Those without a gradient count as 0.

    Returns:
        Scalar.
    """
    unique = {id(parameter): parameter for parameter in parameters}
    norms = [torch.linalg.vector_norm(p.grad) for p in unique.values() if p.grad is not None]
    return torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.zeros(())


def group_norms(groups: Mapping[str, Iterable[Parameter]]) -> dict[str, Tensor]:
    """Return the gradient norm of each group; squared, they sum to the squared total norm.

    Raises:
        ConfigError: a parameter is in two groups, so that it would count twice.
    """
    owner: dict[int, str] = {}
    members = {name: list(parameters) for name, parameters in groups.items()}
    for name, parameters in members.items():
        for parameter in parameters:
            if owner.setdefault(id(parameter), name) != name:
                raise ConfigError(
                    f'parameter groups "{owner[id(parameter)]}" and "{name}" share a parameter of '
                    f"shape {tuple(parameter.shape)}; each parameter must be in one group."
                )
    return {name: gradient_norm(parameters) for name, parameters in members.items()}


def clip_gradients(parameters: Iterable[Parameter], max_norm: float | None) -> ClipResult:
    """Scale all gradients by min(1, limit / norm), in place.

    Args:
        parameters: All that take part in the step.
        max_norm: The limit; None means 0.5, 0 or less means no clipping.

    Returns:
        The norm before and after.

    Raises:
        ConfigError: the limit is not a number.
        FloatingPointError: the norm is not finite. Scaling by it would spread the damage; skip the
            step instead.
    """
    limit = DEFAULT_MAX_NORM if max_norm is None else float(max_norm)
    if math.isnan(limit):
        raise ConfigError("max_grad_norm must be a number; was nan. Try 0.5, or 0 for no limit.")
    unique = list({id(parameter): parameter for parameter in parameters}.values())
    before = gradient_norm(unique)
    if not bool(torch.isfinite(before)):
        raise FloatingPointError(
            f"the gradient norm must be finite before it is clipped; was {float(before)}. Skip "
            "this step; a loss or an input is too large."
        )
    if limit <= 0 or bool(before <= limit):
        return ClipResult(before, before)
    for parameter in unique:
        if parameter.grad is not None:
            parameter.grad.mul_(limit / before)
    return ClipResult(before, gradient_norm(unique))
