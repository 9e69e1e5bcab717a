"""From the policy arguments of Stable-Baselines3 and sb3-contrib to our network's config."""

import warnings
from typing import Any

from torch import nn

from quantail.errors import ConfigError, QuantailWarning
from quantail.nets.cores import CoreConfig, LstmConfig, NoCoreConfig
from quantail.nets.layers import Activation
from quantail.sb3.errors import SettingError

_ACTIVATIONS: dict[type[nn.Module], Activation] = {
    nn.Tanh: "tanh",
    nn.ReLU: "relu",
    nn.LeakyReLU: "leaky_relu",
    nn.ELU: "elu",
    nn.GELU: "gelu",
    nn.SiLU: "silu",
}

NetArch = list[int] | dict[str, list[int]]


def activation_name(activation_fn: type[nn.Module]) -> Activation:
    """Return our name of an activation.

    Raises:
        ConfigError: lists the allowed ones.
    """
    if activation_fn not in _ACTIVATIONS:
        allowed = ", ".join(sorted(known.__name__ for known in _ACTIVATIONS))
        raise ConfigError(f"activation_fn must be one of {allowed}; was {activation_fn.__name__}")
    return _ACTIVATIONS[activation_fn]


def layer_sizes(net_arch: NetArch | list[Any] | None, default: list[int]) -> dict[str, list[int]]:
    """Return the hidden layers of actor (``pi``) and critics (``vf``)."""
    if net_arch is None:
        net_arch = default
    if isinstance(net_arch, list) and net_arch and isinstance(net_arch[0], dict):
        warnings.warn(
            "net_arch as a list with a dict in it is the old form of Stable-Baselines3; its dict "
            "is used. Pass net_arch=dict(pi=..., vf=...)",
            QuantailWarning,
            stacklevel=2,
        )
        net_arch = net_arch[0]
    if isinstance(net_arch, list):
        return {"pi": net_arch, "vf": net_arch}
    unknown = sorted(set(net_arch) - {"pi", "vf"})
    if unknown:
        raise ConfigError(f"net_arch may have the keys pi and vf; had {', '.join(unknown)} as well")
    return {"pi": net_arch.get("pi", []), "vf": net_arch.get("vf", [])}


def core_config(
    recurrent: bool,
    core: CoreConfig | None,
    hidden_size: int | None,
    n_layers: int | None,
    lstm_kwargs: dict[str, Any] | None,
) -> CoreConfig:
    """Return the core of a policy.

    Raises:
        ConfigError: a setting would have no effect, or is not known.
    """
    given = {
        "lstm_hidden_size": hidden_size,
        "n_lstm_layers": n_layers,
        "lstm_kwargs": lstm_kwargs or None,
    }
    named = [name for name, value in given.items() if value is not None]
    if not recurrent:
        if core is not None or named:
            raise ConfigError(
                "core, lstm_hidden_size, n_lstm_layers and lstm_kwargs need a recurrent policy, "
                "such as MlpLstmPolicy; the policy has no memory"
            )
        return NoCoreConfig()
    if core is not None:
        if named:
            raise ConfigError(
                "lstm_hidden_size and n_lstm_layers have no effect beside core, which has its own "
                f"sizes; {', '.join(named)} was given. Leave it out"
            )
        return core
    unknown = sorted(set(lstm_kwargs or {}) - {"dropout"})
    if unknown:
        raise ConfigError(f"lstm_kwargs may hold dropout; had {', '.join(unknown)} as well")
    dropout = float((lstm_kwargs or {}).get("dropout", 0.0))
    return LstmConfig(hidden_size=hidden_size or 64, layers=n_layers or 1, dropout=dropout)


def critic_has_memory(
    recurrent: bool, shared: bool, enable_critic_lstm: bool | None, share_extractor: bool
) -> bool:
    """Say whether the critics get a core of their own, as sb3-contrib decides it.

    Raises:
        ConfigError: the choices exclude each other.
    """
    if not recurrent:
        if shared or enable_critic_lstm is not None:
            raise ConfigError(
                "shared_lstm and enable_critic_lstm need a recurrent policy, such as "
                "MlpLstmPolicy; the policy has no memory"
            )
        return True
    if shared and enable_critic_lstm:
        raise SettingError(
            "shared_lstm and enable_critic_lstm exclude each other: the critics read the actor's "
            "LSTM or one of their own; both were True. Keep one"
        )
    if shared and not share_extractor:
        raise SettingError(
            "shared_lstm needs share_features_extractor=True, because one LSTM reads one set of "
            "features; it was False. Leave it out"
        )
    return shared or enable_critic_lstm is not False
