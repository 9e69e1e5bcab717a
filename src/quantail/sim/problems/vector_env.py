"""A problem as a gymnasium vector environment."""

from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from quantail.errors import ConfigError, ConfigProblem
from quantail.sim.problems.interface import VectorProblem
from quantail.types import BoolArray, Float32Array, FloatArray


class ProblemVectorEnv(VectorEnv[Float32Array, NDArray[Any], NDArray[Any]]):
    """N instances of a problem behind gymnasium's vector interface.

    An episode that ends is started anew in the same step (``AutoresetMode.SAME_STEP``); its last
    observation is in ``info["final_obs"]``, valid where ``info["_final_obs"]`` is true.
    """

    def __init__(self, problem: VectorProblem) -> None:
        self.problem = problem
        self.num_envs = problem.n_envs
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": []}
        self.single_observation_space = problem.observation_space
        self.single_action_space = problem.action_space
        self.observation_space = batch_space(problem.observation_space, problem.n_envs)
        self.action_space = batch_space(problem.action_space, problem.n_envs)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32Array, dict[str, Any]]:
        """Start new episodes in all instances.

        Args:
            seed: One seed for all; each instance makes its own of it and of its number.
            options: None: the problems have none.
        """
        if isinstance(seed, list):
            message = f"must be one whole number or None; was a list of {len(seed)}"
            raise ConfigError([ConfigProblem("seed", message)])
        if options:
            message = f"must be empty, the problems have none; was {options}"
            raise ConfigError([ConfigProblem("options", message)])
        return self.problem.reset(seed), {}

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Float32Array, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Take one step in all instances."""
        result = self.problem.step(actions)
        ended = result.terminated | result.truncated
        info: dict[str, Any] = {}
        if np.any(ended):
            info = {"final_obs": result.final_observation, "_final_obs": ended}
        return result.observation, result.reward, result.terminated, result.truncated, info
