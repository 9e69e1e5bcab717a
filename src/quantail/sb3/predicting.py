"""The state that ``predict`` takes and returns: the memory of the cores, then the budgets."""

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantail.errors import ConfigError, QuantailWarning
from quantail.flow import CoreState, PolicyState
from quantail.nets.budget import BudgetInputs


class UntoldBudgets(np.ndarray[Any, Any]):
    """Budgets as ``predict`` returns them: the rewards of the step that follows are not in them.

    ``advance_budget`` returns an ordinary array, so a state that still holds this kind when it
    comes back was never told what the step gave. So does arithmetic with it.
    """

    # Not of this kind on purpose.
    def __array_wrap__(  # type: ignore[override]
        self, array: NDArray[Any], context: Any = None, return_scalar: bool = False
    ) -> NDArray[Any]:
        """Return what was computed from these budgets as an ordinary array."""
        return np.asarray(array)


def untold(budgets: Tensor) -> UntoldBudgets:
    """Return budgets [N] for the state that ``predict`` returns."""
    return budgets.numpy().view(UntoldBudgets)


def split_state(
    budget: BudgetInputs | None, state: tuple[NDArray[Any], ...] | None, starts: Tensor
) -> tuple[Tensor | None, list[Tensor]]:
    """Return the budgets [N], and the memory of a state.

    Warns when an episode goes on and nobody told its policy the rewards, as when Stable-Baselines3
    evaluates it.

    Args:
        budget: Of the policy; None without tail risk, and then there are no budgets.
        state: From the call before; None at the start.
        starts: [N] bool, which environments start an episode; their budgets are the target.

    Raises:
        ConfigError: The state has no budgets of as many environments.
    """
    parts = [torch.as_tensor(part) for part in state or ()]
    if budget is None:
        return None, parts
    first = budget.target.cpu().expand(len(starts))
    if state is None:
        return first.clone(), parts
    if not parts or parts[-1].shape != starts.shape:
        raise ConfigError(
            f"state must end with the budgets of {len(starts)} environment(s), as predict() "
            "returned it. Pass None to start anew"
        )
    if isinstance(state[-1], UntoldBudgets) and budget.config.observed and not starts.all():
        warnings.warn(
            "an agent with tail risk acts on what it has won and lost so far, and was not told the "
            "rewards of the last step, so it goes on as if there had been none. Evaluate it by "
            "quantail.sb3.evaluate.evaluate_episodes in place of evaluate_policy, or call "
            "state = advance_budget(model, state, rewards) after each step",
            QuantailWarning,
            stacklevel=4,
        )
    return torch.where(starts, first, parts[-1].double()), parts[:-1]


def unflatten(parts: list[Tensor], like: PolicyState) -> PolicyState:
    """Cut a flat list of tensors into the cores' states, checking their shapes."""
    expected = [tuple(part.shape) for core in like for part in core]
    given = [tuple(part.shape) for part in parts]
    if given != expected:
        raise ConfigError(
            f"state must have the shapes {expected}, as predict() returned it for as many "
            f"environments; had {given}. Pass None to start anew"
        )
    actor: CoreState = tuple(parts[: len(like.actor)])
    critic: CoreState = tuple(parts[len(like.actor) :])
    return PolicyState(actor, critic)
