"""What acting needs of an environment: N of them, stepped together, resetting themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

ObservationArray: TypeAlias = NDArray[Any] | dict[str, NDArray[Any]]
"""[N, ...], or one array per key of a Dict space."""


@dataclass(frozen=True, slots=True)
class EnvStep:
    """What one step of N environments gave."""

    observations: ObservationArray
    """[N, ...]: the first of a new episode where the old one ended."""
    rewards: NDArray[np.float32]
    """[N], to learn from."""
    terminated: NDArray[np.bool_]
    """[N]"""
    truncated: NDArray[np.bool_]
    """[N]: cut, and not terminated by the same step."""
    final_observations: ObservationArray | None
    """One row for each truncated environment, in order; None when there is none."""
    weights: NDArray[np.float32]
    """[N] sample weights; 0 for a step that must not be learned from."""
    action_masks: NDArray[np.bool_] | None
    """[N, choices], for the next action."""
    infos: Sequence[Mapping[str, Any]] = ()
    """What the environments say besides; passed on to ``on_step``, never read by the core."""
    raw_rewards: NDArray[np.float32] | None = None
    """[N], where ``rewards`` are scaled: before the scaling, for returns of episodes and risk."""
    costs: NDArray[np.float32] | None = None
    """[N], finite; needed if and only if the policy has a cost critic."""


class VectorEnvironment(Protocol):
    """N environments behind one call."""

    @property
    def n_envs(self) -> int:
        """How many."""

    def reset(self) -> tuple[ObservationArray, NDArray[np.bool_] | None]:
        """Start an episode in each; return first observations and action masks, if any."""

    def step(self, actions: NDArray[Any]) -> EnvStep:
        """Act in all; an environment whose episode ends starts the next one by itself."""
