"""Merton's problem in steps: how much of one's wealth to hold in a risky asset.

For CRRA utility with risk aversion γ, continuous and free trading the best fraction is
π* = (μ − r)/(γσ²), with the certainty-equivalent rate r + (μ − r)²/(2γσ²). Here the fraction is set
once a step, so the gross return of a step and the fraction that it leaves behind are

    G(π) = R + π(S − R),   π' = πS/G,   R = e^{r·dt},   S = exp((μ − σ²/2)dt + σ√dt·z).

The reward is u(G) − c|dπ| with u(G) = (G^{1−γ} − 1)/(1 − γ), or log G for γ = 1. Without cost the
returns are independent, so the fraction that is best for one step is best for the utility of final
wealth too. With cost there is a band: with f = E[u(G)], the worth of a little more fraction solves

    w(π) = f'(π) + E[ clip(w(π'), −c, c)·dπ'/dπ ],   dπ'/dπ = SR/G²,

and the best rule buys while w > c and sells while w < −c. The mean reward follows from the Bellman
equation at any point of the band: V* = f(π) + E[∫_π^{π'} clip(w)].

References:
    Merton, 1969; Shreve and Soner, Annals of Applied Probability 4(3), 1994, for the band.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from quantail.types import FloatArray

_MAX_ITERATIONS = 200
_N_GRID = 301
_N_SHOCKS = 41


@dataclass(frozen=True, slots=True)
class Investor:
    """A market with one risky asset, and the taste of who trades in it."""

    mean: float
    """μ a year."""
    riskless: float
    """r a year."""
    volatility: float
    """σ a year."""
    risk_aversion: float
    """γ."""
    step: float
    """dt in years."""
    cost: float
    """c, cost of changing the fraction by one."""

    def prices(self, shock: FloatArray) -> FloatArray:
        """Return S, the gross return of the risky asset. [n]."""
        drift = (self.mean - 0.5 * self.volatility**2) * self.step
        return np.exp(drift + self.volatility * math.sqrt(self.step) * shock)

    @property
    def safe(self) -> float:
        """R, the gross return of the riskless asset."""
        return math.exp(self.riskless * self.step)

    def growth(self, fraction: FloatArray, shock: FloatArray) -> FloatArray:
        """Return G, the gross return of the wealth. [n], [n] -> [n]."""
        return self.safe + fraction * (self.prices(shock) - self.safe)

    def utility(self, growth: FloatArray) -> FloatArray:
        """Return u(G), zero at 1. [n]."""
        if self.risk_aversion == 1.0:
            return np.log(growth)
        power = 1.0 - self.risk_aversion
        return np.expm1(power * np.log(growth)) / power

    def mean_utility(self, fraction: float) -> float:
        """Return f = E[u(G)] of a step."""
        shock, weight = _shocks()
        return float(weight @ self.utility(self.growth(np.full_like(shock, fraction), shock)))

    def slope(self, fraction: FloatArray) -> FloatArray:
        """Return f'(π) = E[G^{−γ}(S − R)]. [n]."""
        shock, weight = _shocks()
        growth = self.growth(fraction[:, None], shock)
        slope: FloatArray = (
            growth**-self.risk_aversion * (self.prices(shock) - self.safe)
        ) @ weight
        return slope

    def certainty_rate(self, mean_utility: float) -> float:
        """Return the riskless rate a year whose step has the same utility."""
        if self.risk_aversion == 1.0:
            return mean_utility / self.step
        power = 1.0 - self.risk_aversion
        return math.log1p(power * mean_utility) / (power * self.step)


@dataclass(frozen=True, slots=True)
class FractionBand:
    """The no-trade band of the fraction, with w on a grid between its edges."""

    lower: float
    upper: float
    grid: FloatArray
    worth: FloatArray
    """w on the grid, falling from c to −c. [n]"""


def continuous_solution(
    mean: float, riskless: float, volatility: float, risk_aversion: float
) -> tuple[float, float]:
    """Return π* = (μ − r)/(γσ²) and the rate r + (μ − r)²/(2γσ²)."""
    excess, variance = mean - riskless, volatility**2
    return (
        excess / (risk_aversion * variance),
        riskless + excess**2 / (2.0 * risk_aversion * variance),
    )


def free_fraction(investor: Investor, limit: float) -> float:
    """Return the fraction in [−limit, limit] that maximizes f, by bisection on its slope."""
    low, high = -limit, limit
    while high - low > 1e-12:
        middle = 0.5 * (low + high)
        if float(investor.slope(np.array([middle]))[0]) > 0.0:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def rebalancing_cost(investor: Investor, fraction: float) -> float:
    """Return E|π' − π|, the turnover of going back to the same fraction in every step."""
    shock = np.linspace(-9.0, 9.0, 3601)
    weight = np.exp(-0.5 * shock**2)
    moved = _moved(investor, np.array([fraction]), shock)[0]
    return float(weight @ np.abs(moved - fraction) / weight.sum())


def solve_fraction_band(investor: Investor, limit: float) -> FractionBand:
    """Return the band, by policy iteration: solve w between fixed edges, move them to w = ±c."""
    lower = upper = free_fraction(investor, limit)
    cost = investor.cost
    for _ in range(_MAX_ITERATIONS):
        band = _evaluate(investor, lower, upper)
        lower = _crossing(investor, band, cost, limit)
        upper = _crossing(investor, band, -cost, limit)
        if abs(lower - band.lower) + abs(upper - band.upper) < 1e-9:
            return band
    raise AssertionError("policy iteration on a concave problem must converge")


def band_value(investor: Investor, band: FractionBand) -> float:
    """Return the mean reward of the best rule, from the Bellman equation at the middle."""
    middle = 0.5 * (band.lower + band.upper)
    shock, weight = _shocks()
    moved = _moved(investor, np.array([middle]), shock)[0]
    # ∫_π^{π'} clip(w): the trapezoid inside the band, ±c times the way outside
    width = np.diff(band.grid)
    steps = 0.5 * (band.worth[1:] + band.worth[:-1]) * width
    height = np.concatenate([[0.0], np.cumsum(steps)])
    inside = np.interp(np.append(moved, middle), band.grid, height)
    gained = inside[:-1] - inside[-1]
    gained += investor.cost * np.minimum(moved - band.lower, 0.0)
    gained -= investor.cost * np.maximum(moved - band.upper, 0.0)
    return investor.mean_utility(middle) + float(weight @ gained)


@cache
def _shocks() -> tuple[FloatArray, FloatArray]:
    """Return nodes and weights that average over a standard normal shock; constants."""
    shock, weight = np.polynomial.hermite_e.hermegauss(_N_SHOCKS)
    return shock, weight / weight.sum()


def _moved(investor: Investor, fraction: FloatArray, shock: FloatArray) -> FloatArray:
    """Return π', the fraction that a step leaves behind. [n], [k] -> [n, k]."""
    growth = investor.growth(fraction[:, None], shock)
    return fraction[:, None] * investor.prices(shock) / growth


def _pull(investor: Investor, fraction: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return π' and the weights of clip(w(π')) in the equation for w. [n] -> [n, k], [n, k]."""
    shock, weight = _shocks()
    growth = investor.growth(fraction[:, None], shock)
    price = investor.prices(shock)
    return fraction[:, None] * price / growth, weight * price * investor.safe / growth**2


def _worth(investor: Investor, band: FractionBand, fraction: FloatArray) -> FloatArray:
    """Return w anywhere, by one application of its equation. [n]."""
    moved, weight = _pull(investor, fraction)
    after = np.interp(moved, band.grid, band.worth, left=investor.cost, right=-investor.cost)
    worth: FloatArray = investor.slope(fraction) + (weight * after).sum(axis=1)
    return worth


def _evaluate(investor: Investor, lower: float, upper: float) -> FractionBand:
    """Solve the linear equation for w on a grid between fixed edges."""
    grid = np.linspace(lower, max(upper, lower + 1e-9), _N_GRID)
    moved, weight = _pull(investor, grid)
    known = investor.slope(grid)
    known += investor.cost * (weight * (moved < grid[0])).sum(axis=1)
    known -= investor.cost * (weight * (moved > grid[-1])).sum(axis=1)
    is_inside = (moved >= grid[0]) & (moved <= grid[-1])
    place = np.clip((moved - grid[0]) / (grid[1] - grid[0]), 0.0, _N_GRID - 1.0)
    left = np.minimum(place.astype(np.int64), _N_GRID - 2)
    share = place - left
    inside = np.where(is_inside, weight, 0.0)
    matrix = np.zeros((_N_GRID, _N_GRID))
    rows = np.broadcast_to(np.arange(_N_GRID)[:, None], left.shape)
    np.add.at(matrix, (rows, left), inside * (1.0 - share))
    np.add.at(matrix, (rows, left + 1), inside * share)
    worth: FloatArray = np.linalg.solve(np.eye(_N_GRID) - matrix, known).astype(np.float64)
    return FractionBand(lower=lower, upper=float(grid[-1]), grid=grid, worth=worth)


def _crossing(investor: Investor, band: FractionBand, level: float, limit: float) -> float:
    """Return the fraction where w falls through ``level``, by bisection."""
    low, high = -limit, limit
    while high - low > 1e-12:
        probes = np.linspace(low, high, 34)
        above = int(np.count_nonzero(_worth(investor, band, probes) > level))
        low, high = probes[max(above - 1, 0)], probes[min(above, 33)]
    return float(0.5 * (low + high))
