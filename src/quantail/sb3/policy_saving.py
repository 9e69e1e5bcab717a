"""A policy by itself in a file, without pickle: its arguments, its spaces and its weights."""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.utils import ConstantSchedule, get_device

from quantail.checkpoint.archive import Checkpoint, CheckpointError, Location, read, write
from quantail.checkpoint.values import Packer, check_references, check_tensors
from quantail.sb3.parameters import VOCABULARY, reader_of

PolicyT = TypeVar("PolicyT", bound=BasePolicy)


def save_policy(policy: BasePolicy, location: Location) -> None:
    """Write a policy's arguments and weights; ``.zip`` is added to a name without suffix."""
    given = policy._get_constructor_parameters()
    packer = Packer(VOCABULARY)
    arguments = {
        name: packer.pack(value, name) for name, value in given.items() if name != "lr_schedule"
    }
    kind = type(policy)
    write(
        location,
        Checkpoint(
            {"policy": f"{kind.__module__}.{kind.__qualname__}", "arguments": arguments},
            {"policy": policy.state_dict(), "arrays": packer.tensors},
        ),
    )


def load_policy(
    kind: type[PolicyT],
    location: Location,
    device: torch.device | str = "auto",
    custom_objects: Mapping[str, Any] | None = None,
) -> PolicyT:
    """Make a policy from a file; its optimizer is new, and has a learning rate of 0.

    Args:
        kind: Class of the policy, which must be the one that was saved.
        location: As given to :func:`save_policy`.
        device: Of the network.
        custom_objects: The caller's own classes that the file names, by ``module.name``.
    """
    checkpoint = read(location)
    state = checkpoint.state
    if set(state) != {"policy", "arguments"} or set(checkpoint.tensors) != {"policy", "arrays"}:
        raise CheckpointError(f"{checkpoint.name} does not hold a policy by itself")
    if state["policy"] != f"{kind.__module__}.{kind.__qualname__}":
        raise CheckpointError(
            f"{checkpoint.name} holds a {state['policy']}; load it with that class, not with "
            f"{kind.__qualname__}"
        )
    check_references(state["arguments"], checkpoint.tensors["arrays"], "arrays.safetensors")
    reader = reader_of(checkpoint, "arrays", custom_objects or {})
    arguments = reader.unpack(state["arguments"], "arguments")
    policy = kind(**arguments, lr_schedule=ConstantSchedule(0.0))
    check_tensors(policy.state_dict(), checkpoint.tensors["policy"], "policy")
    policy.load_state_dict(checkpoint.tensors["policy"])
    return policy.to(get_device(device))
