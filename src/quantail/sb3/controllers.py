"""What the controllers ask of an agent's arguments and of its network."""

from collections.abc import Mapping
from inspect import Signature
from typing import Any, Final

from stable_baselines3.common.vec_env import VecEnv
from torch.optim import Optimizer

from quantail.config import LearnerConfig
from quantail.errors import ConfigError
from quantail.losses.imitation import Cloning, ImitationConfig
from quantail.optim.groups import actor_and_critic
from quantail.optim.schedules import Schedules
from quantail.rollout.demonstrations import Demonstrations
from quantail.sb3.normalization import has_normalizer
from quantail.sb3.policy import MlpPolicy

_OWNERS: Final = {
    "learning_rate": "learning_rate",
    "clip_range": "clip_range",
    "value_clip_range": "clip_range_vf",
    "entropy": "ent_coef",
    "value": "vf_coef",
}
"""Schedule -> the argument that sets the same number."""


def check_owners(schedules: Schedules, given: Mapping[str, Any], defaults: Signature) -> None:
    """Refuse a coefficient that an argument and a schedule both set.

    Args:
        schedules: By environment steps.
        given: The agent's arguments by name.
        defaults: Of its constructor.
    """
    for name in schedules.given():
        argument = _OWNERS.get(name)
        if argument is not None and given[argument] != defaults.parameters[argument].default:
            raise ConfigError(
                f"{argument} has no effect beside schedules.{name}, which sets the same number; "
                f"was {given[argument]}. Leave it out"
            )


def check_demonstrations(
    imitation: ImitationConfig | None, demonstrations: Demonstrations | None
) -> None:
    """Refuse demonstrations that nothing reads, and cloning without any."""
    clones = isinstance(imitation, Cloning)
    if clones and demonstrations is None:
        raise ConfigError("imitation=Cloning(...) needs demonstrations=...; was None")
    if demonstrations is not None and not clones:
        raise ConfigError(
            "demonstrations have no effect without imitation=Cloning(...); leave them out"
        )


def check_network(
    settings: LearnerConfig, policy: MlpPolicy, demonstrations: Demonstrations | None
) -> None:
    """Refuse critics that go on alone and thereby move the actor, and what it cannot imitate."""
    if demonstrations is not None:
        demonstrations.check_spaces(policy.observation_space, policy.action_space)
    shared = [name for name in policy.net.parameter_groups() if name.startswith("shared")]
    if settings.critics_go_on and shared:
        raise ConfigError(
            'kl_control.stop.after = "critics" needs critics that share nothing with the actor, '
            f"or they move it after it has stopped; shared: {', '.join(shared)}. Use after = "
            '"end", or a policy without shared parts'
        )


def check_freezing(freeze: bool, env: VecEnv | None) -> None:
    """Refuse to freeze statistics that are not there."""
    if freeze and env is not None and not has_normalizer(env):
        raise ConfigError(
            "freeze_normalizer has no effect: env has no VecNormalize. The policy's own normalizer "
            "never moves during a rollout"
        )


def regrouped(policy: MlpPolicy) -> Optimizer:
    """Return a new optimizer of the same kind, with one group each for actor and critics."""
    groups = actor_and_critic(policy.net.parameter_groups())
    rate = policy.optimizer.param_groups[0]["lr"]
    return policy.optimizer_class(groups, lr=rate, **policy.optimizer_kwargs)  # type: ignore[call-arg]
