"""Repeated lotteries: the exact trade-off between the mean and CVaR of the total.

In each of T steps one of a few lotteries is chosen; W is the total of their prizes, in whole ticks.
By Rockafellar and Uryasev

    CVaR_α(W) = max_b { b − E[(b − W)⁺]/α },

so that max E[W] + λ·CVaR_α(W) is, for each fixed b, an ordinary dynamic program on (t, W) with the
final utility W + λ(b − (b − W)⁺/α), and the best b is an attainable total.

References:
    Bauerle and Ott, Markov Decision Processes with Average-Value-at-Risk criteria, 2011.
"""

from dataclasses import dataclass

import numpy as np

from quantail.sim.compiled import solver
from quantail.sim.problems.laws import discrete_cvar
from quantail.types import FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Lotteries:
    """What can be chosen in each step."""

    prizes: IntArray
    """Prize of each outcome of each choice, in ticks. [A, 2]"""
    probabilities: FloatArray
    """Probability of each outcome of each choice. [A, 2]"""
    n_steps: int
    tick: float
    """What one tick is worth."""

    @property
    def lowest(self) -> int:
        """The smallest total that can be on the way, in ticks; 0 at the start counts."""
        return self.n_steps * min(0, int(self.prizes.min()))

    @property
    def n_totals(self) -> int:
        """Number of totals between the smallest and the largest."""
        return self.n_steps * max(0, int(self.prizes.max())) - self.lowest + 1

    @property
    def totals(self) -> FloatArray:
        """All totals on the lattice, as money. [W]."""
        return self.tick * (self.lowest + np.arange(self.n_totals)).astype(np.float64)


@dataclass(frozen=True, slots=True)
class LotteryPlan:
    """A rule on (time, total), with the law that it gives."""

    choices: IntArray
    """The choice at each time and total. [T, W]"""
    lowest: int
    """Total of column 0, in ticks."""
    mean: float
    cvar: float
    target: float
    """The b of the Rockafellar-Uryasev form for which the rule was made."""


@solver
def _plan_nb(
    prizes: IntArray,
    probabilities: FloatArray,
    lowest: int,
    utility: FloatArray,
    choices: IntArray,
) -> FloatArray:
    """Fill ``choices`` backwards and return the values at time 0. Ties go to the lowest choice."""
    n_steps, _n_totals = choices.shape
    n_choices, n_outcomes = prizes.shape
    value = utility.copy()
    before = np.empty_like(value)
    for t in range(n_steps - 1, -1, -1):
        low, high = t * min(0, prizes.min()), t * max(0, prizes.max())
        for total in range(low, high + 1):
            best, best_choice = -np.inf, 0
            for a in range(n_choices):
                worth = 0.0
                for o in range(n_outcomes):
                    worth += probabilities[a, o] * value[total + prizes[a, o] - lowest]
                if worth > best + 1e-12 * (1.0 + abs(best)) or a == 0:
                    best, best_choice = worth, a
            before[total - lowest] = best
            choices[t, total - lowest] = best_choice
        value, before = before, value
    return value


@solver
def _law_nb(
    prizes: IntArray, probabilities: FloatArray, lowest: int, choices: IntArray
) -> FloatArray:
    """Return the law of the total under a rule. [W]."""
    n_steps, n_totals = choices.shape
    law = np.zeros(n_totals)
    law[-lowest] = 1.0
    for t in range(n_steps):
        after = np.zeros(n_totals)
        for w in range(n_totals):
            if law[w] > 0.0:
                a = choices[t, w]
                for o in range(prizes.shape[1]):
                    after[w + prizes[a, o]] += law[w] * probabilities[a, o]
        law = after
    return law


def total_law(lotteries: Lotteries, choices: IntArray) -> FloatArray:
    """Return the probability of each total under a rule. [T, W] -> [W]."""
    return _law_nb(lotteries.prizes, lotteries.probabilities, lotteries.lowest, choices)


def evaluate_plan(
    lotteries: Lotteries, choices: IntArray, alpha: float, target: float = np.nan
) -> LotteryPlan:
    """Return a rule with its exact mean and CVaR."""
    law, totals = total_law(lotteries, choices), lotteries.totals
    return LotteryPlan(
        choices=choices,
        lowest=lotteries.lowest,
        mean=float(law @ totals),
        cvar=discrete_cvar(totals, law, alpha),
        target=target,
    )


def fixed_plan(lotteries: Lotteries, schedule: IntArray, alpha: float) -> LotteryPlan:
    """Return the rule that follows a schedule of choices whatever happens. [T]."""
    choices = np.repeat(schedule[:, None], lotteries.n_totals, axis=1)
    return evaluate_plan(lotteries, choices, alpha)


def choices_for_target(
    lotteries: Lotteries, alpha: float, weight: float, target: float
) -> tuple[IntArray, float]:
    """Return the best rule for E[W] + λ(b − E[(b − W)⁺]/α) at a fixed b, and that optimum."""
    totals = lotteries.totals
    utility = totals + weight * (target - np.maximum(target - totals, 0.0) / alpha)
    choices = np.zeros((lotteries.n_steps, lotteries.n_totals), dtype=np.int64)
    value = _plan_nb(lotteries.prizes, lotteries.probabilities, lotteries.lowest, utility, choices)
    return choices, float(value[-lotteries.lowest])


def best_plan(lotteries: Lotteries, alpha: float, weight: float) -> LotteryPlan:
    """Return the rule that maximizes E[W] + weight·CVaR_α(W) over all rules that see (t, W)."""
    best_target = 0.0
    best, optimum = choices_for_target(lotteries, alpha, weight, best_target)
    for target in lotteries.totals.tolist():
        choices, value = choices_for_target(lotteries, alpha, weight, target)
        # a tie, as at weight 0, keeps the rule found first
        if value > optimum + 1e-12 * (1.0 + abs(optimum)):
            best, optimum, best_target = choices, value, target
    return evaluate_plan(lotteries, best, alpha, best_target)


def best_mean_above(lotteries: Lotteries, alpha: float, limit: float) -> float:
    """Return E*(c) = max E[W] subject to CVaR_α(W) ≥ c, over rules that may also draw lots.

    For fixed b it is a linear program over occupation measures, hence equal to its dual
    min over λ ≥ 0 of max E[W] + λ(b − E[(b − W)⁺]/α − c); the constraint holds for some b.

    Returns:
        The largest mean, or -inf when no rule meets the limit.
    """
    # b − E[(b − W)⁺]/α is at most b, so a b below the limit cannot meet it
    targets = [target for target in lotteries.totals.tolist() if target >= limit]
    return max((_dual(lotteries, alpha, limit, b) for b in targets), default=-np.inf)


def _dual(lotteries: Lotteries, alpha: float, limit: float, target: float) -> float:
    """Minimize the convex dual function of the constraint at fixed b by golden section."""

    def height(weight: float) -> float:
        return choices_for_target(lotteries, alpha, weight, target)[1] - weight * limit

    low, high = 0.0, 1.0
    while height(2.0 * high) < height(high):
        high *= 2.0
        if high > 1e6:  # the dual falls for ever: the limit cannot be met with this b
            return -np.inf
    high *= 2.0
    ratio = 0.5 * (5.0**0.5 - 1.0)
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = height(left), height(right)
    while high - low > 1e-7 * (1.0 + high):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = height(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = height(right)
    return min(at_left, at_right)
