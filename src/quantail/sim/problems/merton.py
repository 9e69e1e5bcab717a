"""Merton's problem: set the fraction of wealth in a risky asset, once a step."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt
from gymnasium import spaces
from numpy.typing import NDArray

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem
from quantail.sim.problems.interface import Policy, columns, unbounded_box
from quantail.sim.problems.merton_solver import (
    Investor,
    band_value,
    continuous_solution,
    free_fraction,
    rebalancing_cost,
    solve_fraction_band,
)
from quantail.sim.problems.trading import TradingProblem, proportional_cost
from quantail.types import BoolArray, Float32Array, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class MertonSolution:
    """The best fraction or band, for steps of the given length, and the continuous one."""

    fraction: float
    """Best fraction when it is set once a step, without cost."""
    band: tuple[float, float]
    """Edges between which it is best not to trade; both are ``fraction`` without cost."""
    rate: float
    """Certainty-equivalent rate a year of the optimum."""
    continuous_fraction: float
    continuous_rate: float
    """Without cost and with trading all the time."""
    values: dict[str, float]
    base: str


@config
class Merton:
    """Set the fraction of wealth in a risky asset, once a step, against CRRA utility."""

    continuing: ClassVar[bool] = True
    maximizes_mean: ClassVar[bool] = True

    kind: Literal["merton"] = "merton"
    mean: float = 0.08
    """Drift of the risky asset a year."""
    riskless: float = 0.02
    """Riskless rate a year."""
    volatility: Annotated[float, Gt(0)] = 0.2
    """Of the risky asset, a year."""
    risk_aversion: Annotated[float, Gt(0)] = 1.0
    cost: Annotated[float, Ge(0)] = 0.0
    """Cost of changing the fraction by one, in units of utility (a share of wealth)."""
    steps_per_year: Annotated[int, Ge(1)] = 252
    max_fraction: Annotated[float, Gt(0)] = 3.0
    """Fraction of action 1; action -1 is the same fraction short."""
    episode_length: Annotated[int, Ge(1)] = 1000

    def check(self) -> None:
        """Refuse positions that could lose everything in a step, and an optimum out of reach."""
        both = np.array([self.max_fraction, -self.max_fraction])
        if self.investor.growth(both, np.array([-10.0, 10.0])).min() <= 0.0:
            raise ConfigError(
                [
                    ConfigProblem(
                        "max_fraction",
                        "must leave some wealth after a move of ten standard deviations; was "
                        f"{self.max_fraction:g}. Lower it, or raise steps_per_year.",
                    )
                ]
            )
        target, _ = self._continuous()
        if abs(target) >= self.max_fraction:
            message = f"must exceed the optimum {abs(target):g}; was {self.max_fraction:g}"
            raise ConfigError([ConfigProblem("max_fraction", message)])

    @property
    def investor(self) -> Investor:
        """The parameters in the form that the solver reads."""
        return Investor(
            mean=self.mean,
            riskless=self.riskless,
            volatility=self.volatility,
            risk_aversion=self.risk_aversion,
            step=1.0 / self.steps_per_year,
            cost=self.cost,
        )

    def build(self, n_envs: int, seed: int, first_env: int = 0) -> "MertonProblem":
        """Return N instances."""
        return MertonProblem(self, n_envs, seed, first_env)

    def solve(self) -> MertonSolution:
        """Return the optimum for steps of this length and the closed form of continuous time."""
        investor = self.investor
        fraction = free_fraction(investor, self.max_fraction)
        edges, best = (fraction, fraction), investor.mean_utility(fraction)
        simple = {"all_in": investor.mean_utility(1.0), "cash": investor.mean_utility(0.0)}
        if self.cost > 0.0:
            turnover = rebalancing_cost(investor, fraction)
            simple["rebalance"] = best - self.cost * turnover
            band = solve_fraction_band(investor, self.max_fraction)
            edges, best = (band.lower, band.upper), band_value(investor, band)
        continuous = self._continuous()
        return MertonSolution(
            fraction=fraction,
            band=edges,
            rate=investor.certainty_rate(best),
            continuous_fraction=continuous[0],
            continuous_rate=continuous[1],
            values={"optimal": best} | simple,
            base=max(simple, key=lambda name: simple[name]),
        )

    def policies(self) -> Mapping[str, Policy]:
        """Return the best band, everything in the asset, nothing in it, and (with cost) no band."""
        solution = self.solve()
        found = {
            "optimal": self._within(*solution.band),
            "all_in": self._within(1.0, 1.0),
            "cash": self._within(0.0, 0.0),
        }
        if self.cost > 0.0:
            found["rebalance"] = self._within(solution.fraction, solution.fraction)
        return found

    def _within(self, low: float, high: float) -> Policy:
        def act(observation: Float32Array) -> FloatArray:
            held = observation[:, 0].astype(np.float64)
            return np.clip(held, low / self.max_fraction, high / self.max_fraction)[:, None]

        return Policy.of(act)

    def _continuous(self) -> tuple[float, float]:
        return continuous_solution(self.mean, self.riskless, self.volatility, self.risk_aversion)


class MertonProblem(TradingProblem):
    """N investors; the observation is (fraction held over the largest, last shock to the price).

    The fraction moves with the price between two steps. It may leave the range of the actions, and
    then has to come back.
    """

    def __init__(self, config: Merton, n_envs: int, seed: int, first_env: int) -> None:
        super().__init__(
            n_envs=n_envs,
            seed=seed,
            first_env=first_env,
            observation_space=unbounded_box(2),
            action_space=spaces.Box(-1.0, 1.0, (1,), np.float32),
            episode_length=config.episode_length,
        )
        self._config = config
        self._investor = config.investor
        self._arrays["shock"] = np.zeros(n_envs)

    def _begin(self, rows: IntArray) -> None:
        self._arrays["position"][rows] = 0.0
        self._arrays["shock"][rows] = 0.0

    def _advance(self, actions: NDArray[Any]) -> tuple[FloatArray, BoolArray]:
        shock = self._noise.normal()
        held = self._arrays["position"]
        fraction = actions[:, 0] * self._config.max_fraction
        growth = self._investor.growth(fraction, shock)
        reward = self._investor.utility(growth)
        reward -= proportional_cost(self._config.cost * self.cost_scale, held, fraction)
        held[...] = fraction * self._investor.prices(shock) / growth
        self._arrays["shock"][...] = shock
        return reward, np.zeros(self.n_envs, dtype=np.bool_)

    def _observe(self) -> Float32Array:
        held = self._arrays["position"] / self._config.max_fraction
        return columns(held, self._arrays["shock"])
