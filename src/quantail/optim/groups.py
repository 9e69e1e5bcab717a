"""Learning rates of actor and critics: one owner, the optimizer's parameter groups."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from torch.nn import Parameter
from torch.optim import Optimizer

ROLE: Final = "role"
"""Key of a parameter group that says whose it is: ``actor`` or ``critic``."""


def actor_and_critic(parts: Mapping[str, Sequence[Parameter]]) -> list[dict[str, Any]]:
    """Return two parameter groups: what the critics have for themselves, and all the rest.

    Args:
        parts: Parameters by part of the network, each once; see ``ActorCritic.parameter_groups``.
            What actor and critics share belongs to the actor.
    """
    members: dict[str, list[Parameter]] = {"actor": [], "critic": []}
    for name, parameters in parts.items():
        members["critic" if name.startswith("critic") else "actor"] += parameters
    return [{"params": found, ROLE: role} for role, found in members.items()]


def set_learning_rates(optimizer: Optimizer, actor: float, critic: float | None) -> None:
    """Set the rate of every group; groups without a role get the actor's."""
    for group in optimizer.param_groups:
        is_critic = critic is not None and group.get(ROLE) == "critic"
        group["lr"] = critic if is_critic else actor
