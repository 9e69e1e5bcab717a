"""Laws of returns: the normal law and laws with finitely many values, and their lower tails.

CVaR is that of RETURNS: the mean of the worst share alpha, so bigger is better.
"""

import math
from statistics import NormalDist

import numpy as np

from quantail.types import FloatArray


def normal_pdf(x: FloatArray) -> FloatArray:
    """Return the standard normal density at each x."""
    return np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def normal_cdf(x: FloatArray) -> FloatArray:
    """Return the standard normal distribution function at each x (accurate in both tails)."""
    flat = np.ravel(x) / math.sqrt(2.0)
    return np.array([0.5 * math.erfc(-value) for value in flat.tolist()]).reshape(np.shape(x))


def normal_cvar_factor(alpha: float) -> float:
    """Return k with CVaR_α(N(μ, σ²)) = μ − kσ, which is k = pdf(z_α)/α."""
    standard = NormalDist()
    return standard.pdf(standard.inv_cdf(alpha)) / alpha


def discrete_cvar(values: FloatArray, probabilities: FloatArray, alpha: float) -> float:
    """Return CVaR_α of a law with finitely many values, the last atom counted in part.

    CVaR_α = (1/α) Σ_k w_k v_(k),  w_k = clip(α − F_(k−1), 0, p_(k)) on ascending values.

    Args:
        values: Values in any order. [K]
        probabilities: Their probabilities. [K]
        alpha: Share of the law in the tail, in (0, 1].
    """
    order = np.argsort(values, kind="stable")
    sorted_probabilities = probabilities[order]
    below = np.cumsum(sorted_probabilities) - sorted_probabilities
    weights = np.clip(alpha - below, 0.0, sorted_probabilities)
    # Dividing by the weight that was found keeps a rounded Σp = 1 − 1e-16 from biasing alpha = 1.
    return float(weights @ values[order] / weights.sum())


def sample_cvar(returns: FloatArray, alpha: float) -> float:
    """Return CVaR_α of the empirical law of ``returns``. [n]."""
    return discrete_cvar(returns, np.full(returns.size, 1.0 / returns.size), alpha)
