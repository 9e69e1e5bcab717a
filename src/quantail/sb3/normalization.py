"""The statistics of ``VecNormalize``, wherever in a chain of wrappers it stands."""

from collections.abc import Iterator
from typing import Any, Final, Self
from warnings import warn

import numpy as np
import torch
from gymnasium import wrappers as gym_wrappers
from numpy.typing import NDArray
from stable_baselines3.common.running_mean_std import RunningMeanStd
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper, VecNormalize

from quantail.checkpoint.archive import CheckpointError
from quantail.diagnostics.drift import Moments, drift
from quantail.diagnostics.schema import NormalizerMetrics
from quantail.errors import ConfigError, QuantailWarning

# What changes the observations or rewards an agent sees. Whether statistics go on moving
# (training) and whether rewards are normalized are the caller's choice, as for an evaluation.
_RESTORED: Final = ("clip_obs", "clip_reward", "gamma", "epsilon")
_FIXED: Final = ("norm_obs", "norm_obs_keys")
_KEEP: Final = (
    "To normalize by yourself instead, pass custom_objects={'vec_normalize': None} to load()"
)


# Wrappers inside an environment that change rewards for good.
_HIDING: Final = (gym_wrappers.NormalizeReward, gym_wrappers.ClipReward)


def raw_rewards(env: VecEnv, rewards: NDArray[Any]) -> NDArray[np.float32]:
    """Return the rewards of the latest step as they were before any ``VecNormalize`` scaled them.

    Args:
        env: Stepped just now.
        rewards: What that step returned, [N].
    """
    scaling = [wrapper for wrapper in _wrappers(env) if wrapper.norm_reward]
    raw = scaling[-1].get_original_reward() if scaling else rewards
    return np.asarray(raw, np.float32)


def check_raw_rewards(env: VecEnv | None, setting: str) -> None:
    """Refuse environments whose raw rewards cannot be told.

    Args:
        env: A ``VecNormalize`` anywhere in its chain keeps raw rewards, so it is fine.
        setting: What needs raw rewards, for the message.

    Raises:
        ConfigError: A wrapper inside an environment normalizes or clips rewards for good.
    """
    if env is None:
        return
    for wrapper in _HIDING:
        if any(env.env_is_wrapped(wrapper)):
            raise ConfigError(
                f"{setting} needs raw rewards, and an environment is wrapped by "
                f"{wrapper.__name__}, which hides them. Leave the wrapper out, and use "
                "VecNormalize(norm_reward=True), which keeps raw rewards, if they must be scaled"
            )


def has_normalizer(env: VecEnv) -> bool:
    """Whether a ``VecNormalize`` stands anywhere in the chain."""
    return any(True for _ in _wrappers(env))


class WatchedStatistics:
    """Watches, and on request holds, the statistics of every ``VecNormalize`` for one rollout.

    Held statistics stay as they are, so that one mapping from raw to normalized numbers holds
    throughout; when the rollout has ended they take in its steps one by one, as they would have.

    Args:
        env: The chain of wrappers.
        freeze: Whether to hold them.
    """

    def __init__(self, env: VecEnv, *, freeze: bool) -> None:
        self._wrappers = [wrapper for wrapper in _wrappers(env) if wrapper.training]
        self._held = list(self._wrappers) if freeze else []
        self._steps: list[tuple[NDArray[np.bool_], list[tuple[Any, NDArray[Any]]]]] = []
        self._before = _observed(self._wrappers)

    def __enter__(self) -> Self:
        for wrapper in self._held:
            wrapper.training = False
        return self

    def __exit__(self, *_: object) -> None:
        for wrapper in self._held:
            wrapper.training = True
        for done, parts in self._steps:
            for wrapper, (observations, rewards) in zip(self._held, parts, strict=True):
                _take_in(wrapper, observations, rewards, done)

    def record(self, done: NDArray[np.bool_]) -> None:
        """Keep the step that was just made, while statistics are held."""
        if self._held:
            parts = [(w.get_original_obs(), w.get_original_reward()) for w in self._held]
            self._steps.append((done.copy(), parts))

    def metrics(self) -> NormalizerMetrics:
        """Return how far the statistics of observations have moved."""
        mean, std = drift(self._before, _observed(self._wrappers)) or (None, None)
        return NormalizerMetrics(mean_drift=mean, std_drift=std)


def _take_in(
    wrapper: VecNormalize, observations: Any, rewards: NDArray[Any], done: NDArray[np.bool_]
) -> None:
    """Let a wrapper's statistics take in one step, as its ``step_wait`` does."""
    if wrapper.norm_obs:
        running: Any = wrapper.obs_rms
        if isinstance(running, dict):
            for key, part in running.items():
                part.update(observations[key])
        else:
            running.update(observations)
    wrapper._update_reward(rewards)
    wrapper.returns[done] = 0


def _observed(wrappers: list[VecNormalize]) -> Moments | None:
    """Return the moments of all observations that are normalized, in one row."""
    parts = []
    for wrapper in wrappers:
        if wrapper.norm_obs:
            running: Any = wrapper.obs_rms
            parts += list(running.values()) if isinstance(running, dict) else [running]
    if not parts:
        return None
    mean = np.concatenate([np.ravel(part.mean) for part in parts])
    variance = np.concatenate([np.ravel(part.var) for part in parts])
    return Moments(torch.tensor(mean), torch.tensor(np.sqrt(variance)))


def statistics(env: VecEnv | None) -> list[dict[str, Any]] | None:
    """Return the statistics of each ``VecNormalize`` of ``env``, outermost first, or None."""
    return [
        {
            **{name: getattr(wrapper, name) for name in (*_FIXED, *_RESTORED)},
            "obs_rms": _moments(getattr(wrapper, "obs_rms", None)),
            "ret_rms": _moments(wrapper.ret_rms),
        }
        for wrapper in _wrappers(env)
    ] or None


def check_statistics(saved: list[dict[str, Any]] | None, env: VecEnv | None) -> None:
    """Refuse an environment that does not normalize as the agent's own did.

    Args:
        saved: From :func:`statistics`.
        env: The environment to load the agent into; None gives a warning, as the agent can still
            predict from observations that the caller normalizes.
    """
    wrappers = list(_wrappers(env))
    if env is None:
        if saved:
            warn(
                "the agent was trained with a VecNormalize, and without env its statistics are not "
                "restored: predict() needs normalized observations. Pass "
                "env=VecNormalize(...) to load() to restore them",
                QuantailWarning,
                stacklevel=4,
            )
        return
    if not saved:
        if any(wrapper.norm_obs for wrapper in wrappers):
            warn(
                "env has a VecNormalize that normalizes observations, and the agent was trained "
                "without one; pass an env without it",
                QuantailWarning,
                stacklevel=4,
            )
        return
    if len(wrappers) != len(saved):
        raise CheckpointError(
            f"the agent was trained with {len(saved)} VecNormalize wrapper(s), and env has "
            f"{len(wrappers)}; pass env=VecNormalize(env), whose statistics are then restored. "
            f"{_KEEP}"
        )
    for wrapper, part in zip(wrappers, saved, strict=True):
        for name in _FIXED:
            if getattr(wrapper, name) != part[name]:
                raise CheckpointError(
                    f"the agent was trained with VecNormalize({name}={part[name]}), and env has "
                    f"{name}={getattr(wrapper, name)}; pass an env with the former. {_KEEP}"
                )


def restore_statistics(saved: list[dict[str, Any]] | None, env: VecEnv | None) -> None:
    """Put the statistics into the environment that :func:`check_statistics` let through."""
    if env is None or not saved:
        return
    for wrapper, part in zip(_wrappers(env), saved, strict=True):
        for name in _RESTORED:
            setattr(wrapper, name, part[name])
        if part["obs_rms"] is not None:
            wrapper.obs_rms = _running(part["obs_rms"])
        wrapper.ret_rms = _running(part["ret_rms"])


def _wrappers(env: VecEnv | None) -> Iterator[VecNormalize]:
    while isinstance(env, VecEnvWrapper):
        if isinstance(env, VecNormalize):
            yield env
        env = env.venv


def _moments(running: Any) -> Any:
    """Return mean, variance and count; of each key, when there are several."""
    if running is None:
        return None
    if isinstance(running, dict):
        return {"keys": {key: _moments(part) for key, part in running.items()}}
    return {
        "mean": np.asarray(running.mean),
        "var": np.asarray(running.var),
        "count": float(running.count),
    }


def _running(moments: dict[str, Any]) -> Any:
    if "keys" in moments:
        return {key: _running(part) for key, part in moments["keys"].items()}
    running = RunningMeanStd(shape=moments["mean"].shape)
    running.mean, running.var = moments["mean"].copy(), moments["var"].copy()
    running.count = moments["count"]
    return running
