"""The one shape of every problem with a known answer: N instances stepped together.

A problem is a frozen configuration that builds a :class:`VectorProblem`. The configuration also
knows its exact solution and the policies that belong to it::

    config = ProportionalCost(phi=0.1, cost=0.5)
    solution = config.solve()
    policies = config.policies()          # name -> Policy, "optimal" among them
    problem = config.build(n_envs=64, seed=0)
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from quantail.errors import ConfigError, ConfigProblem, DataError
from quantail.sim.problems.noise import NoiseStreams
from quantail.types import BoolArray, Float32Array, FloatArray, IntArray

ProblemState = dict[str, NDArray[Any]]
"""Everything a problem needs to go on bit for bit: copies of its arrays, by name."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step of all instances gave."""

    observation: Float32Array
    """What the agent sees next; of the new episode where one has just ended. [N, O]"""
    reward: FloatArray
    """[N]"""
    terminated: BoolArray
    """The episode ended in the problem: nothing follows. [N]"""
    truncated: BoolArray
    """The episode was cut off by its time limit: the value of ``final_observation`` follows. [N]"""
    final_observation: Float32Array
    """The observation reached by this step, before any new start. [N, O]"""


@dataclass(frozen=True, slots=True)
class Policy:
    """A fixed rule, vectorised over instances, with an optional memory of its own.

    ``act(observation [N, O], memory [N, M]) -> (action, memory)``; the memory is zero at the start
    of an episode.
    """

    act: Callable[[Float32Array, FloatArray], tuple[NDArray[Any], FloatArray]]
    memory_size: int = 0

    @staticmethod
    def of(rule: "Callable[[Float32Array], NDArray[Any]]") -> "Policy":
        """Make a policy of a rule that looks at the observation alone."""
        return Policy(act=lambda observation, memory: (rule(observation), memory))


class Solution(Protocol):
    """What every exact solution tells; the records of the problems add tables and thresholds."""

    @property
    def values(self) -> Mapping[str, float]:
        """Exact mean reward of each policy, by name.

        Per step for problems that go on for ever, per episode for the others. Not every policy need
        have one; "optimal" has.
        """
        ...

    @property
    def base(self) -> str:
        """The name of the trivial policy that scores zero."""
        ...


class Problem(Protocol):
    """What every configuration of a problem offers."""

    continuing: ClassVar[bool]
    """True: episodes are only cut off, and values are per step. False: values are per episode."""

    maximizes_mean: ClassVar[bool]
    """True: "optimal" has the largest mean reward. False: it trades mean for less risk."""

    @property
    def kind(self) -> str:
        """The name of the problem in a configuration file."""
        ...

    def build(self, n_envs: int, seed: int, first_env: int = 0) -> "VectorProblem":
        """Return N instances; instance i of it is number ``first_env + i`` of the seed's family."""
        ...

    def solve(self) -> Solution:
        """Return the exact answer."""
        ...

    def policies(self) -> Mapping[str, Policy]:
        """Return the optimal and the baseline policies by name."""
        ...


class VectorProblem(ABC):
    """N instances of a problem, stepped together, started anew by themselves.

    A subclass keeps everything that changes in ``_arrays`` and writes the three methods ``_begin``,
    ``_advance`` and ``_observe``.

    Attributes:
        n_envs: Number of instances N.
        observation_space: The space of one instance.
        action_space: The space of one instance.
        episode_length: Steps after which an episode is cut off, or None.
    """

    def __init__(
        self,
        *,
        n_envs: int,
        seed: int,
        first_env: int,
        observation_space: spaces.Box,
        action_space: spaces.Box | spaces.Discrete,
        episode_length: int | None,
    ) -> None:
        if n_envs < 1:
            raise ConfigError([ConfigProblem("n_envs", f"must be at least 1; was {n_envs}")])
        self.n_envs = n_envs
        self.observation_space = observation_space
        self.action_space = action_space
        self.episode_length = episode_length
        self._noise = NoiseStreams(n_envs, seed, first_env)
        self._arrays: dict[str, NDArray[Any]] = {"time": np.zeros(n_envs, dtype=np.int64)}
        self._is_started = False

    @abstractmethod
    def _begin(self, rows: IntArray) -> None:
        """Start new episodes in ``rows``."""

    @abstractmethod
    def _advance(self, actions: NDArray[Any]) -> tuple[FloatArray, BoolArray]:
        """Move all instances one step on; return reward [N] and terminated [N]."""

    @abstractmethod
    def _observe(self) -> Float32Array:
        """Return a new array of what is seen now. [N, O]."""

    def reset(self, seed: int | None = None) -> Float32Array:
        """Start new episodes in all instances; without a seed the random streams go on."""
        if seed is not None:
            self._noise.reseed(seed)
        self._is_started = True
        self._start(np.arange(self.n_envs))
        return self._observe()

    def step(self, actions: NDArray[Any]) -> StepResult:
        """Take one step in all instances.

        Args:
            actions: [N] whole numbers for a discrete space, else [N, A] numbers inside the box.

        Raises:
            DataError: Wrong shape, an action outside the space, or nothing was started.
        """
        if not self._is_started:
            raise DataError("reset() must be called before the first step()")
        reward, terminated = self._advance(self._checked(np.asarray(actions)))
        time = self._arrays["time"]
        time += 1
        truncated = np.zeros(self.n_envs, dtype=np.bool_)
        if self.episode_length is not None:
            truncated = (time >= self.episode_length) & ~terminated
        final = self._observe()
        observation = final
        rows = np.flatnonzero(terminated | truncated)
        if rows.size:
            self._start(rows)
            observation = self._observe()
        return StepResult(observation, reward, terminated, truncated, final)

    def get_state(self) -> ProblemState:
        """Return copies of everything that the future depends on."""
        return {"noise": self._noise.streams.copy()} | {
            name: array.copy() for name, array in self._arrays.items()
        }

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go back to a state that :meth:`get_state` returned."""
        targets = {"noise": self._noise.streams} | self._arrays
        if targets.keys() != state.keys():
            raise DataError(
                f"state must hold the arrays {sorted(targets)}; held {sorted(state)}. "
                "Use a state of the same problem."
            )
        for name, target in targets.items():
            if state[name].shape != target.shape:
                raise DataError(
                    f"state[{name!r}] must have shape {target.shape}; had {state[name].shape}. "
                    "Use a state of as many instances."
                )
        for name, target in targets.items():
            target[...] = state[name]
        self._is_started = True

    def _start(self, rows: IntArray) -> None:
        self._arrays["time"][rows] = 0
        self._begin(rows)

    def _checked(self, actions: NDArray[Any]) -> NDArray[Any]:
        if isinstance(self.action_space, spaces.Discrete):
            return self._checked_choices(actions, int(self.action_space.n))
        shape = (self.n_envs, *self.action_space.shape)
        if actions.shape != shape:
            raise DataError(f"actions must have shape {shape}; had {actions.shape}")
        values = actions.astype(np.float64)
        inside = (values >= self.action_space.low) & (values <= self.action_space.high)
        if not inside.all():  # False for NaN too
            env = int(np.flatnonzero(~inside.all(axis=1))[0])
            low, high = self.action_space.low.min(), self.action_space.high.max()
            raise DataError(
                f"actions[{env}] must lie in [{low}, {high}]; was {values[env].tolist()}. "
                "Clip the action to the action space first."
            )
        return values

    def _checked_choices(self, actions: NDArray[Any], count: int) -> IntArray:
        if actions.shape != (self.n_envs,):
            raise DataError(f"actions must have shape {(self.n_envs,)}; had {actions.shape}")
        if not np.issubdtype(actions.dtype, np.integer):
            raise DataError(f"actions must be whole numbers; had type {actions.dtype}")
        if actions.min() < 0 or actions.max() >= count:
            env = int(np.flatnonzero((actions < 0) | (actions >= count))[0])
            raise DataError(f"actions[{env}] must be in 0..{count - 1}; was {actions[env]}")
        return actions.astype(np.int64)


def unbounded_box(size: int) -> spaces.Box:
    """Return the observation space of ``size`` real numbers."""
    return spaces.Box(-np.inf, np.inf, (size,), np.float32)


def columns(*values: FloatArray) -> Float32Array:
    """Put the given [N] arrays side by side as an observation. [N, O]."""
    return np.stack(values, axis=1).astype(np.float32)
