"""One weight under a CVaR limit: the Gaussian closed form.

With weight w the sum of T returns is N(wμT, w²σ²T), so that its loss CVaR is w(σ√T·k − μT) with
k = pdf(z_α)/α, and the largest weight within the limit c is w* = c/(σ√T·k − μT).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Lt
from gymnasium import spaces
from numpy.typing import NDArray

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem
from quantail.sim.problems.interface import Policy, VectorProblem, columns, unbounded_box
from quantail.sim.problems.laws import normal_cvar_factor
from quantail.types import BoolArray, Float32Array, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class WeightSolution:
    """The best constant weight."""

    weight: float
    cvar_per_weight: float
    """CVaR of the total at weight 1; it is proportional to the weight."""
    values: dict[str, float]
    base: str = "flat"


def largest_weight(mean: float, sd: float, n_steps: int, alpha: float, loss_limit: float) -> float:
    """Return w* = c/(σ√T·k − μT), or infinity when the tail itself is a gain."""
    loss = sd * math.sqrt(n_steps) * normal_cvar_factor(alpha) - mean * n_steps
    return loss_limit / loss if loss > 0.0 else math.inf


@config
class GaussianWeight:
    """Hold a constant weight in a Gaussian asset with the loss CVaR of the total below a limit.

    The answer is that of constant weights; a rule that looks at its own wealth may do better.
    """

    continuing: ClassVar[bool] = False
    maximizes_mean: ClassVar[bool] = False

    kind: Literal["gaussian_weight"] = "gaussian_weight"
    mean: Annotated[float, Gt(0)] = 0.0005
    """Mean return of a step."""
    sd: Annotated[float, Gt(0)] = 0.01
    """Standard deviation of a step's return."""
    n_steps: Annotated[int, Ge(1)] = 250
    alpha: Annotated[float, Gt(0), Lt(1)] = 0.05
    """Share of the episodes in the tail."""
    loss_limit: Annotated[float, Gt(0)] = 0.15
    """Largest loss CVaR of the total."""
    max_weight: Annotated[float, Gt(0)] = 2.0
    """Weight of action 1."""

    def check(self) -> None:
        """Refuse a limit that never binds."""
        free = largest_weight(self.mean, self.sd, self.n_steps, self.alpha, self.loss_limit)
        if free > self.max_weight:
            raise ConfigError(
                [
                    ConfigProblem(
                        "loss_limit",
                        f"must bind below max_weight = {self.max_weight:g}; at {self.loss_limit:g} "
                        f"the largest weight is {free:g}. Lower it, or raise max_weight.",
                    )
                ]
            )

    def build(self, n_envs: int, seed: int, first_env: int = 0) -> "WeightProblem":
        """Return N instances."""
        return WeightProblem(self, n_envs, seed, first_env)

    def solve(self) -> WeightSolution:
        """Return the closed form."""
        weight = largest_weight(self.mean, self.sd, self.n_steps, self.alpha, self.loss_limit)
        total = self.mean * self.n_steps
        return WeightSolution(
            weight=weight,
            cvar_per_weight=-self.loss_limit / weight,
            values={"optimal": weight * total, "full": self.max_weight * total, "flat": 0.0},
        )

    def policies(self) -> Mapping[str, Policy]:
        """Return the best constant weight, the largest weight, and none."""

        def constant(action: float) -> Policy:
            return Policy.of(lambda observation: np.full((observation.shape[0], 1), action))

        return {
            "optimal": constant(self.solve().weight / self.max_weight),
            "full": constant(1.0),
            "flat": constant(0.0),
        }


class WeightProblem(VectorProblem):
    """N holders; the observation is (time used, total return so far over the loss limit)."""

    def __init__(self, config: GaussianWeight, n_envs: int, seed: int, first_env: int) -> None:
        super().__init__(
            n_envs=n_envs,
            seed=seed,
            first_env=first_env,
            observation_space=unbounded_box(2),
            action_space=spaces.Box(0.0, 1.0, (1,), np.float32),
            episode_length=None,
        )
        self._config = config
        self._arrays["total"] = np.zeros(n_envs)

    def _begin(self, rows: IntArray) -> None:
        self._arrays["total"][rows] = 0.0

    def _advance(self, actions: NDArray[Any]) -> tuple[FloatArray, BoolArray]:
        c = self._config
        reward = actions[:, 0] * c.max_weight * (c.mean + c.sd * self._noise.normal())
        self._arrays["total"] += reward
        return reward, self._arrays["time"] == c.n_steps - 1

    def _observe(self) -> Float32Array:
        c = self._config
        return columns(self._arrays["time"] / c.n_steps, self._arrays["total"] / c.loss_limit)
