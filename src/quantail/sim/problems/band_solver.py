"""Proportional costs on a mean-reverting signal: the exact no-trade band.

The agent sees p_t, chooses x_t and receives x_t p_t − (γ/2) x_t² − c|x_t − x_{t−1}|, where p is an
AR(1), p_{t+1} = (1 − φ) p_t + ε with sd(p) = 1.

Let w(p, x) be the worth of one more unit of position at x, before any cost:

    w(p, x) = p − γx + E[ clip(w(p', x), −c, c) | p ].

Trading is worth its cost where |w| > c, so the best rule buys while w > c and sells while w < −c.
Levels of x do not talk to each other: for each x it is a free-boundary problem in p alone, solved
here to rounding error by policy iteration on Gauss-Legendre nodes between the boundaries, where the
kernel is smooth. The mean reward follows from the Bellman equation, averaged over the law of p:

    V* = ∫_0^∞ E[(w(p, z) − c)⁺] dz + ∫_{−∞}^0 E[(−c − w(p, z))⁺] dz
       = 2 ∫_0^∞ E[(w(p, z) − c)⁺] dz.

With γ = 0 and |x| ≤ 1 every level has the same w, hence V* = 2 E[(w(p, 0) − c)⁺].

References:
    Martin and Schoneborn, arXiv 1103.4934; de Lataillade and Chaouki, CFM 2020.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from quantail.sim.problems.laws import normal_cdf, normal_pdf
from quantail.types import FloatArray

_MAX_ITERATIONS = 100


@dataclass(frozen=True, slots=True)
class Boundary:
    """The solved free-boundary problem of one level of the position."""

    phi: float
    cost: float
    offset: float
    lower: float
    """Sell this unit when p falls below."""
    upper: float
    """Buy this unit when p rises above."""
    nodes: FloatArray
    weights: FloatArray
    node_worth: FloatArray
    """w at the nodes between the boundaries."""

    def worth(self, p: FloatArray) -> FloatArray:
        """Return w(p) anywhere, by one application of the Bellman equation. [n] -> [n]."""
        rho, sd = _persistence(self.phi)
        mean = rho * p
        kernel = normal_pdf((self.nodes - mean[:, None]) / sd) / sd
        inside = kernel @ (self.weights * self.node_worth)
        return p - self.offset + inside + self._outside(mean, sd)

    def mean_gain(self) -> float:
        """Return E[(w(p) − c)⁺] over the stationary law of p, by panels of Gauss-Legendre nodes."""
        _, sd = _persistence(self.phi)
        low, high = max(self.upper, -9.0), 9.0
        if low >= high:
            return 0.0
        n_panels = max(2, math.ceil((high - low) / max(sd, 0.05)))
        edges = np.linspace(low, high, n_panels + 1)
        x, weight = _gauss_legendre(10)
        half = 0.5 * np.diff(edges)[:, None]
        p = (edges[:-1, None] + half * (1.0 + x)).ravel()
        total = (half * weight).ravel()
        return float(total @ ((self.worth(p) - self.cost) * normal_pdf(p)))

    def _outside(self, mean: FloatArray, sd: float) -> FloatArray:
        above = normal_cdf((mean - self.upper) / sd)
        below = normal_cdf((self.lower - mean) / sd)
        return self.cost * (above - below)


@cache
def _gauss_legendre(n_nodes: int) -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights on [−1, 1]; constants, so they are computed once."""
    return np.polynomial.legendre.leggauss(n_nodes)


def _persistence(phi: float) -> tuple[float, float]:
    """Return ρ = 1 − φ and the standard deviation of one innovation."""
    rho = 1.0 - phi
    return rho, math.sqrt(1.0 - rho * rho)


def solve_boundary(
    phi: float, cost: float, offset: float = 0.0, guess: Boundary | None = None
) -> Boundary:
    """Solve w(p) = p − offset + E[clip(w(p'), −c, c) | p] with its two boundaries w = ∓c.

    Policy iteration: fix the boundaries, solve the linear equation between them, move them to where
    w = ∓c. It converges quadratically.
    """
    lower = upper = offset
    if guess is not None:
        lower, upper = guess.lower, guess.upper
    for _ in range(_MAX_ITERATIONS):
        solved = _evaluate(phi, cost, offset, lower, upper)
        lower, upper = _crossing(solved, -cost), _crossing(solved, cost)
        if abs(lower - solved.lower) + abs(upper - solved.upper) < 1e-12 * (1.0 + abs(offset)):
            return solved
    raise AssertionError("policy iteration on a monotone problem must converge")


def _evaluate(phi: float, cost: float, offset: float, lower: float, upper: float) -> Boundary:
    """Solve the linear equation for w between fixed boundaries."""
    rho, sd = _persistence(phi)
    n_nodes = 12 + math.ceil(7.0 * (upper - lower) / sd)
    x, weight = _gauss_legendre(n_nodes)
    half = 0.5 * (upper - lower)
    nodes, weights = lower + half * (1.0 + x), half * weight
    kernel = normal_pdf((nodes - rho * nodes[:, None]) / sd) / sd * weights
    empty = Boundary(phi, cost, offset, lower, upper, nodes, weights, np.zeros(n_nodes))
    known = nodes - offset + empty._outside(rho * nodes, sd)
    worth: FloatArray = np.linalg.solve(np.eye(n_nodes) - kernel, known).astype(np.float64)
    return Boundary(phi, cost, offset, lower, upper, nodes, weights, worth)


def _crossing(solved: Boundary, level: float) -> float:
    """Return p with w(p) = level, by the Illinois variant of the secant method.

    w rises at least as fast as p, so the crossing is no farther from any p than |level − w(p)|.
    """

    def gap(p: float) -> float:
        return float(solved.worth(np.array([p]))[0]) - level

    start = solved.upper if level > 0.0 else solved.lower
    near, at_near = start, gap(start)
    far, at_far = start - at_near, gap(start - at_near)
    while abs(near - far) > 1e-13 * (1.0 + abs(near)) and at_far != 0.0:
        new = far - at_far * (far - near) / (at_far - at_near)
        at_new = gap(new)
        if at_new * at_far < 0.0:
            near, at_near = far, at_far
        else:
            at_near *= 0.5
        far, at_far = new, at_new
    return far


def threshold_value(phi: float, cost: float, threshold: float) -> float:
    """Return the mean reward of "+1 above q, −1 below −q, else hold" with γ = 0.

    Let u(p) be the probability that the position is +1 once p has been acted upon. The signal is
    reversible, so u(p) = E[u(p_before) | p] inside the band, 1 above and 0 below. Then

        V = E[(2u − 1) p] − 2c·P(flip),   P(flip) = 2 E[1{p > q}(1 − E[u(p_before) | p])].
    """
    rho, sd = _persistence(phi)
    n_nodes = 12 + math.ceil(14.0 * threshold / sd)
    x, weight = _gauss_legendre(n_nodes)
    nodes, weights = threshold * x, threshold * weight
    kernel = normal_pdf((nodes - rho * nodes[:, None]) / sd) / sd * weights
    entered = normal_cdf((rho * nodes - threshold) / sd)
    share = np.linalg.solve(np.eye(n_nodes) - kernel, entered)

    edges = np.linspace(threshold, 9.0, max(2, math.ceil((9.0 - threshold) / max(sd, 0.05))) + 1)
    x, weight = _gauss_legendre(10)
    half = 0.5 * np.diff(edges)[:, None]
    p = (edges[:-1, None] + half * (1.0 + x)).ravel()
    total = (half * weight).ravel() * normal_pdf(p)
    before = normal_pdf((nodes - rho * p[:, None]) / sd) / sd @ (weights * share)
    before += normal_cdf((rho * p - threshold) / sd)
    flip = 2.0 * float(total @ (1.0 - before))
    held = float((weights * normal_pdf(nodes)) @ ((2.0 * share - 1.0) * nodes))
    return held + 2.0 * float(total @ p) - 2.0 * cost * flip


@dataclass(frozen=True, slots=True)
class ThresholdSolution:
    """The best bang-bang rule: +1 above the threshold, −1 below minus the threshold, else hold."""

    threshold: float
    values: dict[str, float]
    no_cost_bound: float
    """E|p|, what the sign of the signal would earn if trading were free."""
    base: str
    """The better of trading the sign and staying flat."""


def solve_threshold(phi: float, cost: float) -> ThresholdSolution:
    """Return the optimum for |x| ≤ 1 and no risk term."""
    solved = solve_boundary(phi, cost)
    bound = math.sqrt(2.0 / math.pi)
    # sign(p) flips with probability arccos(ρ)/π, and a flip trades two units
    sign = bound - 2.0 * cost * math.acos(1.0 - phi) / math.pi
    return ThresholdSolution(
        threshold=solved.upper,
        values={"optimal": 2.0 * solved.mean_gain(), "sign": sign, "flat": 0.0},
        no_cost_bound=bound,
        base="sign" if sign > 0.0 else "flat",
    )


@dataclass(frozen=True, slots=True)
class BandSolution:
    """The best no-trade band: below it buy up to its edge, above it sell down to its edge."""

    positions: FloatArray
    """Levels of the position, ascending. [n]"""
    buy_above: FloatArray
    """Signal above which the position is raised past each level, ascending. [n]"""
    values: dict[str, float]
    scaled_aim: float
    """Best m of the rule x = m p."""
    base: str = "scaled_markowitz"

    def band(self, p: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the lower and the upper edge of the band at each signal. [n] -> [n], [n]."""
        low = np.interp(p, self.buy_above, self.positions)
        # the mirror image: sell_below(x) = −buy_above(−x)
        high = -np.interp(-p, self.buy_above, self.positions)
        return low, high


def _along(phi: float, cost: float, offsets: FloatArray) -> list[Boundary]:
    """Solve for ascending offsets, each from the one before. [n]."""
    solved: list[Boundary] = []
    for offset in offsets.tolist():
        solved.append(solve_boundary(phi, cost, offset, solved[-1] if solved else None))
    return solved


def solve_band(phi: float, cost: float, risk: float, position_limit: float) -> BandSolution:
    """Return the band on |x| ≤ position_limit and its mean reward per step.

    Args:
        phi: Speed of mean reversion of the signal.
        cost: Proportional cost c.
        risk: Risk aversion γ > 0.
        position_limit: Largest position; the integral over levels of the position ends there.
    """
    positions = np.linspace(-position_limit, position_limit, 101)
    buy_above = np.array([boundary.upper for boundary in _along(phi, cost, risk * positions)])

    x, weight = _gauss_legendre(32)
    levels = 0.5 * position_limit * (1.0 + x)
    gains = [boundary.mean_gain() for boundary in _along(phi, cost, risk * levels)]
    optimal = 2.0 * 0.5 * position_limit * float(weight @ np.array(gains))

    # E|p' − p| = √(2/π)·√(2φ), so x = m p earns m − γm²/2 − c·m·E|p' − p|
    drag = cost * math.sqrt(2.0 / math.pi) * math.sqrt(2.0 * phi)
    scaled = max(0.0, 1.0 - drag)
    return BandSolution(
        positions=positions,
        buy_above=buy_above,
        values={
            "optimal": optimal,
            "scaled_markowitz": scaled * scaled / (2.0 * risk),
            "markowitz": (0.5 - drag) / risk,
            "flat": 0.0,
        },
        scaled_aim=scaled / risk,
    )
