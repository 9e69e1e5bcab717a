"""Settings of the agent that are refused, or warned of, when it is built."""

import warnings
from typing import Any

from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.type_aliases import Schedule
from stable_baselines3.common.vec_env import VecEnv

from quantail.errors import ConfigError, QuantailWarning
from quantail.nets.actor_critic import PolicyConfig
from quantail.risk.config import RiskConfig
from quantail.sb3.controllers import check_freezing
from quantail.sb3.errors import SettingError
from quantail.sb3.policy import MlpPolicy
from quantail.sb3.risk import check_risk


def check_policy(policy: str | type[BasePolicy]) -> None:
    """Refuse a policy class that acting and learning would not read.

    Raises:
        ConfigError: says which class or method.
    """
    if isinstance(policy, str):
        return
    if not issubclass(policy, MlpPolicy):
        raise ConfigError(
            "policy must be the name of a policy or a class derived from those of "
            f"quantail.sb3.policy, which have critics that learn a law; was {policy.__name__}"
        )
    for name in ("forward", "predict_values", "evaluate_actions", "get_distribution"):
        if getattr(policy, name) is not getattr(MlpPolicy, name):
            raise ConfigError(
                f"{policy.__name__}.{name} would have no effect: training reads the network in "
                "policy.net. Pass a features_extractor_class or a core, or change policy.net"
            )


def check_environment(
    env: VecEnv | None, gamma: float, freeze: bool, risk: RiskConfig | None, network: PolicyConfig
) -> None:
    """Refuse an environment that does not fit the agent's settings.

    Raises:
        ConfigError: Its reward is shaped with another discount, there are no statistics to freeze,
            or tail risk cannot be measured in it.
    """
    check_gamma = getattr(None if env is None else env.unwrapped, "check_gamma", None)
    if check_gamma is not None:
        check_gamma(gamma)
    check_freezing(freeze, env)
    check_risk(risk, network, env)


def check_beside(name: str, given: object, owner: str, owned: object) -> None:
    """Refuse an argument that another one, which says more, replaces."""
    if given is not None and owned is not None:
        raise ConfigError(f"{name} has no effect beside {owner}; leave it out")


def check_sde(use_sde: bool, sde_sample_freq: int) -> None:
    """Refuse a frequency without effect."""
    if not use_sde and sde_sample_freq != -1:
        raise ConfigError(
            f"sde_sample_freq has no effect without use_sde=True; was {sde_sample_freq}. Leave it "
            "out"
        )


def check_ranges(clip_range: float | Schedule, clip_range_vf: float | Schedule | None) -> None:
    """Refuse ranges within which nothing could move; a schedule may end at 0."""
    if isinstance(clip_range, int | float) and clip_range <= 0:
        raise SettingError(f"clip_range must be positive; was {clip_range}. Try 0.2")
    if isinstance(clip_range_vf, int | float) and clip_range_vf <= 0:
        raise SettingError(
            f"clip_range_vf must be positive; was {clip_range_vf}. None switches it off"
        )


def check_sizes(rows: int, batch_size: int, normalize_advantage: bool) -> None:
    """Refuse numbers that make no sense; warn when minibatches do not fit.

    Args:
        rows: Of a rollout: steps times environments.
        batch_size: Rows of a minibatch.
        normalize_advantage: Over the rollout.
    """
    if rows == 1 and normalize_advantage:
        raise SettingError(
            "normalize_advantage needs at least 2 rows in a rollout; n_steps times the number of "
            "environments was 1. Raise n_steps, or switch normalize_advantage off"
        )
    if rows % batch_size:
        warnings.warn(
            f"batch_size should divide n_steps times the number of environments ({rows}); was "
            f"{batch_size}: there will be a truncated mini-batch of size {rows % batch_size}",
            QuantailWarning,
            stacklevel=4,
        )


def joined(policy_kwargs: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the policy's arguments with those ``given`` to the agent, as far as not None."""
    for name, value in given.items():
        if value is not None and name in policy_kwargs:
            raise ConfigError(f"{name} is given twice, also in policy_kwargs; keep one")
    return {**policy_kwargs, **{name: v for name, v in given.items() if v is not None}}
