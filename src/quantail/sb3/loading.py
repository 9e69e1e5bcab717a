"""How an agent is made from a file.

The constructor is called with the arguments in the file, so that its checks hold for loaded agents
too; then all tensors must fit exactly.
"""

import difflib
import inspect
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar
from warnings import warn

import torch
from gymnasium import spaces
from stable_baselines3.common.type_aliases import GymEnv
from stable_baselines3.common.vec_env import VecEnv

from quantail.checkpoint.archive import Checkpoint, CheckpointError, Json, Location, read
from quantail.checkpoint.values import Unpacker
from quantail.errors import ConfigError, QuantailError, QuantailWarning
from quantail.risk.config import risk_config
from quantail.sb3.normalization import check_statistics, restore_statistics
from quantail.sb3.parameters import agent_state, parameters_of, reader_of, set_parameters
from quantail.sb3.policy import MlpPolicy
from quantail.sb3.risk import resumed_cost, resumed_risk
from quantail.sb3.saving import BUFFERS, COUNTS, FOLDED, LAST, NEEDED, SPACES, arguments, versions
from quantail.state import TrainState

if TYPE_CHECKING:
    from quantail.sb3.agent import DistributionalPPO

AgentT = TypeVar("AgentT", bound="DistributionalPPO")

# What constructors and torch raise on arguments of the wrong kind.
_NONSENSE: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


def load_agent(
    kind: type[AgentT],
    location: Location,
    env: GymEnv | None,
    device: torch.device | str,
    custom_objects: Mapping[str, Any] | None,
    print_system_info: bool,
    force_reset: bool,
    changes: Mapping[str, Any],
) -> AgentT:
    """Make an agent from a file; see :meth:`DistributionalPPO.load`."""
    custom = dict(custom_objects or {})
    checkpoint = read(location)
    state = agent_state(checkpoint)
    if print_system_info:
        _print_versions("CURRENT", versions())
        _print_versions("SAVED", state["versions"])
    verbose = changes.get("verbose", state["settings"].get("verbose", 0))
    wrapped = None if env is None else kind._wrap_env(env, int(verbose == 1))
    with _one_clear_error(checkpoint.name, [*custom, *changes]):
        reader = reader_of(checkpoint, "arrays", custom)
        _check_custom(custom, {*state["settings"], *state["excluded"], "vec_normalize"})
        settings = _settings(checkpoint, reader, custom, changes)
        settings |= _changes(kind, settings, changes)
        normalizers = reader.unpack(state["vec_normalize"], "vec_normalize")
        normalizers = custom.get("vec_normalize", normalizers)
        check_statistics(normalizers, wrapped)
        model = _build(kind, settings, wrapped, state["n_envs"], device)
        _report_left_out(set(arguments(kind)) - set(settings), model)
        if "policy_kwargs" not in custom:
            _check_network(reader.unpack(state["network"], "network"), model)
        _fill(model, parameters_of(checkpoint, custom), "policy_kwargs" in custom)
        excluded = set(state["excluded"])
        _restore_progress(model, reader, state["progress"], excluded, wrapped, force_reset)
        _resume_limits(model, reader, state["settings"], {*custom, *changes})
        restore_statistics(normalizers, wrapped)
    return model


@contextmanager
def _one_clear_error(name: str, given: list[str]) -> Iterator[None]:
    """Turn what nonsense in a file leads to into one error that says where it comes from."""
    try:
        yield
    except QuantailError:
        raise
    except _NONSENSE as error:
        beside = f" together with {', '.join(given)} as given to load()" if given else ""
        raise CheckpointError(
            f"what {name} holds{beside} does not make an agent: {type(error).__name__}: {error}. "
            "If it was saved by save() and nothing was given to load(), save the agent again"
        ) from error


def _settings(
    checkpoint: Checkpoint, reader: Unpacker, custom: Mapping[str, Any], changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the settings in the file, or those given in their place."""
    stored: Any = checkpoint.state["settings"]
    excluded: Any = checkpoint.state["excluded"]
    settings = {
        name: custom[name] if name in custom else reader.unpack(node, name)
        for name, node in stored.items()
        # What is about to be changed may name what cannot be found here.
        if name not in changes or name in NEEDED
    }
    settings |= {name: custom[name] for name in excluded if name in custom}
    missing = [name for name in NEEDED if name not in settings]
    if missing:
        raise CheckpointError(f"{checkpoint.name} lacks the settings {', '.join(missing)}")
    return settings


def _fill(model: "DistributionalPPO", parameters: dict[str, Any], keep_groups: bool) -> None:
    """Put weights and optimizer state in place; what the caller says of groups may come first."""
    fresh = [dict(group) for group in model.policy.optimizer.param_groups]
    set_parameters(model, parameters)
    if keep_groups:
        for group, given in zip(model.policy.optimizer.param_groups, fresh, strict=True):
            group.update({key: given[key] for key in given if key not in ("params", "lr")})


def _print_versions(title: str, numbers: Mapping[str, str]) -> None:
    lines = "".join(f"- {name}: {number}\n" for name, number in numbers.items())
    sys.stdout.write(f"== {title} SYSTEM INFO ==\n{lines}")


def _check_custom(custom: Mapping[str, Any], known: set[str]) -> None:
    for name in custom:
        # A name with a dot is that of a class, which the file may or may not need.
        if name not in known and "." not in name:
            warn(
                f"custom_objects[{name!r}] replaces nothing: the file has no such setting; it has "
                f"{', '.join(sorted(known))}",
                QuantailWarning,
                stacklevel=4,
            )


def _changes(kind: type, settings: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings to change, refusing unknown ones and another network."""
    accepted = {}
    allowed = arguments(kind)
    network = dict(settings["policy_kwargs"])
    folded = {name: network[name] for name in FOLDED if name in network}
    for name, value in changes.items():
        if name == "policy_kwargs":
            if {**folded, **(value or {})} != network:
                raise ConfigError(
                    f"policy_kwargs must equal those of the saved agent, {network}; were {value}. "
                    "Leave them out, or pass them in custom_objects to change the network knowingly"
                )
        elif name in FOLDED:
            if value != network.get(name):
                raise ConfigError(
                    f"{name} must equal that of the saved agent, {network.get(name)}; was {value}. "
                    "Leave it out"
                )
        elif name not in allowed:
            near = difflib.get_close_matches(name, allowed, 1)
            hint = f"did you mean {near[0]}?" if near else f"it takes {', '.join(allowed)}"
            raise ConfigError(f"load() cannot change {name}; {hint}")
        else:
            accepted[name] = value
    return accepted


def _build(
    kind: type[AgentT],
    settings: dict[str, Any],
    env: VecEnv | None,
    n_envs: int,
    device: torch.device | str,
) -> AgentT:
    """Call the constructor with the settings."""
    given = dict(settings)
    policy, *own_spaces = (given.pop(name) for name in ("policy_class", *SPACES))
    if not (isinstance(policy, type) and issubclass(policy, MlpPolicy)):
        raise CheckpointError(f"policy_class must be a Quantail policy; was {policy!r}")
    for name, space in zip(SPACES, own_spaces, strict=True):
        if not isinstance(space, spaces.Space):
            raise CheckpointError(f"{name} must be a space; was {space!r}")
        if env is not None and space != getattr(env, name):
            what = name.split("_")[0].capitalize()
            raise CheckpointError(
                f"{what} spaces do not match: the agent has {space}, the environment "
                f"{getattr(env, name)}. Pass the environment that the agent was trained in"
            )
    unknown = sorted(set(given) - set(arguments(kind)))
    if unknown:
        raise CheckpointError(
            f"the file has the settings {', '.join(unknown)}, which {kind.__name__} does not know; "
            "it was saved by another version or class"
        )
    model = kind(policy, env, device=device, _init_setup_model=False, **given)
    model.observation_space, model.action_space = own_spaces
    model.n_envs = n_envs if env is None else env.num_envs
    model._setup_model()
    return model


def _check_network(saved: Any, model: "DistributionalPPO") -> None:
    """Refuse a network that would be built differently now, though its tensors might fit."""
    built = model.policy.net.config
    if saved != built:
        differences = [
            f"{field.name} was {getattr(saved, field.name, None)}, is now {now}"
            for field in fields(built)
            if (now := getattr(built, field.name)) != getattr(saved, field.name, None)
        ]
        raise CheckpointError(
            f"the network is not built as it was when the agent was saved: "
            f"{'; '.join(differences)}. Pass the old values in custom_objects['policy_kwargs']"
        )


def _report_left_out(names: set[str], model: "DistributionalPPO") -> None:
    for name in sorted(names):
        default = inspect.signature(type(model).__init__).parameters.get(name)
        value = "its default" if default is None else repr(default.default)
        warn(
            f"{name} was left out of the file, and is now {value}; pass {name}=... to load()",
            QuantailWarning,
            stacklevel=4,
        )


def _restore_progress(
    model: "DistributionalPPO",
    reader: Unpacker,
    stored: Mapping[str, Json],
    excluded: set[str],
    env: VecEnv | None,
    force_reset: bool,
) -> None:
    names = {*COUNTS, *LAST, *BUFFERS}
    if set(stored) != names - excluded:
        raise CheckpointError(
            f"progress must have {', '.join(sorted(names - excluded))}; has {', '.join(stored)}"
        )
    values = {name: reader.unpack(node, name) for name, node in stored.items()}
    for name in COUNTS:
        kind = TrainState if name == "train_state" else int | float
        if not isinstance(values.get(name, getattr(model, name)), kind):
            what = "a TrainState" if name == "train_state" else "a number"
            raise CheckpointError(f"{name} must be {what}; was {values[name]!r}")
    if env is not None and force_reset:
        values |= dict.fromkeys(LAST)
    starts = values.get("_last_episode_starts")
    if env is not None and starts is not None and len(starts) != env.num_envs:
        raise CheckpointError(
            f"the agent stopped in {len(starts)} environments, and the one given has "
            f"{env.num_envs}; with another number it must start anew: pass force_reset=True"
        )
    for name, value in values.items():
        if name in BUFFERS and value is not None:
            value = deque(value, maxlen=model._stats_window_size)  # noqa: PLW2901
        setattr(model, name, value)


def _resume_limits(
    model: "DistributionalPPO", reader: Unpacker, stored: Mapping[str, Json], given: set[str]
) -> None:
    """Start multipliers anew where ``given`` settings ask for something else than the saved ones.

    What was left out of the file may have been anything, so it counts as something else.
    """
    names = ("cvar_alpha", "cvar_limit", "cvar_weight", "risk", "cost")
    if given.isdisjoint(names):
        return
    saved = {name: reader.unpack(stored[name], name) for name in names if name in stored}
    risk = None
    if all(name in saved for name in names[:4]):
        risk = risk_config(*(saved[name] for name in names[:4]))
    settings, state = model.learner_config, model.train_state
    model.train_state = replace(
        state,
        risk=resumed_risk(settings.tail_risk, risk, state.risk),
        cost=resumed_cost(settings.cost, saved.get("cost"), state.cost),
    )
