"""Three small problems: a T-maze (memory), a one-state chain (critic), a distractor bandit."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Lt
from gymnasium import spaces
from numpy.typing import NDArray

from quantail.config_class import config
from quantail.sim.problems.interface import Policy, VectorProblem, columns, unbounded_box
from quantail.sim.problems.laws import normal_cvar_factor
from quantail.sim.problems.noise import NoiseStreams
from quantail.types import BoolArray, Float32Array, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class ChoiceSolution:
    """Mean reward of an episode of each rule."""

    values: dict[str, float]
    base: str


@config
class TMaze:
    """A cue at the start of a corridor tells which way to turn at its end."""

    continuing: ClassVar[bool] = False
    maximizes_mean: ClassVar[bool] = True

    kind: Literal["t_maze"] = "t_maze"
    length: Annotated[int, Ge(1)] = 10
    """Steps between the cue and the junction."""

    def build(self, n_envs: int, seed: int, first_env: int = 0) -> "TMazeProblem":
        """Return N instances."""
        return TMazeProblem(self, n_envs, seed, first_env)

    def solve(self) -> ChoiceSolution:
        """Return 1 with memory, 1/2 without."""
        return ChoiceSolution(values={"optimal": 1.0, "memoryless": 0.5}, base="memoryless")

    def policies(self) -> Mapping[str, Policy]:
        """Return the rule that remembers the cue, and one that always turns the same way."""

        def remember(observation: Float32Array, memory: FloatArray) -> tuple[IntArray, FloatArray]:
            cue = memory[:, 0] + observation[:, 0]
            return (cue > 0.0).astype(np.int64), cue[:, None]

        return {
            "optimal": Policy(act=remember, memory_size=1),
            "memoryless": Policy.of(lambda seen: np.ones(seen.shape[0], dtype=np.int64)),
        }


class TMazeProblem(VectorProblem):
    """N mazes; the observation is (cue at the start, else 0; 1 at the junction, else 0).

    The walk down the corridor is automatic. At the junction action 1 matches cue +1 and action 0
    cue -1; a match is paid 1, and the episode ends.
    """

    def __init__(self, config: TMaze, n_envs: int, seed: int, first_env: int) -> None:
        super().__init__(
            n_envs=n_envs,
            seed=seed,
            first_env=first_env,
            observation_space=spaces.Box(-1.0, 1.0, (2,), np.float32),
            action_space=spaces.Discrete(2),
            episode_length=None,
        )
        self._length = config.length
        self._arrays["cue"] = np.ones(n_envs)

    def _begin(self, rows: IntArray) -> None:
        self._arrays["cue"][rows] = np.where(self._noise.uniform(rows) < 0.5, -1.0, 1.0)

    def _advance(self, actions: NDArray[Any]) -> tuple[FloatArray, BoolArray]:
        at_junction = self._arrays["time"] == self._length
        is_match = (2.0 * actions - 1.0) == self._arrays["cue"]
        return (at_junction & is_match).astype(np.float64), at_junction

    def _observe(self) -> Float32Array:
        time = self._arrays["time"]
        return columns(
            np.where(time == 0, self._arrays["cue"], 0.0),
            (time == self._length).astype(np.float64),
        )


@dataclass(frozen=True, slots=True)
class ReturnLaw:
    """The law of the discounted return, N(mean, sd²)."""

    mean: float
    sd: float
    values: dict[str, float]
    base: str = "first"

    def cvar(self, alpha: float) -> float:
        """Return the mean of the worst share alpha."""
        return self.mean - normal_cvar_factor(alpha) * self.sd


@config
class OneStateChain:
    """Independent normal rewards for ever; the law of the return is known, actions do nothing."""

    continuing: ClassVar[bool] = True
    maximizes_mean: ClassVar[bool] = True

    kind: Literal["one_state_chain"] = "one_state_chain"
    mean: float = 0.0
    """Mean reward."""
    sd: Annotated[float, Gt(0)] = 1.0
    """Standard deviation of a reward."""
    discount: Annotated[float, Ge(0), Lt(1)] = 0.95
    """Discount of the return whose law is asked for."""
    episode_length: Annotated[int, Ge(1)] = 128

    def build(self, n_envs: int, seed: int, first_env: int = 0) -> "OneStateProblem":
        """Return N instances."""
        return OneStateProblem(self, n_envs, seed, first_env)

    def solve(self) -> ReturnLaw:
        """Return the law of Σ γ^t r_t: N(mean/(1 − γ), sd²/(1 − γ²))."""
        return ReturnLaw(
            mean=self.mean / (1.0 - self.discount),
            sd=self.sd / math.sqrt(1.0 - self.discount**2),
            values={"optimal": self.mean, "first": self.mean},
        )

    def scalar_target_ratio(self, gae_lambda: float) -> float:
        """Return sd(λ-return)/sd(return) = √((1 − γ²)/(1 − γ²λ²)).

        The scalar λ-return replaces the random tail by its mean, so a critic fitted to it is this
        much too narrow.
        """
        return math.sqrt((1.0 - self.discount**2) / (1.0 - (self.discount * gae_lambda) ** 2))

    def policies(self) -> Mapping[str, Policy]:
        """Return the rules that always take one action; they earn the same."""

        def always(choice: int) -> Policy:
            return Policy.of(lambda observation: np.full(observation.shape[0], choice))

        return {"optimal": always(1), "first": always(0)}


class OneStateProblem(VectorProblem):
    """N chains; the observation is a constant 1."""

    def __init__(self, config: OneStateChain, n_envs: int, seed: int, first_env: int) -> None:
        super().__init__(
            n_envs=n_envs,
            seed=seed,
            first_env=first_env,
            observation_space=spaces.Box(1.0, 1.0, (1,), np.float32),
            action_space=spaces.Discrete(2),
            episode_length=config.episode_length,
        )
        self._config = config

    def _begin(self, rows: IntArray) -> None:
        pass  # the only state is the time

    def _advance(self, actions: NDArray[Any]) -> tuple[FloatArray, BoolArray]:
        reward = self._config.mean + self._config.sd * self._noise.normal()
        return reward, np.zeros(self.n_envs, dtype=np.bool_)

    def _observe(self) -> Float32Array:
        return np.ones((self.n_envs, 1), dtype=np.float32)


@config
class DistractorBandit:
    """One step: the answer is the sign of the first number, all others are noise.

    With few contexts a policy picks up the noise and can be fooled by small changes of the
    observation; the rule that reads the first number alone is right under any change below 1.
    """

    continuing: ClassVar[bool] = False
    maximizes_mean: ClassVar[bool] = True

    kind: Literal["distractor_bandit"] = "distractor_bandit"
    n_dimensions: Annotated[int, Ge(2)] = 50
    n_contexts: Annotated[int, Ge(1)] = 128
    """Contexts in the pool; episodes draw from it."""
    context_seed: Annotated[int, Ge(0)] = 0
    """Makes the pool; take another one for a test."""

    def contexts(self) -> Float32Array:
        """Return the pool. [contexts, dimensions]."""
        noise = NoiseStreams(self.n_contexts, self.context_seed)
        sign = np.where(noise.uniform() < 0.5, -1.0, 1.0)
        return columns(sign, *(noise.normal() for _ in range(self.n_dimensions - 1)))

    def build(self, n_envs: int, seed: int, first_env: int = 0) -> "BanditProblem":
        """Return N instances."""
        return BanditProblem(self, n_envs, seed, first_env)

    def solve(self) -> ChoiceSolution:
        """Return 1, and the share of the pool that one fixed action gets right."""
        share = float((self.contexts()[:, 0] > 0.0).mean())
        return ChoiceSolution(values={"optimal": 1.0, "always_1": share}, base="always_1")

    def policies(self) -> Mapping[str, Policy]:
        """Return the sign of the first number, and a fixed action."""
        return {
            "optimal": Policy.of(lambda seen: (seen[:, 0] > 0.0).astype(np.int64)),
            "always_1": Policy.of(lambda seen: np.ones(seen.shape[0], dtype=np.int64)),
        }


class BanditProblem(VectorProblem):
    """N bandits; the observation is the context; action 1 answers +1, action 0 answers -1."""

    def __init__(self, config: DistractorBandit, n_envs: int, seed: int, first_env: int) -> None:
        super().__init__(
            n_envs=n_envs,
            seed=seed,
            first_env=first_env,
            observation_space=unbounded_box(config.n_dimensions),
            action_space=spaces.Discrete(2),
            episode_length=None,
        )
        self._contexts = config.contexts()
        self._arrays["context"] = np.zeros(n_envs, dtype=np.int64)

    def _begin(self, rows: IntArray) -> None:
        drawn = self._noise.uniform(rows) * self._contexts.shape[0]
        self._arrays["context"][rows] = drawn.astype(np.int64)

    def _advance(self, actions: NDArray[Any]) -> tuple[FloatArray, BoolArray]:
        answer = self._contexts[self._arrays["context"], 0] > 0.0
        return (actions == answer).astype(np.float64), np.ones(self.n_envs, dtype=np.bool_)

    def _observe(self) -> Float32Array:
        seen: Float32Array = self._contexts[self._arrays["context"]]
        return seen
