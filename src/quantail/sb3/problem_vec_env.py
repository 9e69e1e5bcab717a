"""A problem with a known answer as a Stable-Baselines3 environment."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import Wrapper
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.common.vec_env.base_vec_env import VecEnvIndices, VecEnvStepReturn

from quantail.errors import ConfigError, ConfigProblem
from quantail.sim.problems.interface import VectorProblem
from quantail.types import Float32Array


class ProblemVecEnv(VecEnv):
    """N instances of a problem behind the interface of Stable-Baselines3.

    Attributes:
        problem: The instances; all share it, so attributes and methods are those of the whole.
    """

    def __init__(self, problem: VectorProblem) -> None:
        self.problem = problem
        self._actions: NDArray[Any] | None = None
        super().__init__(problem.n_envs, problem.observation_space, problem.action_space)

    def reset(self) -> Float32Array:
        """Start new episodes, from the seed given to :meth:`seed` if there is one."""
        seed = self._seeds[0]
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = [{} for _ in range(self.num_envs)]
        return self.problem.reset(seed)

    def step_async(self, actions: NDArray[Any]) -> None:
        """Take the actions of the next step."""
        self._actions = actions

    def step_wait(self) -> VecEnvStepReturn:
        """Take the step; an episode that ended leaves its last observation in its info."""
        assert self._actions is not None, "step_async comes first"
        result = self.problem.step(self._actions)
        self._actions = None
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        ended = result.terminated | result.truncated
        for env in np.flatnonzero(ended):
            infos[env] = {
                "terminal_observation": result.final_observation[env],
                "TimeLimit.truncated": bool(result.truncated[env]),
            }
        return result.observation, result.reward.astype(np.float32), ended, infos

    def close(self) -> None:
        """Do nothing: there is nothing to give back."""

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Return an attribute of the problem, once per instance asked for."""
        value = None if attr_name == "render_mode" else getattr(self.problem, attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Set an attribute of the problem, in all instances at once."""
        self._refuse_some(indices)
        setattr(self.problem, attr_name, value)

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: VecEnvIndices = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """Call a method of the problem once, for all instances at once."""
        self._refuse_some(indices)
        value = getattr(self.problem, method_name)(*method_args, **method_kwargs)
        return [value for _ in range(self.num_envs)]

    def env_is_wrapped(
        self, wrapper_class: type[Wrapper[Any, Any, Any, Any]], indices: VecEnvIndices = None
    ) -> list[bool]:
        """Return False: no instance is wrapped by itself."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[NDArray[Any] | None]:
        """Return nothing to look at."""
        return [None] * self.num_envs

    def _refuse_some(self, indices: VecEnvIndices) -> None:
        if indices is not None and len(list(self._get_indices(indices))) != self.num_envs:
            message = f"must be None, as the instances share everything; was {indices}"
            raise ConfigError([ConfigProblem("indices", message)])
