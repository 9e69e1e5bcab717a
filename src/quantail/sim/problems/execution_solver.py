"""Selling a block of shares: the closed form of Almgren and Chriss.

X shares are sold in N trades n_k, one every τ. Holdings after trade k are x_k. Expected cost and
variance of the cost are

    E = Σ γ x_k n_k + Σ (ε n_k + η n_k²/τ) = γX²/2 + εX + (η̃/τ) Σ n_k²,   η̃ = η − γτ/2,
    V = σ² τ Σ x_k²,

and E + λV is least at x_k = X sinh(κ(T − t_k))/sinh(κT), 2(cosh(κτ) − 1)/τ² = λσ²/η̃.

References:
    Almgren and Chriss, Optimal execution of portfolio transactions, Journal of Risk 3, 2000.
"""

import math
from dataclasses import dataclass

import numpy as np

from quantail.types import FloatArray


@dataclass(frozen=True, slots=True)
class Impact:
    """The market of a seller."""

    shares: float
    """X, shares to sell."""
    n_trades: int
    """N, number of trades."""
    interval: float
    """τ, time between trades."""
    volatility: float
    """σ, of the price, in money per square root of time."""
    temporary: float
    """η, temporary impact, in money per share per (share per time)."""
    permanent: float
    """γ, permanent impact, in money per share per share."""
    half_spread: float
    """ε, fixed cost of a share."""
    risk_aversion: float
    """λ, weight of the variance."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A plan of holdings with its exact cost."""

    holdings: FloatArray
    """x_0 = X, ..., x_N = 0. [N + 1]"""
    expected_cost: float
    variance: float
    objective: float
    """E + λV."""

    @property
    def fractions(self) -> FloatArray:
        """Fraction of the remainder sold in each trade. [N]."""
        remaining = self.holdings[:-1]
        sold = remaining - self.holdings[1:]
        safe = np.where(remaining > 0.0, remaining, 1.0)
        return np.where(remaining > 0.0, sold / safe, 1.0)


def evaluate_schedule(impact: Impact, holdings: FloatArray) -> Schedule:
    """Return a plan with its expected cost, variance and objective. [N + 1]."""
    trades, after = -np.diff(holdings), holdings[1:]
    expected = float(
        np.sum(impact.permanent * after * trades)
        + np.sum(impact.half_spread * np.abs(trades))
        + np.sum(impact.temporary * trades**2 / impact.interval)
    )
    variance = impact.volatility**2 * impact.interval * float(np.sum(after**2))
    return Schedule(holdings, expected, variance, expected + impact.risk_aversion * variance)


def decay_rate(impact: Impact) -> float:
    """Return κ, the rate at which the best holdings fall."""
    adjusted = impact.temporary - 0.5 * impact.permanent * impact.interval
    urgency = impact.risk_aversion * impact.volatility**2 / adjusted
    return math.acosh(1.0 + 0.5 * urgency * impact.interval**2) / impact.interval


def optimal_schedule(impact: Impact) -> Schedule:
    """Return the plan that minimizes E + λV."""
    kappa = decay_rate(impact)
    steps = np.arange(impact.n_trades + 1)
    if kappa == 0.0:
        return even_schedule(impact)
    left = kappa * impact.interval * (impact.n_trades - steps)
    # sinh(a)/sinh(A) without overflow: e^(a − A)(1 − e^(−2a))/(1 − e^(−2A))
    shape = np.exp(left - left[0]) * np.expm1(-2.0 * left) / math.expm1(-2.0 * float(left[0]))
    return evaluate_schedule(impact, impact.shares * shape)


def even_schedule(impact: Impact) -> Schedule:
    """Return the plan that sells the same number of shares in each trade (TWAP)."""
    steps = np.arange(impact.n_trades + 1)
    return evaluate_schedule(impact, impact.shares * (1.0 - steps / impact.n_trades))


def immediate_schedule(impact: Impact) -> Schedule:
    """Return the plan that sells everything in the first trade."""
    holdings = np.zeros(impact.n_trades + 1)
    holdings[0] = impact.shares
    return evaluate_schedule(impact, holdings)
