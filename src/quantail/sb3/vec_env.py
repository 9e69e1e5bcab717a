"""The simulator as a Stable-Baselines3 ``VecEnv``.

Infos are built lazily: an env gets an entry only where its episode has ended, or for the record
keys that were asked for.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import (
    VecEnv,
    VecEnvIndices,
    VecEnvStepReturn,
)

from quantail.errors import ConfigError
from quantail.sim.gym_env import episode_summary
from quantail.sim.random import env_seeds
from quantail.sim.rewards import check_gamma
from quantail.sim.simulator import MarketSim
from quantail.sim.state import EPISODE, RECORD, StepBuffers
from quantail.sim.step_cost import StepCost, check_step_cost, step_cost
from quantail.types import BoolArray, Float32Array

_REWARD, _LENGTH = EPISODE.index("reward"), EPISODE.index("length")
_SAMPLE_WEIGHT = "sample_weight"


class MarketVecEnv(VecEnv):
    """N accounts under the VecEnv interface.

    The info of an env whose episode has ended holds ``terminal_observation``,
    ``TimeLimit.truncated``, ``episode`` (reward r and length l, so no Monitor is needed) and
    ``episode_summary``. Weights of the rows of the latest step are in :attr:`sample_weight`.

    Args:
        sim: The simulator; its autoreset must be ``same_step``.
        info_keys: Names of the record, or ``sample_weight``, that every info shall hold in every
            step. Building them costs a Python object per env.
        cost: What every info shall hold as ``cost``, for an agent that limits it: ``costs`` paid or
            ``turnover``, over the equity before the step.
    """

    def __init__(
        self, sim: MarketSim, info_keys: Sequence[str] = (), cost: StepCost | None = None
    ) -> None:
        if sim.autoreset != "same_step":
            raise ConfigError(
                f"sim.autoreset must be 'same_step' for a VecEnv; was {sim.autoreset!r}. Build the "
                "simulator with autoreset='same_step'."
            )
        unknown = [key for key in info_keys if key not in (*RECORD, _SAMPLE_WEIGHT)]
        if unknown:
            known = ", ".join((*RECORD, _SAMPLE_WEIGHT))
            raise ConfigError(f"info_keys must be among {known}; was {unknown[0]!r}.")
        self.sim = sim
        check_step_cost(cost)
        self.info_keys = tuple(info_keys)
        self.cost = cost
        self._actions: NDArray[Any] = np.zeros((sim.n_envs, 1))
        self._empty: list[dict[str, Any]] = [{} for _ in range(sim.n_envs)]
        super().__init__(sim.n_envs, sim.observation_space, sim.action_space)

    @property
    def sample_weight(self) -> Float32Array:
        """[N] weights of the rows of the latest step; 0 for a row that must not be credited."""
        return self.sim.out.sample_weight

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Give each env a seed of its own, made of ``seed``, for the next reset."""
        first = super().seed(seed)[0]
        assert first is not None, "the base class draws a seed where none is given"
        self._seeds = list(env_seeds(first, self.num_envs))
        return self._seeds

    def reset(self) -> Float32Array:
        """Begin episodes in all envs, with the seeds given by ``seed`` if any."""
        given = [seed for seed in self._seeds if seed is not None]
        observation = self.sim.reset(given or None)
        self._reset_seeds()
        self._reset_options()
        return observation.copy()

    def step_async(self, actions: NDArray[Any]) -> None:
        """Take the actions of the next step."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Step every account once."""
        out = self.sim.step(self._actions)
        done = out.terminated | out.truncated
        infos = self._infos(out)
        for env in done.nonzero()[0].tolist():
            infos[env] = infos[env] | self._ending(out, env)
        return out.observation.copy(), out.reward.astype(np.float32), done, infos

    def _infos(self, out: StepBuffers) -> list[dict[str, Any]]:
        """Return the requested keys of each env.

        Without any, the dicts are the ones of the step before as long as nobody wrote into them: to
        make hundreds of empty dicts costs as much as half a step of the simulator.
        """
        if self.info_keys or self.cost is not None:
            columns = {
                key: (out.sample_weight if key == _SAMPLE_WEIGHT else out.column(key)).tolist()
                for key in self.info_keys
            }
            if self.cost is not None:
                columns["cost"] = step_cost(out, self.cost).tolist()
            rows = zip(*columns.values(), strict=True)
            return [dict(zip(columns, row, strict=True)) for row in rows]
        if any(self._empty):
            self._empty = [{} for _ in range(self.num_envs)]
        return self._empty.copy()

    @staticmethod
    def _ending(out: StepBuffers, env: int) -> dict[str, Any]:
        episode = out.episode[env]
        return {
            "terminal_observation": out.final_observation[env].copy(),
            "TimeLimit.truncated": bool(out.truncated[env]),
            "episode": {"r": float(episode[_REWARD]), "l": int(episode[_LENGTH])},
            "episode_summary": episode_summary(out, env),
        }

    def check_gamma(self, gamma: float) -> None:
        """Refuse an agent whose discount does not fit the reward; see :mod:`quantail.sim.rewards`.

        An agent calls this once, when it gets the environment.
        """
        check_gamma(self.sim.config.reward, gamma)

    def action_masks(self) -> BoolArray:
        """Return which discrete actions make sense now, [N, actions]."""
        return self.sim.action_masks()

    def close(self) -> None:
        """Nothing is held open."""

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Return an attribute of the simulator, the same for every env."""
        if attr_name == "render_mode":
            return [None for _ in self._get_indices(indices)]
        return [getattr(self.sim, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Refuse: the accounts share one simulator, whose parts are fixed when it is built."""
        raise ConfigError(
            f"{attr_name} cannot be set: the envs share one simulator. Build a new one with the "
            "configuration you want."
        )

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **kwargs: Any
    ) -> list[Any]:
        """Call a method for each env: ``action_masks``, or ``set_cost_scale`` for all at once."""
        if method_name == "set_cost_scale":
            if len(list(self._get_indices(indices))) != self.num_envs:
                raise ConfigError(
                    f"indices must be None for set_cost_scale, as the envs share it; was {indices}."
                )
            self.sim.set_cost_scale(*method_args, **kwargs)
            return [None] * self.num_envs
        if method_name != "action_masks":
            raise AttributeError(
                f"one env of a MarketVecEnv has no method {method_name!r}; call it on the "
                "simulator (.sim), which holds all envs."
            )
        masks = self.sim.action_masks()
        return [masks[env] for env in self._get_indices(indices)]

    def env_is_wrapped(
        self, wrapper_class: type[gym.Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        """No env is wrapped: there are no single envs."""
        return [False for _ in self._get_indices(indices)]
