"""Risk against mean with exact answers: the betting game, its peso variant, and GambleChain.

In each step one lottery is chosen; what counts is the total W of an episode, its mean and its CVaR.
The best rule for the static CVaR looks at W: near its target it plays safe, far above and far below
it gambles. (Once in the tail, a static CVaR is linear in W again, and so risk neutral; a nested
risk measure would not gamble there.)
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from annotated_types import Ge, Gt, Le, Lt, MinLen
from gymnasium import spaces
from numpy.typing import NDArray

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem
from quantail.sim.problems.interface import Policy, VectorProblem, columns, unbounded_box
from quantail.sim.problems.laws import sample_cvar
from quantail.sim.problems.lottery_solver import (
    Lotteries,
    LotteryPlan,
    best_mean_above,
    best_plan,
    fixed_plan,
)
from quantail.types import BoolArray, Float32Array, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class LotterySolution:
    """The best rule and the constant or open-loop ones, each with its mean and CVaR."""

    plans: dict[str, LotteryPlan]
    values: dict[str, float]
    """Mean total of each rule. The optimum is that of mean + risk_weight·CVaR, not of the mean."""
    base: str
    """The best rule, by the same objective, of those that do not look at the total."""


@config
class BettingGame:
    """T bets of a chosen size: win +size with probability p, lose -size."""

    continuing: ClassVar[bool] = False
    maximizes_mean: ClassVar[bool] = False

    kind: Literal["betting_game"] = "betting_game"
    n_bets: Annotated[int, Ge(1), Le(200)] = 20
    win_probability: Annotated[float, Gt(0), Lt(1)] = 0.55
    win: Annotated[int, Ge(1)] = 1
    """Gain of a bet of size 1, in ticks."""
    loss: Annotated[int, Ge(1)] = 1
    """Loss of a bet of size 1, in ticks."""
    sizes: Annotated[tuple[int, ...], MinLen(2)] = (0, 1, 2)
    """Sizes to choose from, ascending."""
    tick: Annotated[float, Gt(0)] = 1.0
    """What one tick is worth."""
    alpha: Annotated[float, Gt(0), Le(1)] = 0.1
    """Share of the episodes in the tail."""
    risk_weight: Annotated[float, Ge(0)] = 0.3
    """Weight of CVaR beside the mean."""

    def check(self) -> None:
        """Refuse sizes that are not ascending whole numbers from 0 up."""
        if list(self.sizes) != sorted(set(self.sizes)) or self.sizes[0] < 0:
            message = f"must be ascending and at least 0; was {self.sizes}"
            raise ConfigError([ConfigProblem("sizes", message)])

    @property
    def lotteries(self) -> Lotteries:
        """The choices in the form that the solver reads."""
        sizes = np.array(self.sizes, dtype=np.int64)[:, None]
        odds = np.array([self.win_probability, 1.0 - self.win_probability])
        return Lotteries(
            prizes=sizes * np.array([self.win, -self.loss], dtype=np.int64),
            probabilities=np.tile(odds, (len(self.sizes), 1)),
            n_steps=self.n_bets,
            tick=self.tick,
        )

    def build(self, n_envs: int, seed: int, first_env: int = 0) -> "LotteryProblem":
        """Return N instances."""
        return LotteryProblem(self.lotteries, True, n_envs, seed, first_env)

    def solve(self) -> LotterySolution:
        """Return the exact optimum of mean + risk_weight·CVaR and the constant sizes."""
        lotteries = self.lotteries
        plans = {"optimal": best_plan(lotteries, self.alpha, self.risk_weight)}
        for choice, size in enumerate(self.sizes):
            schedule = np.full(self.n_bets, choice, dtype=np.int64)
            plans[f"always_{size}"] = fixed_plan(lotteries, schedule, self.alpha)
        return _solution(plans, self.risk_weight)

    def policies(self) -> Mapping[str, Policy]:
        """Return the rules of :meth:`solve`."""
        return _policies(self.solve(), self.lotteries, is_total_seen=True)


def peso_game(*, alpha: float = 0.05, risk_weight: float = 1.0, n_sizes: int = 4) -> BettingGame:
    """Return the carry trade: twelve steps of +1 % with probability .98, else -30 %.

    Args:
        alpha: Share of the episodes in the tail.
        risk_weight: Weight of CVaR beside the mean.
        n_sizes: Sizes between 0 and 1: 0, 1/n, ..., 1.
    """
    return BettingGame(
        n_bets=12,
        win_probability=0.98,
        win=1,
        loss=30,
        sizes=tuple(range(n_sizes + 1)),
        tick=0.01 / n_sizes,
        alpha=alpha,
        risk_weight=risk_weight,
    )


@config
class GambleChain:
    """A few steps, each either a small sure gain or a gamble with a larger mean."""

    continuing: ClassVar[bool] = False
    maximizes_mean: ClassVar[bool] = False

    kind: Literal["gamble_chain"] = "gamble_chain"
    n_steps: Annotated[int, Ge(1), Le(200)] = 5
    safe: Annotated[int, Ge(0)] = 1
    """Sure gain of action 0, in ticks."""
    win: Annotated[int, Ge(1)] = 5
    """Gain of action 1, in ticks."""
    loss: Annotated[int, Ge(1)] = 10
    """Loss of action 1, in ticks."""
    win_probability: Annotated[float, Gt(0), Lt(1)] = 0.8
    tick: Annotated[float, Gt(0)] = 0.2
    """What one tick is worth."""
    alpha: Annotated[float, Gt(0), Le(1)] = 0.1
    """Share of the episodes in the tail."""
    risk_weight: Annotated[float, Ge(0)] = 0.25
    """Weight of CVaR beside the mean."""
    observe_total: bool = True
    """Show the total so far. Without it no rule can reach the optimum with it."""

    @property
    def lotteries(self) -> Lotteries:
        """The choices in the form that the solver reads."""
        return Lotteries(
            prizes=np.array([[self.safe, self.safe], [self.win, -self.loss]], dtype=np.int64),
            probabilities=np.array(
                [[1.0, 0.0], [self.win_probability, 1.0 - self.win_probability]]
            ),
            n_steps=self.n_steps,
            tick=self.tick,
        )

    def build(self, n_envs: int, seed: int, first_env: int = 0) -> "LotteryProblem":
        """Return N instances."""
        return LotteryProblem(self.lotteries, self.observe_total, n_envs, seed, first_env)

    def solve(self) -> LotterySolution:
        """Return the exact optimum of mean + risk_weight·CVaR, and "risky in the first n steps".

        Without the total in sight a rule is a schedule, and only its number of gambles matters, so
        the optimum is then the best of the latter.
        """
        lotteries = self.lotteries
        open_loop = {
            f"risky_first_{n}": fixed_plan(
                lotteries, (np.arange(self.n_steps) < n).astype(np.int64), self.alpha
            )
            for n in range(self.n_steps + 1)
        }
        if self.observe_total:
            optimal = best_plan(lotteries, self.alpha, self.risk_weight)
        else:
            optimal = open_loop[_best_name(open_loop, self.risk_weight)]
        return _solution({"optimal": optimal} | open_loop, self.risk_weight)

    def policies(self) -> Mapping[str, Policy]:
        """Return the rules of :meth:`solve`."""
        return _policies(self.solve(), self.lotteries, is_total_seen=self.observe_total)


class LotteryProblem(VectorProblem):
    """N players; the observation is (time used as a fraction, total so far over its scale).

    The outcome of a step is one uniform number whatever the choice: all rules meet the same luck.
    """

    def __init__(
        self, lotteries: Lotteries, observe_total: bool, n_envs: int, seed: int, first_env: int
    ) -> None:
        super().__init__(
            n_envs=n_envs,
            seed=seed,
            first_env=first_env,
            observation_space=unbounded_box(2 if observe_total else 1),
            action_space=spaces.Discrete(lotteries.prizes.shape[0]),
            episode_length=None,
        )
        self._lotteries = lotteries
        self._observe_total = observe_total
        self._arrays["total"] = np.zeros(n_envs, dtype=np.int64)

    def _begin(self, rows: IntArray) -> None:
        self._arrays["total"][rows] = 0

    def _advance(self, actions: NDArray[Any]) -> tuple[FloatArray, BoolArray]:
        lost = self._noise.uniform() >= self._lotteries.probabilities[actions, 0]
        prize = self._lotteries.prizes[actions, lost.astype(np.int64)]
        self._arrays["total"] += prize
        return self._lotteries.tick * prize, self._arrays["time"] == self._lotteries.n_steps - 1

    def _observe(self) -> Float32Array:
        used = self._arrays["time"] / self._lotteries.n_steps
        if not self._observe_total:
            return columns(used)
        return columns(used, self._arrays["total"] / total_scale(self._lotteries))


def total_scale(lotteries: Lotteries) -> float:
    """Return the standard deviation, in ticks, of the total of the riskiest choice made always."""
    mean = (lotteries.probabilities * lotteries.prizes).sum(axis=1, keepdims=True)
    variance = (lotteries.probabilities * (lotteries.prizes - mean) ** 2).sum(axis=1)
    return math.sqrt(lotteries.n_steps * float(variance.max()))


def _best_name(plans: Mapping[str, LotteryPlan], weight: float) -> str:
    return max(plans, key=lambda name: plans[name].mean + weight * plans[name].cvar)


def _solution(plans: dict[str, LotteryPlan], weight: float) -> LotterySolution:
    simple = {name: plan for name, plan in plans.items() if name != "optimal"}
    return LotterySolution(
        plans=plans,
        values={name: plan.mean for name, plan in plans.items()},
        base=_best_name(simple, weight),
    )


def _policies(
    solution: LotterySolution, lotteries: Lotteries, is_total_seen: bool
) -> Mapping[str, Policy]:
    scale = total_scale(lotteries)

    def follow(plan: LotteryPlan) -> Policy:
        def act(observation: Float32Array) -> IntArray:
            time = np.rint(observation[:, 0] * lotteries.n_steps).astype(np.int64)
            total = np.zeros_like(time)
            if is_total_seen:
                total = np.rint(observation[:, 1].astype(np.float64) * scale).astype(np.int64)
            chosen: IntArray = plan.choices[time, total - plan.lowest]
            return chosen

        return Policy.of(act)

    return {name: follow(plan) for name, plan in solution.plans.items()}


@dataclass(frozen=True, slots=True)
class RiskScore:
    """How an agent did under a limit on CVaR."""

    mean: float
    cvar: float
    cvar_standard_error: float
    is_feasible: bool
    """CVaR is not below the limit by more than two standard errors."""
    best_mean: float
    """E*(c), the largest mean of any rule whose CVaR meets the limit."""
    fraction: float
    """mean / best_mean."""


def risk_score(problem: BettingGame | GambleChain, returns: FloatArray, limit: float) -> RiskScore:
    """Judge the totals of many episodes against the best mean under CVaR ≥ limit.

    Args:
        problem: The game that was played.
        returns: Totals of independent episodes; their tail should hold at least 20. [n]
        limit: The least CVaR allowed.

    References:
        Trindade et al., 2007, for the standard error of an empirical CVaR.
    """
    alpha, n_tail = problem.alpha, problem.alpha * returns.size
    if n_tail < 20:
        raise ConfigError(
            f"returns must hold at least {math.ceil(20 / alpha)} episodes, 20 of them in the tail "
            f"of {alpha:g}; held {returns.size}. Play more episodes."
        )
    best = best_mean_above(problem.lotteries, alpha, limit)
    if not best > 0.0:
        raise ConfigError(
            f"limit must leave a positive best mean to compare with; at {limit:g} it is {best:g}. "
            "Lower the limit."
        )
    cvar = sample_cvar(returns, alpha)
    quantile = float(np.quantile(returns, alpha, method="inverted_cdf"))
    # CVaR is the mean of b − (b − W)⁺/α at its maximum over b, so an error in b does not count
    shortfall = np.maximum(quantile - returns, 0.0)
    error = float(shortfall.std(ddof=1)) / (alpha * math.sqrt(returns.size))
    mean = float(returns.mean())
    return RiskScore(
        mean=mean,
        cvar=cvar,
        cvar_standard_error=error,
        is_feasible=cvar + 2.0 * error >= limit,
        best_mean=best,
        fraction=mean / best,
    )
