"""Merton's problem: how much of one's wealth to hold in a risky asset.

For CRRA utility with risk aversion γ and continuous trading the best fraction is
π* = (μ − r)/(γσ²) and its certainty-equivalent rate is r + (μ − r)²/(2γσ²). Here the fraction is
set once a step, so the gross return of a step is

    G(π) = e^{r·dt} + π(S − e^{r·dt}),   S = exp((μ − σ²/2)dt + σ√dt·z),

and the reward is its utility u(G) = (G^{1−γ} − 1)/(1 − γ), or log G for γ = 1. Returns are
independent, so the fraction that is best for one step is best for the utility of final wealth too.
"""

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
from quantail.sim.problems.interface import Policy, VectorProblem, columns, unbounded_box
from quantail.types import BoolArray, Float32Array, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class MertonSolution:
    """The best fraction, for steps of the given length and in continuous time."""

    fraction: float
    """Best fraction when it is set once a step."""
    rate: float
    """Its certainty-equivalent rate a year."""
    continuous_fraction: float
    continuous_rate: float
    values: dict[str, float]
    base: str = "cash"


def continuous_solution(
    mean: float, riskless: float, volatility: float, risk_aversion: float
) -> tuple[float, float]:
    """Return π* = (μ − r)/(γσ²) and the rate r + (μ − r)²/(2γσ²)."""
    excess, variance = mean - riskless, volatility**2
    return (
        excess / (risk_aversion * variance),
        riskless + excess**2 / (2.0 * risk_aversion * variance),
    )


def utility(growth: FloatArray, risk_aversion: float) -> FloatArray:
    """Return the CRRA utility of gross returns, zero at 1. [n]."""
    if risk_aversion == 1.0:
        return np.log(growth)
    power = 1.0 - risk_aversion
    return np.expm1(power * np.log(growth)) / power


def certainty_rate(mean_utility: float, risk_aversion: float, step: float) -> float:
    """Return the riskless rate a year whose step has the same utility."""
    if risk_aversion == 1.0:
        return mean_utility / step
    power = 1.0 - risk_aversion
    return math.log1p(power * mean_utility) / (power * step)


@config
class Merton:
    """Set the fraction of wealth in a risky asset, once a step."""

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
    steps_per_year: Annotated[int, Ge(1)] = 252
    max_fraction: Annotated[float, Gt(0)] = 3.0
    """Fraction of action 1; action -1 is the same fraction short."""
    episode_length: Annotated[int, Ge(1)] = 1000

    def check(self) -> None:
        """Refuse positions that could lose everything in a step, and an optimum out of reach."""
        worst = self._gross(
            np.array([self.max_fraction, -self.max_fraction]), np.array([-10.0, 10.0])
        )
        if worst.min() <= 0.0:
            raise ConfigError(
                [
                    ConfigProblem(
                        "max_fraction",
                        "must leave some wealth after a move of ten standard deviations; was "
                        f"{self.max_fraction:g}. Lower it, or raise steps_per_year.",
                    )
                ]
            )
        target, _ = continuous_solution(
            self.mean, self.riskless, self.volatility, self.risk_aversion
        )
        if abs(target) >= self.max_fraction:
            message = f"must exceed the optimum {abs(target):g}; was {self.max_fraction:g}"
            raise ConfigError([ConfigProblem("max_fraction", message)])

    def build(self, n_envs: int, seed: int, first_env: int = 0) -> "MertonProblem":
        """Return N instances."""
        return MertonProblem(self, n_envs, seed, first_env)

    def solve(self) -> MertonSolution:
        """Return the optimum for steps of this length, by quadrature, and the continuous one."""
        low, high = -self.max_fraction, self.max_fraction
        while high - low > 1e-12:
            # the mean utility is concave in the fraction: bisect on its slope
            middle = 0.5 * (low + high)
            if self._slope(middle) > 0.0:
                low = middle
            else:
                high = middle
        fraction = 0.5 * (low + high)
        continuous = continuous_solution(
            self.mean, self.riskless, self.volatility, self.risk_aversion
        )
        values = {
            "optimal": self.mean_utility(fraction),
            "all_in": self.mean_utility(1.0),
            "cash": self.mean_utility(0.0),
        }
        return MertonSolution(
            fraction=fraction,
            rate=certainty_rate(values["optimal"], self.risk_aversion, 1.0 / self.steps_per_year),
            continuous_fraction=continuous[0],
            continuous_rate=continuous[1],
            values=values,
        )

    def policies(self) -> Mapping[str, Policy]:
        """Return the best constant fraction, everything in the asset, and nothing in it."""

        def constant(fraction: float) -> Policy:
            action = fraction / self.max_fraction
            return Policy.of(lambda observation: np.full((observation.shape[0], 1), action))

        return {
            "optimal": constant(self.solve().fraction),
            "all_in": constant(1.0),
            "cash": constant(0.0),
        }

    def mean_utility(self, fraction: float) -> float:
        """Return E[u(G)] of a step, by Gauss-Hermite quadrature."""
        z, weight = np.polynomial.hermite_e.hermegauss(41)
        growth = self._gross(np.full_like(z, fraction), z)
        return float(weight @ utility(growth, self.risk_aversion)) / math.sqrt(2.0 * math.pi)

    def _slope(self, fraction: float) -> float:
        z, weight = np.polynomial.hermite_e.hermegauss(41)
        growth = self._gross(np.full_like(z, fraction), z)
        excess = self._gross(np.ones_like(z), z) - self._gross(np.zeros_like(z), z)
        return float(weight @ (growth**-self.risk_aversion * excess))

    def _gross(self, fraction: FloatArray, z: FloatArray) -> FloatArray:
        """Return the gross return of a step. [n], [n] -> [n]."""
        step = 1.0 / self.steps_per_year
        riskless = math.exp(self.riskless * step)
        log_price = (self.mean - 0.5 * self.volatility**2) * step
        price = np.exp(log_price + self.volatility * math.sqrt(step) * z)
        return riskless + fraction * (price - riskless)


class MertonProblem(VectorProblem):
    """N investors; the observation is the last shock to the price, which says nothing."""

    def __init__(self, config: Merton, n_envs: int, seed: int, first_env: int) -> None:
        super().__init__(
            n_envs=n_envs,
            seed=seed,
            first_env=first_env,
            observation_space=unbounded_box(1),
            action_space=spaces.Box(-1.0, 1.0, (1,), np.float32),
            episode_length=config.episode_length,
        )
        self._config = config
        self._arrays["shock"] = np.zeros(n_envs)

    def _begin(self, rows: IntArray) -> None:
        self._arrays["shock"][rows] = 0.0

    def _advance(self, actions: NDArray[Any]) -> tuple[FloatArray, BoolArray]:
        shock = self._noise.normal()
        growth = self._config._gross(actions[:, 0] * self._config.max_fraction, shock)
        self._arrays["shock"][...] = shock
        reward = utility(growth, self._config.risk_aversion)
        return reward, np.zeros(self.n_envs, dtype=np.bool_)

    def _observe(self) -> Float32Array:
        return columns(self._arrays["shock"])
