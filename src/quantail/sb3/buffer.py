"""A rollout as Stable-Baselines3's ``RolloutBuffer``, for callbacks that read it."""

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.buffers import DictRolloutBuffer, RolloutBuffer

from quantail.errors import ConfigError
from quantail.flow import Rollout
from quantail.sb3.distributions import stored_actions
from quantail.targets.advantages import gae, next_values
from quantail.targets.twin import Twin, twin_mean

_READ_BY_LEARNING = ("get", "_get_samples", "compute_returns_and_advantage")


def check_buffer_class(buffer_class: type[RolloutBuffer] | None) -> None:
    """Refuse a class that changes what would be learned from.

    Raises:
        ConfigError: names the method that would have no effect.
    """
    if buffer_class is None:
        return
    if not issubclass(buffer_class, RolloutBuffer):
        raise ConfigError(
            f"rollout_buffer_class must be a RolloutBuffer of Stable-Baselines3; was {buffer_class}"
        )
    for name in _READ_BY_LEARNING:
        method = getattr(buffer_class, name)
        if method not in (getattr(RolloutBuffer, name), getattr(DictRolloutBuffer, name)):
            raise ConfigError(
                f"rollout_buffer_class.{name} would have no effect: learning cuts sequences from "
                f"the rollout itself and does not sample from the buffer; "
                f"{buffer_class.__name__} overrides it. Record in add() or reset(), or leave the "
                "class out"
            )


def fill_buffer(buffer: RolloutBuffer, rollout: Rollout, twin: Twin) -> None:
    """Write a rollout into a buffer, with the advantages that learning uses before normalization.

    As Stable-Baselines3 does, the reward of a truncated step holds the discounted value of what
    would have followed. A buffer of the user's own class gets the steps one by one through
    ``add``.

    Args:
        buffer: Of the rollout's size; its old content is lost.
        rollout: Rows [T, N].
        twin: How the critics are combined.
    """
    values = twin_mean(rollout.values, twin)
    last = twin_mean(rollout.last_values, twin)
    cut = twin_mean(rollout.truncated_values, twin)
    rewards = rollout.rewards.clone()
    rewards[rollout.truncated] += buffer.gamma * cut
    actions = stored_actions(rollout.policy, rollout.actions).cpu().numpy()
    buffer.reset()
    if type(buffer) not in (RolloutBuffer, DictRolloutBuffer):
        for t in range(len(rewards)):
            buffer.add(
                _row(rollout, t),  # type: ignore[arg-type]
                actions[t],
                rewards[t].numpy(),
                rollout.episode_starts[t].numpy(),
                values[t],
                rollout.log_probs[t],
            )
        ended = rollout.terminated[-1] | rollout.truncated[-1]
        buffer.compute_returns_and_advantage(last, ended.numpy())
        return
    _write_observations(buffer, rollout)
    buffer.actions[:] = actions.reshape(buffer.actions.shape)
    buffer.rewards[:] = rewards
    buffer.episode_starts[:] = rollout.episode_starts
    buffer.values[:] = values.cpu()
    buffer.log_probs[:] = rollout.log_probs.cpu()
    following = next_values(values, last, rollout.truncated, cut)
    ends = (rollout.terminated, rollout.truncated)
    buffer.advantages[:] = gae(
        rollout.rewards, values, following, *ends, gamma=buffer.gamma, lam=buffer.gae_lambda
    ).cpu()
    buffer.returns[:] = buffer.advantages + buffer.values
    buffer.pos, buffer.full = buffer.buffer_size, True


def _write_observations(buffer: RolloutBuffer, rollout: Rollout) -> None:
    if isinstance(buffer, DictRolloutBuffer):
        assert isinstance(rollout.observations, dict)
        for key, array in buffer.observations.items():
            array[:] = rollout.observations[key].cpu().numpy().reshape(array.shape)
        return
    assert isinstance(rollout.observations, torch.Tensor)
    shape = buffer.observations.shape
    buffer.observations[:] = rollout.observations.cpu().numpy().reshape(shape)


def _row(rollout: Rollout, t: int) -> NDArray[np.generic] | dict[str, NDArray[np.generic]]:
    if isinstance(rollout.observations, dict):
        return {key: value[t].cpu().numpy() for key, value in rollout.observations.items()}
    return rollout.observations[t].cpu().numpy()
