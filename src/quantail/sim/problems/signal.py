"""Trading on an observed signal: quadratic cost, proportional cost, band, positive control.

One market for four problems. The signal is an AR(1) with sd 1; the agent sees (signal, its position
as a share of the limit), sets the position x and is paid

    x·signal − (risk/2)·x² − cost·|dx| − (quadratic_cost/2)·dx²  (+ x·noise for realized profit).
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le
from gymnasium import spaces
from numpy.typing import NDArray

from quantail.config_class import config
from quantail.sim.problems.band_solver import (
    BandSolution,
    ThresholdSolution,
    solve_band,
    solve_threshold,
)
from quantail.sim.problems.interface import Policy, columns, unbounded_box
from quantail.sim.problems.quadratic_solver import LinearRule, QuadraticSolution, solve_quadratic
from quantail.sim.problems.trading import (
    POSITION_STEP,
    TradingProblem,
    as_choice,
    as_position,
    proportional_cost,
)
from quantail.types import BoolArray, Float32Array, FloatArray, IntArray

Phi = Annotated[float, Ge(0.005), Le(1.0)]


class SignalTrading(TradingProblem):
    """N traders of an observed signal."""

    def __init__(
        self,
        *,
        phi: float,
        risk: float,
        cost: float,
        quadratic_cost: float,
        return_noise: float,
        position_limit: float,
        has_levels: bool,
        n_envs: int,
        seed: int,
        first_env: int,
        episode_length: int,
    ) -> None:
        super().__init__(
            n_envs=n_envs,
            seed=seed,
            first_env=first_env,
            observation_space=unbounded_box(2),
            action_space=POSITION_STEP if has_levels else spaces.Box(-1.0, 1.0, (1,), np.float32),
            episode_length=episode_length,
        )
        self._persistence = 1.0 - phi
        self._innovation = math.sqrt(1.0 - (1.0 - phi) ** 2)
        self._risk = risk
        self._cost = cost
        self._quadratic_cost = quadratic_cost
        self._return_noise = return_noise
        self._position_limit = position_limit
        self._arrays["signal"] = np.zeros(n_envs)

    def _begin(self, rows: IntArray) -> None:
        self._arrays["position"][rows] = 0.0
        self._arrays["signal"][rows] = self._noise.normal(rows)

    def _advance(self, actions: NDArray[Any]) -> tuple[FloatArray, BoolArray]:
        before, signal = self._arrays["position"], self._arrays["signal"]
        if isinstance(self.action_space, spaces.Discrete):
            position = as_position(actions) * self._position_limit
        else:
            position = actions[:, 0] * self._position_limit
        change = position - before
        reward = position * signal - 0.5 * self._risk * position * position
        reward -= proportional_cost(self._cost * self.cost_scale, before, position)
        reward -= 0.5 * self._quadratic_cost * self.cost_scale * change * change
        if self._return_noise > 0.0:
            reward += position * self._return_noise * self._noise.normal()
        self._arrays["position"][...] = position
        signal[...] = self._persistence * signal + self._innovation * self._noise.normal()
        return reward, np.zeros(self.n_envs, dtype=np.bool_)

    def _observe(self) -> Float32Array:
        return columns(self._arrays["signal"], self._arrays["position"] / self._position_limit)


@config
class QuadraticCost:
    """Quadratic trading cost and risk: the problem of Garleanu and Pedersen."""

    continuing: ClassVar[bool] = True
    maximizes_mean: ClassVar[bool] = True

    kind: Literal["quadratic_cost"] = "quadratic_cost"
    phi: Phi = 0.1
    """Speed at which the signal returns to zero."""
    risk: Annotated[float, Gt(0)] = 1.0
    """Risk aversion gamma."""
    quadratic_cost: Annotated[float, Ge(0)] = 4.0
    """Cost coefficient lambda."""
    return_noise: Annotated[float, Ge(0)] = 0.0
    """Noise of the paid return; 0 pays expected profit, a positive value realized profit."""
    position_limit: Annotated[float, Ge(3)] = 5.0
    """Position of action 1, in units of the free optimum 1/risk for a signal of one sd."""
    episode_length: Annotated[int, Ge(1)] = 1000

    @property
    def limit(self) -> float:
        """The largest position."""
        return self.position_limit / self.risk

    def build(self, n_envs: int, seed: int, first_env: int = 0) -> SignalTrading:
        """Return N instances."""
        return SignalTrading(
            phi=self.phi,
            risk=self.risk,
            cost=0.0,
            quadratic_cost=self.quadratic_cost,
            return_noise=self.return_noise,
            position_limit=self.limit,
            has_levels=False,
            n_envs=n_envs,
            seed=seed,
            first_env=first_env,
            episode_length=self.episode_length,
        )

    def solve(self) -> QuadraticSolution:
        """Return the closed form."""
        return solve_quadratic(self.phi, self.risk, self.quadratic_cost)

    def policies(self) -> Mapping[str, Policy]:
        """Return the optimal rule and the myopic, scaled and plain Markowitz rules."""
        return {name: _linear_policy(rule, self.limit) for name, rule in self.solve().rules.items()}


@config
class ProportionalCost:
    """Proportional cost, |position| at most 1, no risk term: trade beyond a threshold."""

    continuing: ClassVar[bool] = True
    maximizes_mean: ClassVar[bool] = True

    kind: Literal["proportional_cost"] = "proportional_cost"
    phi: Phi = 0.1
    """Speed at which the signal returns to zero."""
    cost: Annotated[float, Ge(0)] = 0.5
    """Cost of changing the position by one unit."""
    return_noise: Annotated[float, Ge(0)] = 0.0
    """Noise of the paid return; 0 pays expected profit, a positive value realized profit."""
    actions: Literal["continuous", "levels"] = "continuous"
    """Any position in [-1, 1], or the three levels -1, 0, 1. The optimum is the same."""
    episode_length: Annotated[int, Ge(1)] = 1000

    def build(self, n_envs: int, seed: int, first_env: int = 0) -> SignalTrading:
        """Return N instances."""
        return SignalTrading(
            phi=self.phi,
            risk=0.0,
            cost=self.cost,
            quadratic_cost=0.0,
            return_noise=self.return_noise,
            position_limit=1.0,
            has_levels=self.actions == "levels",
            n_envs=n_envs,
            seed=seed,
            first_env=first_env,
            episode_length=self.episode_length,
        )

    def solve(self) -> ThresholdSolution:
        """Return the free-boundary solution."""
        return solve_threshold(self.phi, self.cost)

    def policies(self) -> Mapping[str, Policy]:
        """Return the threshold rule, the sign of the signal, and no position at all."""
        return _threshold_policies(self.solve().threshold, self.actions == "levels")


@config
class NoTradeBand:
    """Proportional cost and quadratic risk: keep the position inside a band that moves."""

    continuing: ClassVar[bool] = True
    maximizes_mean: ClassVar[bool] = True

    kind: Literal["no_trade_band"] = "no_trade_band"
    phi: Phi = 0.1
    """Speed at which the signal returns to zero."""
    cost: Annotated[float, Ge(0)] = 0.5
    """Cost of changing the position by one unit."""
    risk: Annotated[float, Gt(0)] = 1.0
    """Risk aversion gamma."""
    return_noise: Annotated[float, Ge(0)] = 0.0
    """Noise of the paid return; 0 pays expected profit, a positive value realized profit."""
    position_limit: Annotated[float, Ge(3)] = 5.0
    """Position of action 1, in units of the free optimum 1/risk for a signal of one sd."""
    episode_length: Annotated[int, Ge(1)] = 1000

    @property
    def limit(self) -> float:
        """The largest position."""
        return self.position_limit / self.risk

    def build(self, n_envs: int, seed: int, first_env: int = 0) -> SignalTrading:
        """Return N instances."""
        return SignalTrading(
            phi=self.phi,
            risk=self.risk,
            cost=self.cost,
            quadratic_cost=0.0,
            return_noise=self.return_noise,
            position_limit=self.limit,
            has_levels=False,
            n_envs=n_envs,
            seed=seed,
            first_env=first_env,
            episode_length=self.episode_length,
        )

    def solve(self) -> BandSolution:
        """Return the free-boundary solution."""
        return solve_band(self.phi, self.cost, self.risk, self.limit)

    def policies(self) -> Mapping[str, Policy]:
        """Return the band, the scaled and the plain Markowitz rule, and no position at all."""
        solution, limit = self.solve(), self.limit

        def into_band(observation: Float32Array) -> FloatArray:
            low, high = solution.band(observation[:, 0].astype(np.float64))
            held = observation[:, 1].astype(np.float64) * limit
            return np.clip(np.clip(held, low, high) / limit, -1.0, 1.0)[:, None]

        return {
            "optimal": Policy.of(into_band),
            "scaled_markowitz": _linear_policy(LinearRule(1.0, solution.scaled_aim), limit),
            "markowitz": _linear_policy(LinearRule(1.0, 1.0 / self.risk), limit),
            "flat": _linear_policy(LinearRule(1.0, 0.0), limit),
        }


@config
class PositiveControl:
    """The feature is the next return: any sound learner must find it within minutes."""

    continuing: ClassVar[bool] = True
    maximizes_mean: ClassVar[bool] = True

    kind: Literal["positive_control"] = "positive_control"
    cost: Annotated[float, Ge(0)] = 0.1
    """Cost of changing the position by one unit."""
    episode_length: Annotated[int, Ge(1)] = 1000

    def build(self, n_envs: int, seed: int, first_env: int = 0) -> SignalTrading:
        """Return N instances."""
        return SignalTrading(
            phi=1.0,
            risk=0.0,
            cost=self.cost,
            quadratic_cost=0.0,
            return_noise=0.0,
            position_limit=1.0,
            has_levels=True,
            n_envs=n_envs,
            seed=seed,
            first_env=first_env,
            episode_length=self.episode_length,
        )

    def solve(self) -> ThresholdSolution:
        """Return the optimum; in closed form V* = 2(pdf(c) − c(1 − cdf(c))) with threshold c."""
        return solve_threshold(1.0, self.cost)

    def policies(self) -> Mapping[str, Policy]:
        """Return the threshold rule, the sign of the feature, and no position at all."""
        return _threshold_policies(self.solve().threshold, has_levels=True)


def _linear_policy(rule: LinearRule, limit: float) -> Policy:
    def act(observation: Float32Array) -> FloatArray:
        held = observation[:, 1] * limit
        target = held + rule.trade_rate * (rule.aim * observation[:, 0] - held)
        clipped: FloatArray = np.clip(target / limit, -1.0, 1.0)[:, None].astype(np.float64)
        return clipped

    return Policy.of(act)


def _threshold_policies(threshold: float, has_levels: bool) -> Mapping[str, Policy]:
    def beyond(q: float) -> Policy:
        def act(observation: Float32Array) -> NDArray[Any]:
            signal, held = observation[:, 0], observation[:, 1]
            target = np.where(signal > q, 1.0, np.where(signal < -q, -1.0, held))
            return as_choice(target) if has_levels else target[:, None].astype(np.float64)

        return Policy.of(act)

    return {"optimal": beyond(threshold), "sign": beyond(0.0), "flat": beyond(np.inf)}
