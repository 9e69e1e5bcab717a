"""Optimal execution: sell a block of shares in a few trades."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt
from gymnasium import spaces
from numpy.typing import NDArray

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem
from quantail.sim.problems.execution_solver import (
    Impact,
    Schedule,
    decay_rate,
    even_schedule,
    immediate_schedule,
    optimal_schedule,
)
from quantail.sim.problems.interface import Policy, VectorProblem, columns, unbounded_box
from quantail.types import BoolArray, Float32Array, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class ExecutionSolution:
    """The best plan and two simple ones."""

    decay_rate: float
    """κ."""
    schedules: dict[str, Schedule]
    values: dict[str, float]
    """Minus the objective of each plan, in units of reward."""
    base: str = "even"


@config
class OptimalExecution:
    """Sell a block of shares: impact against the risk of waiting (Almgren and Chriss)."""

    continuing: ClassVar[bool] = False
    maximizes_mean: ClassVar[bool] = True

    kind: Literal["optimal_execution"] = "optimal_execution"
    shares: Annotated[float, Gt(0)] = 1e6
    n_trades: Annotated[int, Ge(2)] = 5
    interval: Annotated[float, Gt(0)] = 1.0
    """Time between two trades."""
    volatility: Annotated[float, Ge(0)] = 0.95
    """Of the price, in money per square root of time."""
    temporary: Annotated[float, Gt(0)] = 2.5e-6
    """Temporary impact eta."""
    permanent: Annotated[float, Ge(0)] = 2.5e-7
    """Permanent impact gamma."""
    half_spread: Annotated[float, Ge(0)] = 0.0625
    """Fixed cost of a share."""
    risk_aversion: Annotated[float, Ge(0)] = 1e-6
    """Weight lambda of the variance of the cost."""
    reward: Literal["expected", "realized"] = "expected"
    """Pay the expected cost, or add what the price did meanwhile. The risk charge is in both."""
    reward_unit: Annotated[float, Gt(0)] = 1e6
    """Money that makes a reward of one."""

    def check(self) -> None:
        """Refuse a market in which the closed form does not hold."""
        if self.temporary <= 0.5 * self.permanent * self.interval:
            raise ConfigError(
                [
                    ConfigProblem(
                        "temporary",
                        "must exceed permanent * interval / 2 = "
                        f"{0.5 * self.permanent * self.interval:g}; was {self.temporary:g}",
                    )
                ]
            )
        if self.reward == "realized" and self.volatility == 0.0:
            message = 'must be "expected" when volatility is 0; was "realized"'
            raise ConfigError([ConfigProblem("reward", message)])

    @property
    def impact(self) -> Impact:
        """The parameters in the form that the solver reads."""
        return Impact(
            shares=self.shares,
            n_trades=self.n_trades,
            interval=self.interval,
            volatility=self.volatility,
            temporary=self.temporary,
            permanent=self.permanent,
            half_spread=self.half_spread,
            risk_aversion=self.risk_aversion,
        )

    def build(self, n_envs: int, seed: int, first_env: int = 0) -> "ExecutionProblem":
        """Return N instances."""
        return ExecutionProblem(self, n_envs, seed, first_env)

    def solve(self) -> ExecutionSolution:
        """Return the closed form."""
        schedules = {
            "optimal": optimal_schedule(self.impact),
            "even": even_schedule(self.impact),
            "immediate": immediate_schedule(self.impact),
        }
        return ExecutionSolution(
            decay_rate=decay_rate(self.impact),
            schedules=schedules,
            values={name: -s.objective / self.reward_unit for name, s in schedules.items()},
        )

    def policies(self) -> Mapping[str, Policy]:
        """Return the best plan, equal trades, and everything at once."""
        return {name: self._follow(plan) for name, plan in self.solve().schedules.items()}

    def _follow(self, schedule: Schedule) -> Policy:
        fractions = np.clip(schedule.fractions, 0.0, 1.0)

        def act(observation: Float32Array) -> FloatArray:
            trade = np.rint(observation[:, 0] * self.n_trades).astype(np.int64)
            chosen: FloatArray = fractions[trade][:, None]
            return chosen

        return Policy.of(act)


class ExecutionProblem(VectorProblem):
    """N sellers; the observation is (time used, shares left), both as fractions.

    The action is the fraction of the remainder to sell; the last trade sells all that is left.
    """

    def __init__(self, config: OptimalExecution, n_envs: int, seed: int, first_env: int) -> None:
        super().__init__(
            n_envs=n_envs,
            seed=seed,
            first_env=first_env,
            observation_space=unbounded_box(2),
            action_space=spaces.Box(0.0, 1.0, (1,), np.float32),
            episode_length=None,
        )
        self._config = config
        self._arrays["holdings"] = np.zeros(n_envs)

    def _begin(self, rows: IntArray) -> None:
        self._arrays["holdings"][rows] = self._config.shares

    def _advance(self, actions: NDArray[Any]) -> tuple[FloatArray, BoolArray]:
        c, holdings = self._config, self._arrays["holdings"]
        is_last = self._arrays["time"] == c.n_trades - 1
        sold = np.where(is_last, holdings, actions[:, 0] * holdings)
        left = holdings - sold
        cost = c.permanent * left * sold + c.half_spread * sold
        cost += c.temporary * sold * sold / c.interval
        cost += c.risk_aversion * c.volatility**2 * c.interval * left * left
        if c.reward == "realized":
            cost -= c.volatility * math.sqrt(c.interval) * left * self._noise.normal()
        holdings[...] = left
        return -cost / c.reward_unit, is_last

    def _observe(self) -> Float32Array:
        return columns(
            self._arrays["time"] / self._config.n_trades,
            self._arrays["holdings"] / self._config.shares,
        )
