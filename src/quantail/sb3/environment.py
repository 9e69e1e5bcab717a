"""Stable-Baselines3's vectorized environments as the core sees environments."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from quantail.errors import DataError
from quantail.rollout.environment import EnvStep, ObservationArray
from quantail.sb3.normalization import raw_rewards

_NUMBERS = (float, int, np.floating, np.integer, np.bool_)


class SB3Environment:
    """A ``VecEnv`` behind the core's interface.

    Truncation is read from ``info["TimeLimit.truncated"]`` and the final observation from
    ``info["terminal_observation"]``, as every ``VecEnv`` gives them. ``info["sample_weight"]``,
    where present, weights the step. Discrete environments may offer ``action_masks()``.

    Args:
        vec_env: The environments.
        reads_costs: Whether every step must tell its cost in ``info["cost"]``.
    """

    def __init__(self, vec_env: VecEnv, reads_costs: bool = False) -> None:
        self._vec_env = vec_env
        self._reads_costs = reads_costs
        self._n_steps = 0
        is_discrete = isinstance(
            vec_env.action_space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
        )
        self._has_masks = is_discrete and vec_env.has_attr("action_masks")

    @property
    def n_envs(self) -> int:
        """How many environments are stepped together."""
        return int(self._vec_env.num_envs)

    def reset(self) -> tuple[ObservationArray, NDArray[np.bool_] | None]:
        """Start an episode in each environment."""
        observations: Any = self._vec_env.reset()
        return observations, self.action_masks()

    def step(self, actions: NDArray[Any]) -> EnvStep:
        """Act in all environments."""
        space = self._vec_env.action_space
        observations, rewards, dones, infos = self._vec_env.step(in_space(actions, space))
        truncated = np.zeros(self.n_envs, np.bool_)
        for env in np.flatnonzero(dones):
            truncated[env] = infos[env].get("TimeLimit.truncated", False)
        weights = np.ones(self.n_envs, np.float32)
        if infos:
            weights[:] = [info.get("sample_weight", 1.0) for info in infos]
        self._n_steps += 1
        return EnvStep(
            observations=observations,  # type: ignore[arg-type]
            rewards=np.asarray(rewards, np.float32),
            terminated=np.asarray(dones, np.bool_) & ~truncated,
            truncated=truncated,
            final_observations=_final_observations(infos, np.flatnonzero(truncated)),
            weights=weights,
            action_masks=self.action_masks(),
            infos=infos,
            raw_rewards=raw_rewards(self._vec_env, rewards),
            costs=step_costs(infos, self._n_steps - 1) if self._reads_costs else None,
        )

    def action_masks(self) -> NDArray[np.bool_] | None:
        """Return which choices are allowed now, [N, choices], or None when nothing is masked."""
        if not self._has_masks:
            return None
        return np.stack(self._vec_env.env_method("action_masks")).astype(np.bool_)


def in_space(actions: NDArray[Any], space: spaces.Space[Any]) -> NDArray[Any]:
    """Return actions [N, ...] with the number type of their space.

    Boxes of integers get the nearest integer. Bounds hold in the space's own precision.
    """
    if not isinstance(space, spaces.Box):
        return actions.astype(space.dtype, copy=False)
    if np.issubdtype(space.dtype, np.integer):
        actions = np.rint(actions)
    bounded: NDArray[Any] = np.clip(actions, space.low, space.high)
    return bounded.astype(space.dtype, copy=False)


def step_costs(infos: Sequence[Mapping[str, Any]], step: int) -> NDArray[np.float32]:
    """Return what one step cost in each environment, [N].

    Args:
        infos: One for each environment.
        step: Its number, for messages.

    Raises:
        DataError: An environment told no cost, or one that is no finite number.
    """
    given = [info.get("cost") for info in infos]
    for env, cost in enumerate(given):
        if not isinstance(cost, _NUMBERS):
            told = 'no info["cost"]' if cost is None else f'info["cost"] = {cost!r}, no number,'
            raise DataError(
                f"environment {env} gave {told} at step {step} of the rollout, and a limit on the "
                'mean cost needs one of every step. Put a number into info["cost"], 0.0 where '
                "nothing is spent, or leave the limit out"
            )
    costs = np.array(given, np.float64)
    is_fine = np.abs(costs) <= np.finfo(np.float32).max  # False for NaN too
    if not is_fine.all():
        env = int(np.flatnonzero(~is_fine)[0])
        raise DataError(
            f'environment {env} gave info["cost"] = {given[env]} at step {step} of the rollout; a '
            "cost must be finite (as a float32), and nothing can stand in for one that is not. "
            "Mend what the environment computes there"
        )
    return costs.astype(np.float32)


def _final_observations(
    infos: list[dict[str, Any]], envs: NDArray[np.intp]
) -> ObservationArray | None:
    if envs.size == 0:
        return None
    missing = [int(env) for env in envs if infos[env].get("terminal_observation") is None]
    if missing:
        raise DataError(
            f"environment(s) {missing} were truncated without info['terminal_observation']; a cut "
            "episode needs its last observation, or the value of what followed is unknown"
        )
    rows = [infos[env]["terminal_observation"] for env in envs]
    if isinstance(rows[0], dict):
        return {key: np.stack([row[key] for row in rows]) for key in rows[0]}
    return np.stack(rows)
