"""What of an agent goes into a file.

A file holds the constructor's arguments as they are in force, the spaces, the weights and buffers
of the policy (its normalizer and return scales among them), the optimizer's state, how far training
has come, and the statistics of a ``VecNormalize``.
"""

import difflib
import inspect
import os
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final
from warnings import warn

from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.utils import ConstantSchedule, FloatSchedule

from quantail.checkpoint.archive import Checkpoint, CheckpointError, Json, Location, write
from quantail.checkpoint.values import Packer
from quantail.errors import ConfigError, QuantailWarning
from quantail.losses.value_clip import NoClip
from quantail.sb3.normalization import statistics
from quantail.sb3.parameters import VOCABULARY
from quantail.sb3.schedules import SCHEDULED, tabulated

if TYPE_CHECKING:
    from quantail.sb3.agent import DistributionalPPO

SPACES: Final = ("observation_space", "action_space")
NEEDED: Final = ("policy_class", "policy_kwargs", *SPACES)
"""Settings without which there is no network."""
COUNTS: Final = (
    "num_timesteps",
    "_total_timesteps",
    "_num_timesteps_at_start",
    "_episode_num",
    "_n_updates",
    "_current_progress_remaining",
    "train_state",
)
LAST: Final = ("_last_obs", "_last_episode_starts", "_last_original_obs")
BUFFERS: Final = ("ep_info_buffer", "ep_success_buffer")
FOLDED: Final = ("critic", "twin")
"""Arguments that the constructor folds into ``policy_kwargs``."""
_NOT_SETTINGS: Final = ("self", "policy", "env", "device", "_init_setup_model", *FOLDED)


def save_agent(
    model: "DistributionalPPO",
    location: Location,
    exclude: Iterable[str] | None = None,
    include: Iterable[str] | None = None,
) -> None:
    """Write an agent; see :meth:`DistributionalPPO.save`."""
    settings, progress = _settings(model), _progress(model)
    _check_names(model, {*settings, *progress}, exclude or ())
    left_out = _left_out({*settings, *progress}, exclude, include)
    packer, optimizer = Packer(VOCABULARY), Packer(VOCABULARY)
    parameters = model.get_parameters()
    state: dict[str, Json] = {
        "versions": dict(versions()),
        "settings": _packed(settings, left_out, packer),
        "network": packer.pack(model.policy.net.config, "network"),
        "progress": _packed(progress, left_out, packer),
        "excluded": list[Json](sorted(left_out)),
        "n_envs": model.n_envs,
        "optimizer": optimizer.pack(parameters["policy.optimizer"], "optimizer"),
        "vec_normalize": packer.pack(statistics(model.env), "vec_normalize"),
    }
    tensors = {
        "policy": parameters["policy"],
        "optimizer": optimizer.tensors,
        "arrays": packer.tensors,
    }
    write(location, Checkpoint(state, tensors))


def _packed(values: Mapping[str, Any], left_out: set[str], packer: Packer) -> dict[str, Json]:
    packed = {}
    for name, value in values.items():
        if name not in left_out:
            packed[name] = packer.pack(_storable(name, value), name)
    return packed


def _settings(model: "DistributionalPPO") -> dict[str, Any]:
    """Return the constructor's arguments as they are in force now."""
    config = model.learner_config
    values: dict[str, Any] = {"policy_class": model.policy_class}
    for name in arguments(type(model)):
        places = [config, config.targets, model]
        keys = [name, name, "_stats_window_size" if name == "stats_window_size" else name]
        found = [
            getattr(place, key)
            for place, key in zip(places, keys, strict=True)
            if hasattr(place, key)
        ]
        assert found, f"the constructor's argument {name} is not kept anywhere"
        values[name] = found[0]
    if model.clip_range_vf is not None or values["value_clip"] == NoClip():
        values["value_clip"] = None
    if model.target_kl is not None:
        values["kl_control"] = None  # made from target_kl
    if values["rollout_buffer_class"] in (RolloutBuffer, DictRolloutBuffer):
        values["rollout_buffer_class"] = None
    values["observation_space"] = model.observation_space
    values["action_space"] = model.action_space
    return values


def arguments(kind: type) -> list[str]:
    """Return the names of the constructor's arguments, through classes that pass theirs on."""
    names: dict[str, None] = {}
    for parent in kind.__mro__[: kind.__mro__.index(OnPolicyAlgorithm)]:
        if "__init__" not in vars(parent):
            continue
        parameters = inspect.signature(parent.__init__).parameters.values()  # type: ignore[misc]
        named = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        names.update(dict.fromkeys(named))
        if all(p.kind is not p.VAR_KEYWORD for p in parameters):
            break
    return [name for name in names if name not in _NOT_SETTINGS]


def _progress(model: "DistributionalPPO") -> dict[str, Any]:
    """Return how far training has come."""
    values = {name: getattr(model, name) for name in (*COUNTS, *LAST)}
    for name in BUFFERS:
        buffer = getattr(model, name)
        values[name] = None if buffer is None else list(buffer)
    if values["ep_info_buffer"] is not None:
        # Reward, length and time, which the logs average; a Monitor may add anything else.
        values["ep_info_buffer"] = [
            {key: info[key] for key in ("r", "l", "t") if key in info}
            for info in values["ep_info_buffer"]
        ]
    return values


def _check_names(model: "DistributionalPPO", known: set[str], exclude: Iterable[str]) -> None:
    """Warn of a name that leaves nothing out; attributes that are never saved may be named."""
    for name in exclude:
        if name not in known and not hasattr(model, name):
            near = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else f"it may be {', '.join(sorted(known))}"
            warn(f"exclude names {name}, which an agent does not have; {hint}", QuantailWarning, 4)


def _left_out(
    known: set[str], exclude: Iterable[str] | None, include: Iterable[str] | None
) -> set[str]:
    included = set(include or ())
    impossible = sorted(included - known)
    if impossible:
        raise ConfigError(
            f"include names {', '.join(impossible)}, which cannot be saved; it may name "
            f"{', '.join(sorted(known))}"
        )
    left_out = (set(exclude or ()) & known) - included
    needed = sorted(left_out & set(NEEDED))
    if needed:
        raise ConfigError(
            f"exclude names {', '.join(needed)}, without which the agent cannot be loaded; "
            "leave out something else"
        )
    return left_out


def _storable(name: str, value: Any) -> Any:
    """Return a setting in its simplest form; schedules that are functions as their values."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, FloatSchedule):
        value = value.value_schedule
        if type(value) is ConstantSchedule:
            return value.val
    is_function = callable(value) and not isinstance(value, type)
    if not is_function or VOCABULARY.fields(type(value)) is not None:
        return value
    if name in SCHEDULED:
        return tabulated(value, name)
    what = getattr(value, "__qualname__", type(value).__qualname__)
    raise CheckpointError(
        f"{name} is {what}, a function, which cannot be saved without pickle. Save with "
        f"exclude=[{name!r}], and load with {name}=..."
    )


def versions() -> dict[str, str]:
    """Return the versions of what a saved agent depends on."""
    packages = ("quantail", "torch", "stable_baselines3", "gymnasium", "numpy")
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}
