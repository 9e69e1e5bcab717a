"""The hidden regime: a problem that needs memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le, Lt
from numpy.typing import NDArray

from quantail.config_class import config
from quantail.sim.problems.interface import Policy, columns, unbounded_box
from quantail.sim.problems.regime_solver import (
    AverageRule,
    BeliefSolution,
    MemorylessRule,
    best_average,
    best_memoryless,
    clairvoyant_value,
    predicted_log_odds,
    solve_belief,
)
from quantail.sim.problems.trading import (
    POSITION_STEP,
    TradingProblem,
    as_choice,
    as_position,
    proportional_cost,
)
from quantail.types import BoolArray, Float32Array, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class RegimeSolution:
    """The belief-optimal rule and the best rules of simpler kinds."""

    belief: BeliefSolution
    memoryless: MemorylessRule
    average: AverageRule
    clairvoyant: float
    """What an agent that sees the hidden sign would earn."""
    values: dict[str, float]
    base: str = "memoryless"


@config
class HiddenRegime:
    """Returns drift with a hidden sign that flips now and then; only past returns are seen."""

    continuing: ClassVar[bool] = True
    maximizes_mean: ClassVar[bool] = True

    kind: Literal["hidden_regime"] = "hidden_regime"
    drift: Annotated[float, Gt(0), Le(3)] = 0.3
    """Mean return m in the good regime, in units of its noise."""
    flip: Annotated[float, Ge(0.001), Lt(0.5)] = 0.02
    """Probability q that the regime changes in a step."""
    cost: Annotated[float, Ge(0)] = 0.1
    """Cost of changing the position by one unit."""
    reward: Literal["realized", "expected"] = "realized"
    """Pay the position times the return, or times its mean in the present regime."""
    episode_length: Annotated[int, Ge(1)] = 1000

    def build(self, n_envs: int, seed: int, first_env: int = 0) -> "RegimeTrading":
        """Return N instances."""
        return RegimeTrading(self, n_envs, seed, first_env)

    def solve(self) -> RegimeSolution:
        """Return the belief program's solution and the best simpler rules."""
        parameters = (self.drift, self.flip, self.cost)
        belief, memoryless = solve_belief(*parameters), best_memoryless(*parameters)
        average = best_average(*parameters)
        return RegimeSolution(
            belief=belief,
            memoryless=memoryless,
            average=average,
            clairvoyant=clairvoyant_value(*parameters),
            values={
                "optimal": belief.value,
                "memoryless": memoryless.value,
                "average": average.value,
                "flat": 0.0,
            },
        )

    def policies(self) -> Mapping[str, Policy]:
        """Return the belief rule, the best memoryless and averaging rules, and no position."""
        solution = self.solve()
        return {
            "optimal": belief_policy(self.drift, self.flip, solution.belief.flip_belief),
            "memoryless": memoryless_policy(solution.memoryless),
            "average": average_policy(solution.average),
            "flat": Policy.of(lambda observation: np.ones(observation.shape[0], dtype=np.int64)),
        }


class RegimeTrading(TradingProblem):
    """N traders, each in a regime of its own; the observation is (last return, position)."""

    def __init__(self, config: HiddenRegime, n_envs: int, seed: int, first_env: int) -> None:
        super().__init__(
            n_envs=n_envs,
            seed=seed,
            first_env=first_env,
            observation_space=unbounded_box(2),
            action_space=POSITION_STEP,
            episode_length=config.episode_length,
        )
        self._config = config
        self._arrays["sign"] = np.ones(n_envs)
        self._arrays["last_return"] = np.zeros(n_envs)

    def _begin(self, rows: IntArray) -> None:
        self._arrays["position"][rows] = 0.0
        self._arrays["last_return"][rows] = 0.0
        self._arrays["sign"][rows] = np.where(self._noise.uniform(rows) < 0.5, -1.0, 1.0)

    def _advance(self, actions: NDArray[Any]) -> tuple[FloatArray, BoolArray]:
        before, sign = self._arrays["position"], self._arrays["sign"]
        position = as_position(actions)
        mean = self._config.drift * sign
        realized = mean + self._noise.normal()
        paid = realized if self._config.reward == "realized" else mean
        cost = proportional_cost(self._config.cost * self.cost_scale, before, position)
        before[...] = position
        self._arrays["last_return"][...] = realized
        sign[...] = np.where(self._noise.uniform() < self._config.flip, -sign, sign)
        return position * paid - cost, np.zeros(self.n_envs, dtype=np.bool_)

    def _observe(self) -> Float32Array:
        return columns(self._arrays["last_return"], self._arrays["position"])


def belief_policy(drift: float, flip: float, flip_belief: float) -> Policy:
    """Return the rule that filters the sign and trades beyond the flip belief.

    The memory is the log-odds of the sign. A return of 0, as at the start of an episode, says
    nothing and leaves log-odds of 0 at 0.
    """
    threshold = np.log(flip_belief) - np.log1p(-flip_belief) if flip_belief < 1.0 else np.inf

    def act(observation: Float32Array, memory: FloatArray) -> tuple[IntArray, FloatArray]:
        posterior = memory[:, 0] + 2.0 * drift * observation[:, 0]
        log_odds = predicted_log_odds(posterior, flip)
        return _beyond(log_odds, threshold, observation[:, 1]), log_odds[:, None]

    return Policy(act=act, memory_size=1)


def average_policy(rule: AverageRule) -> Policy:
    """Return the rule on an exponential average of returns; the memory is that average."""

    def act(observation: Float32Array, memory: FloatArray) -> tuple[IntArray, FloatArray]:
        average = (1.0 - rule.rate) * memory[:, 0] + rule.rate * observation[:, 0]
        return _beyond(average, rule.threshold, observation[:, 1]), average[:, None]

    return Policy(act=act, memory_size=1)


def memoryless_policy(rule: MemorylessRule) -> Policy:
    """Return the rule on the last return and the own position."""

    def act(observation: Float32Array) -> IntArray:
        held = np.rint(observation[:, 1]).astype(np.int64) + 1
        low = np.array([-rule.to_flat, -rule.enter, rule.to_short])[held]
        high = np.array([-rule.to_short, rule.enter, rule.to_flat])[held]
        last = observation[:, 0]
        return np.where(last > high, 2, np.where(last < low, 0, 1)).astype(np.int64)

    return Policy.of(act)


def _beyond(signal: FloatArray, threshold: float, held: Float32Array) -> IntArray:
    target = np.where(signal > threshold, 1.0, np.where(signal < -threshold, -1.0, held))
    return as_choice(target)
