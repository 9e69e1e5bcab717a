"""Trading a hidden regime: the belief-optimal rule, and simpler rules to compare it with.

A hidden sign s flips with probability q in each step; the return is r = m·s + N(0, 1). The agent
sees past returns, sets x in {−1, 0, 1} and is paid x·r − c|dx|. The belief b = P(s = +) moves by

    post = b·N(r; m) / (b·N(r; m) + (1 − b)·N(r; −m)),   b' = post(1 − q) + (1 − post)q,

and the worth of one more unit of position is w(b) = m(2b − 1) + E[clip(w(b'), −c, c)]. The best
rule goes long where w > c, short where w < −c, and holds in between; V* = 2 E[(w(b) − c)⁺] over the
stationary law of b. (The reward is linear in x, so 0 is held only until the first trade.)
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from quantail.sim.problems.laws import normal_cdf, normal_pdf
from quantail.types import FloatArray

_POINTS_PER_SD = 40
_MAX_SIDE = 1200


@dataclass(frozen=True, slots=True)
class BeliefSolution:
    """The rule on the belief."""

    flip_belief: float
    """Go long when P(s = +) is above, short when P(s = −) is above."""
    value: float


def predicted_log_odds(posterior: FloatArray, flip: float) -> FloatArray:
    """Return the log-odds of the next sign, from those of the present one after its return. [n]."""
    probability = 1.0 / (1.0 + np.exp(-posterior))
    up = probability * (1.0 - flip) + (1.0 - probability) * flip
    return np.log(up) - np.log1p(-up)


def solve_belief(drift: float, flip: float, cost: float) -> BeliefSolution:
    """Solve the belief program on a grid of posterior log-odds y.

    From log-odds l the posterior is y = l + 2m·r, a mixture of N(l ± 2m², (2m)²) with weights b and
    1 − b. The integrands are smooth in y, so an even grid integrates them to rounding error but for
    the kink of the clip, whose error falls with the square of the spacing.
    """
    step_sd = 2.0 * drift
    reach = math.log((1.0 - flip) / flip) + step_sd * drift + 8.0 * step_sd
    n_side = min(math.ceil(reach / step_sd * _POINTS_PER_SD), _MAX_SIDE)
    y = np.linspace(-reach, reach, 2 * n_side + 1)
    log_odds = predicted_log_odds(y, flip)
    belief = 1.0 / (1.0 + np.exp(-log_odds))
    gap = (y - log_odds[:, None]) / step_sd
    kernel = belief[:, None] * normal_pdf(gap - drift)
    kernel += (1.0 - belief)[:, None] * normal_pdf(gap + drift)
    kernel /= kernel.sum(axis=1, keepdims=True)

    gain = drift * (2.0 * belief - 1.0)
    worth = gain
    change = np.inf
    while change > 1e-13:
        updated = gain + kernel @ np.clip(worth, -cost, cost)
        change = float(np.abs(updated - worth).max())
        worth = updated
    if worth[-1] <= cost:  # trading never pays
        return BeliefSolution(flip_belief=1.0, value=0.0)
    return BeliefSolution(
        flip_belief=float(np.interp(cost, worth, belief)),
        value=2.0 * float(_stationary(kernel) @ np.maximum(worth - cost, 0.0)),
    )


def _stationary(kernel: FloatArray) -> FloatArray:
    """Return the stationary law of a transition matrix. [n, n] -> [n]."""
    law = np.full(kernel.shape[0], 1.0 / kernel.shape[0])
    change = np.inf
    while change > 1e-13:
        updated = law @ kernel
        change = float(np.abs(updated - law).sum())
        law = updated
    normalized: FloatArray = law / law.sum()
    return normalized


@dataclass(frozen=True, slots=True)
class MemorylessRule:
    """The best rule on the last return and the own position; a short one mirrors a long one."""

    to_short: float
    """A long position turns short when the return is below this."""
    to_flat: float
    """A long position is closed when the return is below this (and not below ``to_short``)."""
    enter: float
    """A flat position turns long when the return is above this, short when below minus this."""
    value: float


def memoryless_values(thresholds: FloatArray, drift: float, flip: float, cost: float) -> FloatArray:
    """Return the mean reward of rules (to_short, to_flat, enter), from their 6-state chains.

    The chain is (s, x) when a return is drawn; the rule moves x, then s flips or not.

    Args:
        thresholds: One rule a row. [n, 3]
        drift: m.
        flip: q.
        cost: c.

    Returns:
        Mean reward per step. [n]
    """
    to_flat, enter = thresholds[:, 1], np.abs(thresholds[:, 2])
    to_short = np.minimum(thresholds[:, 0], to_flat)
    # (short below, long above) of each held position
    edges = {-1: (-to_flat, -to_short), 0: (-enter, enter), 1: (to_short, to_flat)}
    states = [(sign, held) for sign in (-1, 1) for held in (-1, 0, 1)]
    n = thresholds.shape[0]
    chain = np.zeros((n, 6, 6))
    reward = np.zeros((n, 6))
    for i, (sign, held) in enumerate(states):
        low, high = edges[held]
        below = normal_cdf(low - drift * sign)
        above = normal_cdf(drift * sign - high)
        for moved, share in ((-1, below), (0, 1.0 - below - above), (1, above)):
            for next_sign, chance in ((sign, 1.0 - flip), (-sign, flip)):
                chain[:, i, states.index((next_sign, moved))] += share * chance
                reward[:, i] += share * chance * drift * next_sign * moved
            reward[:, i] -= share * cost * abs(moved - held)
    system = np.swapaxes(chain, 1, 2) - np.eye(6)
    system[:, -1, :] = 1.0
    right = np.zeros((n, 6, 1))
    right[:, -1] = 1.0
    law = np.linalg.solve(system, right)[:, :, 0]
    values: FloatArray = (law * reward).sum(axis=1)
    return values


def best_memoryless(drift: float, flip: float, cost: float) -> MemorylessRule:
    """Find the best rule on the last return and the own position.

    Given the rest of a rule, the worth of each next position is linear in P(s = + | r, x), which
    rises with r, so the best rule cuts the line of returns at thresholds. They are found by a grid
    over the three thresholds that is narrowed round its best point.
    """
    center, width = np.array([-2.0, -1.0, 2.0]), 3.0
    best = -np.inf
    while width > 1e-5:
        axis = np.linspace(-width, width, 13)
        grid = center + np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)
        values = memoryless_values(grid, drift, flip, cost)
        if values.max() > best:
            best = float(values.max())
            center = grid[int(values.argmax())]
        width *= 0.6
    return MemorylessRule(
        to_short=float(min(center[0], center[1])),
        to_flat=float(center[1]),
        enter=float(abs(center[2])),
        value=best,
    )


@dataclass(frozen=True, slots=True)
class AverageRule:
    """Long when an exponential average of returns is above the threshold, short below minus it."""

    rate: float
    threshold: float
    value: float


def average_value(drift: float, flip: float, cost: float, rate: float, threshold: float) -> float:
    """Return the mean reward of e' = (1 − a)e + a·r, long above k, short below −k, else hold.

    The joint law π(e, s) and the part of it with a long position f(e, s) solve linear integral
    equations with a Gaussian kernel; the nodes lie in panels that end at ±k, where f jumps.
    """
    reach = drift + 7.0 * math.sqrt(rate / (2.0 - rate))
    nodes, weights = _panels([-reach, -threshold, threshold, reach], 3.0 * rate)
    n = nodes.size
    signs = np.repeat([-1.0, 1.0], n)
    e = np.tile(nodes, 2)
    weight = np.tile(weights, 2)
    mean = (1.0 - rate) * e + rate * drift * signs
    stay = np.where(signs[:, None] == signs, 1.0 - flip, flip)
    # density of arriving at row (e', s') from column (e, s)
    arrive = stay * normal_pdf((e[:, None] - mean) / rate) / rate * weight

    system = arrive - np.eye(2 * n)
    system[-1] = weight
    right = np.zeros(2 * n)
    right[-1] = 1.0
    law: FloatArray = np.linalg.solve(system, right).astype(np.float64)
    above, hold = e > threshold, np.abs(e) <= threshold
    long = np.linalg.solve(np.eye(2 * n) - hold[:, None] * arrive, np.where(above, law, 0.0))
    profit = drift * float((weight * signs) @ (2.0 * long - law))
    flips = 2.0 * float((weight * above) @ (arrive @ (law - long)))
    return profit - 2.0 * cost * flips


def best_average(drift: float, flip: float, cost: float) -> AverageRule:
    """Find the best rate and threshold by golden sections in turn, the rate on a log scale.

    The value is flat at its top: it is within about 1e-6 of the best.
    """
    rate, before = math.sqrt(flip) * min(drift, 1.0) + 0.02, -np.inf
    while True:

        def of_threshold(k: float, rate: float = rate) -> float:
            return average_value(drift, flip, cost, rate, k)

        threshold, _ = _golden(of_threshold, 1e-3, 3.0 * drift)

        def of_log_rate(a: float, threshold: float = threshold) -> float:
            return average_value(drift, flip, cost, math.exp(a), threshold)

        log_rate, value = _golden(of_log_rate, math.log(0.01), math.log(0.95))
        rate = math.exp(log_rate)
        if value < before + 1e-6:
            return AverageRule(rate=rate, threshold=threshold, value=value)
        before = value


def _golden(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Return the place and the value of the maximum of a function with one peak."""
    ratio, enough = 0.5 * (math.sqrt(5.0) - 1.0), 3e-3 * (high - low)
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = function(left), function(right)
    while high - low > enough:
        if at_left > at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = function(right)
    return (left, at_left) if at_left > at_right else (right, at_right)


def _panels(edges: list[float], width: float) -> tuple[FloatArray, FloatArray]:
    """Return Gauss-Legendre nodes and weights in panels no wider than ``width``."""
    x, weight = np.polynomial.legendre.leggauss(6)
    nodes: list[FloatArray] = []
    weights: list[FloatArray] = []
    for low, high in itertools.pairwise(edges):
        cuts = np.linspace(low, high, max(1, math.ceil((high - low) / width)) + 1)
        half = 0.5 * np.diff(cuts)[:, None]
        nodes.append((cuts[:-1, None] + half * (1.0 + x)).ravel())
        weights.append((half * weight).ravel())
    return np.concatenate(nodes), np.concatenate(weights)


def clairvoyant_value(drift: float, flip: float, cost: float) -> float:
    """Return what the known sign earns: m − 2cq, one flip of the position for each of its own."""
    return max(0.0, drift - 2.0 * cost * flip)
