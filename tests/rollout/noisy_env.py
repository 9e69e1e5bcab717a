"""A vectorized environment with random observations, terminations and truncations.

Everything that an episode gives is drawn from its environment's own generator, so environment i
does the same whatever N is.
"""

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from quantail.rollout.environment import EnvStep, ObservationArray


class NoisyEnv:
    """Rewards follow the sign of the first observation component and the action."""

    def __init__(
        self,
        n_envs: int,
        action_space: spaces.Space[Any] | None = None,
        seed: int = 0,
        end_probability: float = 0.15,
        masked: bool = False,
    ) -> None:
        self.n_envs = n_envs
        self.observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = action_space or spaces.Discrete(3)
        self.end_probability = end_probability
        self.masked = masked
        self._rngs = [np.random.default_rng([seed, env]) for env in range(n_envs)]
        self.observation = np.zeros((n_envs, 3), np.float32)

    def reset(self) -> tuple[ObservationArray, NDArray[np.bool_] | None]:
        self.observation = self._observe()
        return self.observation.copy(), self._masks()

    def step(self, actions: NDArray[Any]) -> EnvStep:
        strength = np.asarray(actions, np.float64).reshape(self.n_envs, -1).sum(1)
        rewards = (np.sign(self.observation[:, 0]) * strength).astype(np.float32)
        draws = np.array([rng.random() for rng in self._rngs])
        terminated = draws < self.end_probability / 2
        truncated = (draws < self.end_probability) & ~terminated
        final = self._observe()
        self.observation = np.where((terminated | truncated)[:, None], self._observe(), final)
        return EnvStep(
            observations=self.observation.copy(),
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            final_observations=final[truncated] if truncated.any() else None,
            weights=np.ones(self.n_envs, np.float32),
            action_masks=self._masks(),
        )

    def _observe(self) -> NDArray[np.float32]:
        return np.stack([rng.normal(size=3) for rng in self._rngs]).astype(np.float32)

    def _masks(self) -> NDArray[np.bool_] | None:
        if not self.masked:
            return None
        masks = np.ones((self.n_envs, 3), np.bool_)
        masks[:, 2] = self.observation[:, 1] > 0
        return masks
