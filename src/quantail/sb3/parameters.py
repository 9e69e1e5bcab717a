"""The weights and the optimizer's state of an agent: reading them, and putting them in place."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import torch
from stable_baselines3.common.buffers import BaseBuffer
from stable_baselines3.common.utils import ConstantSchedule, FloatSchedule, LinearSchedule
from torch import nn
from torch.optim import Optimizer

from quantail.checkpoint.archive import Checkpoint, CheckpointError, Json, Location, read
from quantail.checkpoint.classes import Vocabulary
from quantail.checkpoint.values import Unpacker, check_references, check_tensors
from quantail.sb3.schedules import TabulatedSchedule

if TYPE_CHECKING:
    from quantail.sb3.agent import DistributionalPPO

VOCABULARY: Final = Vocabulary(
    roots=("quantail", "stable_baselines3", "torch.nn", "torch.optim"),
    bases=(nn.Module, Optimizer, BaseBuffer),
    records={
        ConstantSchedule: ("val",),
        FloatSchedule: ("value_schedule",),
        LinearSchedule: ("start", "end", "end_fraction"),
        TabulatedSchedule: ("name", "values"),
    },
)
_SECTIONS: Final = {
    "versions",
    "settings",
    "network",
    "progress",
    "excluded",
    "n_envs",
    "optimizer",
    "vec_normalize",
}


def read_parameters(location: Location) -> dict[str, Any]:
    """Return the weights and the optimizer's state in a file, as ``get_parameters()`` does."""
    checkpoint = read(location)
    agent_state(checkpoint)
    return parameters_of(checkpoint, {})


def parameters_of(checkpoint: Checkpoint, custom: Mapping[str, Any]) -> dict[str, Any]:
    """Return the weights and the optimizer's state of a checkpoint of an agent."""
    optimizer = reader_of(checkpoint, "optimizer", custom)
    return {
        "policy": dict(checkpoint.tensors["policy"]),
        "policy.optimizer": optimizer.unpack(checkpoint.state["optimizer"], "optimizer"),
    }


def set_parameters(
    model: "DistributionalPPO", parameters: Mapping[str, Any], exact_match: bool = True
) -> None:
    """Put parameters into an agent: all of them, or, when one does not fit, none.

    Args:
        model: The agent.
        parameters: As ``get_parameters()`` returns them.
        exact_match: Whether all must be there. Unknown ones are refused in any case.
    """
    own = model.get_parameters()
    unknown = sorted(set(parameters) - set(own))
    if unknown:
        raise CheckpointError(f"the agent has no {', '.join(unknown)}; it has {', '.join(own)}")
    missing = sorted(set(own) - set(parameters))
    if missing and exact_match:
        raise CheckpointError(
            f"the parameters lack {', '.join(missing)}; pass exact_match=False to keep what is not "
            "given"
        )
    if "policy" in parameters:
        check_tensors(own["policy"], parameters["policy"], "policy", exact=exact_match)
    if "policy.optimizer" in parameters:
        _check_optimizer(model.policy.optimizer, parameters["policy.optimizer"])
        model.policy.optimizer.load_state_dict(parameters["policy.optimizer"])
    if "policy" in parameters:
        # A compiled policy keeps the one that it was made from.
        policy = getattr(model.policy, "_orig_mod", model.policy)
        policy.load_state_dict(parameters["policy"], strict=exact_match)


def _check_optimizer(optimizer: Optimizer, given: Any) -> None:
    """Refuse a state that is not of as many parameters, or, where we know, not of their shapes."""
    if not isinstance(given, Mapping) or set(given) != {"state", "param_groups"}:
        raise CheckpointError("policy.optimizer must have state and param_groups")
    counts = [len(group["params"]) for group in optimizer.param_groups]
    found = [len(group.get("params", ())) for group in given["param_groups"]]
    if found != counts:
        raise CheckpointError(
            f"policy.optimizer has groups of {found} parameters; the agent's has {counts}. It "
            "belongs to an agent with other settings"
        )
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    numbers = [number for group in given["param_groups"] for number in group["params"]]
    unknown = sorted(set(given["state"]) - set(numbers))
    if unknown:
        raise CheckpointError(f"policy.optimizer has a state of unknown parameters {unknown}")
    if not VOCABULARY.is_known(type(optimizer).__module__):
        return
    for number, parameter in zip(numbers, parameters, strict=True):
        for name, value in given["state"].get(number, {}).items():
            # Moments are of the parameter's shape, or of one that stretches to it.
            if isinstance(value, torch.Tensor) and not _stretches(value.shape, parameter.shape):
                raise CheckpointError(
                    f"policy.optimizer: {name} of parameter {number} has shape "
                    f"{list(value.shape)}, its parameter {list(parameter.shape)}"
                )


def _stretches(shape: torch.Size, target: torch.Size) -> bool:
    tail = target[len(target) - len(shape) :]
    return len(shape) <= len(target) and all(a in (1, b) for a, b in zip(shape, tail, strict=True))


def agent_state(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return the state of a checkpoint, refusing one that is not that of an agent."""
    state: dict[str, Any] = checkpoint.state
    expected_groups = {"policy", "optimizer", "arrays"}
    if set(state) != _SECTIONS or set(checkpoint.tensors) != expected_groups:
        raise CheckpointError(
            f"{checkpoint.name} does not hold an agent: it has the parts "
            f"{', '.join([*state, *checkpoint.tensors])}; an agent has "
            f"{', '.join(sorted(_SECTIONS | expected_groups))}"
        )
    for name in ("settings", "progress", "versions"):
        if not isinstance(state[name], dict):
            raise CheckpointError(f"{name} in {checkpoint.name} must hold keys and values")
    excluded = state["excluded"]
    is_list = isinstance(excluded, list) and all(isinstance(name, str) for name in excluded)
    if not is_list or type(state["n_envs"]) is not int:
        raise CheckpointError(f"excluded or n_envs in {checkpoint.name} is not as it was saved")
    without_optimizer: Json = [part for name, part in state.items() if name != "optimizer"]
    check_references(without_optimizer, checkpoint.tensors["arrays"], "arrays.safetensors")
    check_references(state["optimizer"], checkpoint.tensors["optimizer"], "optimizer.safetensors")
    return state


def reader_of(checkpoint: Checkpoint, group: str, custom: Mapping[str, Any]) -> Unpacker:
    """Return what unpacks values whose tensors are in ``group``, with the caller's classes."""
    vocabulary = Vocabulary(VOCABULARY.roots, VOCABULARY.bases, VOCABULARY.records, custom)
    return Unpacker(vocabulary, checkpoint.tensors[group])
