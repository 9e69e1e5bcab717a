"""Gymnasium skins of the simulator: one market as an ``Env``, N markets as a ``VectorEnv``."""

from collections.abc import Sequence
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from quantail.errors import ConfigError
from quantail.market.bars import Bars
from quantail.sim.config import SimConfig
from quantail.sim.episodes import Windows
from quantail.sim.simulator import MarketSim
from quantail.sim.state import END_REASONS, EPISODE, RECORD, StepBuffers
from quantail.types import BoolArray, Float32Array, FloatArray

Features = FloatArray | Float32Array | None


def episode_summary(out: StepBuffers, env: int) -> dict[str, float | str]:
    """Return the summary of the episode that ended in env ``env`` in the latest step."""
    values = dict(zip(EPISODE, out.episode[env].tolist(), strict=True))
    return values | {"end_reason": END_REASONS[out.end_reason[env]]}


class MarketEnv(gym.Env[Float32Array, NDArray[Any] | int]):
    """One account; ``gymnasium.make("Quantail/Market-v0", bars=bars, features=features)``.

    The info of a step holds its record by name, ``sample_weight``, and at the end of an episode its
    summary under ``episode_summary``.

    Args:
        bars: The market.
        features: [R, F] what the agent sees, one row for each bar.
        windows: Rows that episodes may use, by symbol or in pairs.
        config: Account, costs, reward, episodes and the rest.
    """

    def __init__(
        self,
        bars: Bars,
        features: Features = None,
        windows: Windows | None = None,
        config: SimConfig = SimConfig(),  # noqa: B008 - frozen
    ) -> None:
        self.sim = MarketSim(bars, features, windows=windows, config=config, autoreset="disabled")
        self.metadata = {"render_modes": []}
        self.observation_space = self.sim.observation_space  # type: ignore[assignment]
        self.action_space = self.sim.action_space  # type: ignore[assignment]
        self._was_seeded = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32Array, dict[str, Any]]:
        """Begin an episode; a seed starts the env's random stream anew."""
        super().reset(seed=seed)
        if seed is None and not self._was_seeded:
            seed = int(self.np_random.integers(2**32))
        self._was_seeded = True
        return self.sim.reset(seed)[0].copy(), {}

    def step(
        self, action: NDArray[Any] | int
    ) -> tuple[Float32Array, float, bool, bool, dict[str, Any]]:
        """Take one step; an account whose episode has ended stays as it is until ``reset``."""
        out = self.sim.step(np.atleast_1d(action))
        info: dict[str, Any] = dict(zip(RECORD, out.record[0].tolist(), strict=True))
        info["sample_weight"] = float(out.sample_weight[0])
        terminated, truncated = bool(out.terminated[0]), bool(out.truncated[0])
        if terminated or truncated:
            info["episode_summary"] = episode_summary(out, 0)
        return out.observation[0].copy(), float(out.reward[0]), terminated, truncated, info

    def action_masks(self) -> BoolArray:
        """Return which discrete actions make sense now, [actions]."""
        masks: BoolArray = self.sim.action_masks()[0]
        return masks


_MODES: dict[AutoresetMode, Literal["same_step", "next_step", "disabled"]] = {
    AutoresetMode.SAME_STEP: "same_step",
    AutoresetMode.NEXT_STEP: "next_step",
    AutoresetMode.DISABLED: "disabled",
}


class MarketVectorEnv(VectorEnv[Float32Array, NDArray[Any], NDArray[Any]]):
    """N accounts; ``gymnasium.make_vec("Quantail/Market-v0", num_envs=256, bars=bars)``.

    Infos hold ``sample_weight``: 0 for a row that must not be credited, such as one that only
    begins an episode (next-step mode) or a blocked action. Where an episode ends they hold its
    summary under ``episode_summary`` and, in same-step mode, its last observation under
    ``final_obs``.

    Args:
        bars: The market.
        features: [R, F] what the agent sees, one row for each bar.
        windows: Rows that episodes may use, by symbol or in pairs.
        config: Account, costs, reward, episodes and the rest.
        num_envs: Number of accounts.
        autoreset_mode: What happens when an episode ends.
    """

    def __init__(
        self,
        bars: Bars,
        features: Features = None,
        windows: Windows | None = None,
        config: SimConfig = SimConfig(),  # noqa: B008 - frozen
        num_envs: int = 1,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ) -> None:
        mode = AutoresetMode(autoreset_mode)
        self.sim = MarketSim(
            bars, features, windows=windows, config=config, n_envs=num_envs, autoreset=_MODES[mode]
        )
        self.metadata = {"autoreset_mode": mode, "render_modes": []}
        self.num_envs = num_envs
        self.single_observation_space = self.sim.observation_space
        self.single_action_space = self.sim.action_space
        self.observation_space = batch_space(self.sim.observation_space, num_envs)
        self.action_space = batch_space(self.sim.action_space, num_envs)
        self._was_seeded = False

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Float32Array, dict[str, Any]]:
        """Begin episodes in all envs, or in those of ``options["reset_mask"]``."""
        if isinstance(seed, Sequence):
            if any(value is None for value in seed):
                raise ConfigError(
                    "seed must be one number, or one number for each env; some were None."
                )
            seeds: int | list[int] | None = [int(value) for value in seed if value is not None]
        else:
            seeds = seed
        first = seeds if isinstance(seeds, int) else None
        super().reset(seed=first)
        if seeds is None and not self._was_seeded:
            seeds = int(self.np_random.integers(2**32))
        self._was_seeded = True
        mask = None if options is None else options.get("reset_mask")
        return self.sim.reset(seeds, mask).copy(), {}

    def step(
        self, actions: NDArray[Any]
    ) -> tuple[Float32Array, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Step every account once."""
        out = self.sim.step(actions)
        infos: dict[str, Any] = {
            "sample_weight": out.sample_weight.copy(),
            "_sample_weight": np.ones(self.num_envs, np.bool_),
        }
        ended = out.end_reason != 0
        if ended.any():
            self._add_endings(infos, out, ended)
        return (
            out.observation.copy(), out.reward.copy(), out.terminated.copy(), out.truncated.copy(),
            infos,
        )  # fmt: skip

    def _add_endings(self, infos: dict[str, Any], out: StepBuffers, ended: BoolArray) -> None:
        summaries = np.full(self.num_envs, None, object)
        for env in np.flatnonzero(ended):
            summaries[env] = episode_summary(out, int(env))
        infos["episode_summary"], infos["_episode_summary"] = summaries, ended
        if self.sim.autoreset == "same_step":
            observations = np.full(self.num_envs, None, object)
            for env in np.flatnonzero(ended):
                observations[env] = out.final_observation[env].copy()
            infos["final_obs"], infos["_final_obs"] = observations, ended

    def action_masks(self) -> BoolArray:
        """Return which discrete actions make sense now, [N, actions]."""
        return self.sim.action_masks()
