"""Plain, slow solvers by other roads: iteration on grids, enumeration of all rules."""

import itertools
import math

import numpy as np


def quadratic_by_iteration(phi, risk, cost, discount):
    """Trade rate and aim by iterating the Bellman equation of a quadratic value function."""
    a = b = 0.0
    for _ in range(20000):
        denominator = risk + cost + discount * a
        a, b = (
            cost - cost * cost / denominator,
            cost * (1.0 + discount * b * (1.0 - phi)) / denominator,
        )
    denominator = risk + cost + discount * a
    rate = 1.0 - cost / denominator
    return rate, (1.0 + discount * b * (1.0 - phi)) / denominator / rate


def band_by_grid(phi, cost, risk):
    """Mean reward and band at p = 0 and 1 by relative value iteration on a grid of (p, x)."""
    p = np.linspace(-4.5, 4.5, 91)
    x = np.linspace(-3.0, 3.0, 121)
    rho = 1.0 - phi
    kernel = np.exp(-0.5 * ((p - rho * p[:, None]) / math.sqrt(1.0 - rho * rho)) ** 2)
    kernel /= kernel.sum(axis=1, keepdims=True)
    now = x * p[:, None] - 0.5 * risk * x * x
    price = cost * np.abs(x[:, None] - x)
    value = np.zeros((p.size, x.size))
    for _ in range(120):
        after = now + kernel @ value
        updated = np.stack([(row - price).max(axis=1) for row in after])
        gain = updated[45, 60] - value[45, 60]
        value = updated - updated[45, 60]
    chosen = np.stack([(row - price).argmax(axis=1) for row in now + kernel @ value])
    rows = [int(np.argmin(np.abs(p - at))) for at in (0.0, 1.0)]
    return gain, x[chosen[rows, 0]], x[chosen[rows, -1]]


def fraction_band_by_grid(investor):
    """Mean reward and band of Merton's problem with cost, by relative value iteration on a grid."""
    grid = np.linspace(0.1, 0.9, 401)
    shock, weight = np.polynomial.hermite_e.hermegauss(15)
    weight = weight / weight.sum()
    growth = investor.growth(grid[:, None], shock)
    now = investor.utility(growth) @ weight
    moved = grid[:, None] * investor.prices(shock) / growth
    price = investor.cost * np.abs(grid[:, None] - grid)
    value, gain, before = np.zeros(grid.size), 0.0, np.inf
    while abs(gain - before) > 1e-9:
        before = gain
        for _ in range(20):
            after = now + np.interp(moved, grid, value) @ weight
            updated = (after - price).max(axis=1)
            gain = updated[200] - value[200]
            value = updated - updated[200]
    chosen = grid[(after - price).argmax(axis=1)]
    return gain, chosen[0], chosen[-1]


def best_lottery_rule(lotteries, alpha, weight):
    """Best mean + weight·CVaR over every deterministic rule on (t, total), by trying them all."""
    reached = [{0}]
    for _ in range(lotteries.n_steps - 1):
        reached.append(
            {total + int(prize) for total in reached[-1] for prize in lotteries.prizes.ravel()}
        )
    states = [(t, total) for t, totals in enumerate(reached) for total in sorted(totals)]
    best = -math.inf
    for choices in itertools.product(range(lotteries.prizes.shape[0]), repeat=len(states)):
        rule = dict(zip(states, choices, strict=True))
        law = {0: 1.0}
        for t in range(lotteries.n_steps):
            after = {}
            for total, mass in law.items():
                choice = rule[t, total]
                for prize, chance in zip(
                    lotteries.prizes[choice], lotteries.probabilities[choice], strict=True
                ):
                    after[total + int(prize)] = after.get(total + int(prize), 0.0) + mass * chance
            law = after
        best = max(best, _objective(law, lotteries.tick, alpha, weight))
    return best


def _objective(law, tick, alpha, weight):
    mean = sum(tick * total * mass for total, mass in law.items())
    left, tail = alpha, 0.0
    for total in sorted(law):
        taken = min(left, law[total])
        tail += taken * tick * total
        left -= taken
    return mean + weight * tail / alpha
