"""Steps that can be undone, and copies of weights to go back to."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Optimizer


@torch.no_grad()
def guarded_step(optimizer: Optimizer, parameters: Mapping[str, Parameter]) -> str:
    """Take a step of the optimizer, and undo it if a parameter is not finite after it.

    Args:
        optimizer: Of the parameters.
        parameters: By name, their gradients set.

    Returns:
        The name of the first parameter that was not finite; empty if the step stands.
    """
    moving = {name: p for name, p in parameters.items() if p.grad is not None}
    undo = undoing(optimizer, moving)
    optimizer.step()
    bad = first_bad(moving)
    if bad:
        undo()
    return bad


def undoing(optimizer: Optimizer, parameters: Mapping[str, Parameter]) -> Callable[[], None]:
    """Return what puts parameters and the optimizer's moments back to what they are now."""
    before = [parameter.detach().clone() for parameter in parameters.values()]
    moments = _copied(optimizer.state)

    @torch.no_grad()
    def undo() -> None:
        for parameter, old in zip(parameters.values(), before, strict=True):
            parameter.copy_(old)
        optimizer.state.clear()
        optimizer.state.update(moments)

    return undo


def first_bad(tensors: Mapping[str, Tensor]) -> str:
    """Return the name of the first tensor that is not finite; empty when all are."""
    if not tensors:
        return ""
    # One sum over all: a number that is not finite, or whose sum overflows, shows in it.
    sums = torch.stack([tensor.detach().sum() for tensor in tensors.values()])
    if bool(torch.isfinite(sums.sum())):
        return ""
    bad = (name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all()))
    return next(bad, "")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Weights, buffers and optimizer state of one moment."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Any]

    @classmethod
    def take(cls, module: nn.Module, optimizer: Optimizer) -> Self:
        """Copy everything."""
        weights = {name: value.detach().clone() for name, value in module.state_dict().items()}
        return cls(weights, deepcopy(optimizer.state_dict()))

    def put_back(self, module: nn.Module, optimizer: Optimizer) -> None:
        """Put the copies in place."""
        module.load_state_dict(self.weights)
        optimizer.load_state_dict(deepcopy(self.optimizer))


def _copied(state: Mapping[Any, Any]) -> dict[Any, dict[str, Any]]:
    return {
        parameter: {
            name: value.clone() if isinstance(value, Tensor) else deepcopy(value)
            for name, value in moments.items()
        }
        for parameter, moments in state.items()
    }
