"""What many trials do to the best one: deflated Sharpe ratio, probability of overfitting."""

import itertools
import math
from statistics import NormalDist
from typing import Final

import numpy as np

from quantail.errors import DataError
from quantail.types import FloatArray

_EULER: Final = 0.5772156649015329
_NORMAL: Final = NormalDist()


def expected_maximum_sharpe(n_trials: int, variance: float) -> float:
    """Return the Sharpe ratio that the best of N trials without skill has on average.

    SR₀ = √V · ((1 − γ) Φ⁻¹(1 − 1/N) + γ Φ⁻¹(1 − 1/(N e))), γ the Euler–Mascheroni constant.

    Args:
        n_trials: N, the independent trials; 0 is returned for one.
        variance: V, of the trials' Sharpe ratios per bar.

    References:
        Bailey, López de Prado: The deflated Sharpe ratio, J. Portfolio Management 40(5), 2014.
    """
    if n_trials < 1:
        raise DataError(f"n_trials must be at least 1; was {n_trials}. Count the judged agent.")
    if n_trials == 1:
        return 0.0
    first = _NORMAL.inv_cdf(1.0 - 1.0 / n_trials)
    second = _NORMAL.inv_cdf(1.0 - 1.0 / (n_trials * math.e))
    return math.sqrt(variance) * ((1.0 - _EULER) * first + _EULER * second)


def deflated_sharpe(
    sharpe: float, threshold: float, n_bars: int, skewness: float, kurtosis: float
) -> float:
    """Return the probability that the true Sharpe ratio exceeds ``threshold``.

    DSR = Φ((SR − SR₀) √(T − 1) / √(1 − γ₃ SR + (γ₄ − 1)/4 · SR²)), all per bar.

    Args:
        sharpe: SR, measured.
        threshold: SR₀, as of :func:`expected_maximum_sharpe`; 0 for a single trial.
        n_bars: T.
        skewness: γ₃ of the returns.
        kurtosis: γ₄, 3 for a normal law.
    """
    if n_bars < 2 or not math.isfinite(sharpe):
        return math.nan
    spread = 1.0 - skewness * sharpe + 0.25 * (kurtosis - 1.0) * sharpe * sharpe
    if spread <= 0.0:
        return math.nan
    return _NORMAL.cdf((sharpe - threshold) * math.sqrt(n_bars - 1.0) / math.sqrt(spread))


def deflated_sharpe_of(
    returns: FloatArray, n_trials: int, trial_sharpes: FloatArray | None = None
) -> tuple[float, float]:
    """Return the deflated Sharpe ratio of returns [T] and the threshold SR₀ it was held against.

    Without the trials' own ratios their variance is taken as 1/(T − 1), that of a ratio measured on
    T bars without skill.
    """
    count = len(returns)
    spread = float(returns.std(ddof=1)) if count > 1 else 0.0
    if spread == 0.0:
        return math.nan, math.nan
    if trial_sharpes is not None and len(trial_sharpes) > 1:
        variance = float(trial_sharpes.var(ddof=1))
    else:
        variance = 1.0 / (count - 1)
    threshold = expected_maximum_sharpe(n_trials, variance)
    standard = (returns - returns.mean()) / returns.std()
    skewness, kurtosis = float((standard**3).mean()), float((standard**4).mean())
    ratio = float(returns.mean()) / spread
    return deflated_sharpe(ratio, threshold, count, skewness, kurtosis), threshold


def probability_of_overfitting(returns: FloatArray, n_blocks: int = 16) -> float:
    """Return how often the best trial in one half of the bars is below the median in the other.

    Combinatorially symmetric cross-validation: the bars are cut into S blocks; for each choice of
    S/2 of them, the trial with the best Sharpe ratio inside is ranked among all trials outside;
    PBO is the share of choices in which its rank is not above the middle.

    Args:
        returns: [T, N] of N trials over the same bars.
        n_blocks: S, even; bars that do not fill the blocks are left out at the end.

    Raises:
        DataError: When there are fewer than two trials or two bars for each block.

    References:
        Bailey, Borwein, López de Prado, Zhu: The probability of backtest overfitting, J.
        Computational Finance 20(4), 2017.
    """
    if returns.ndim != 2 or returns.shape[1] < 2:
        raise DataError(
            f"returns must be [bars, trials] with at least 2 trials; was {list(returns.shape)}."
        )
    if n_blocks < 2 or n_blocks % 2 or returns.shape[0] < 2 * n_blocks:
        raise DataError(
            f"n_blocks must be even, at least 2 and at most half of the {returns.shape[0]} bars; "
            f"was {n_blocks}."
        )
    size = returns.shape[0] // n_blocks
    blocks = returns[: size * n_blocks].reshape(n_blocks, size, -1)
    sums, squares = blocks.sum(axis=1), (blocks**2).sum(axis=1)  # [S, N]
    chosen = list(itertools.combinations(range(n_blocks), n_blocks // 2))
    inside = np.zeros((len(chosen), n_blocks))
    np.put_along_axis(inside, np.array(chosen), 1.0, axis=1)
    bars = size * n_blocks // 2
    within = _sharpe(inside @ sums, inside @ squares, bars)
    outside = _sharpe((1.0 - inside) @ sums, (1.0 - inside) @ squares, bars)
    best = within.argmax(axis=1)
    rows = np.arange(len(chosen))
    mark = outside[rows, best][:, None]
    # The rank counts from 1; ties, as of copies of one trial, share their mean rank.
    rank = (outside < mark).sum(axis=1) + 0.5 * ((outside == mark).sum(axis=1) + 1)
    return float((rank / (returns.shape[1] + 1) <= 0.5).mean())


def _sharpe(sums: FloatArray, squares: FloatArray, count: int) -> FloatArray:
    """Return mean over deviation; a trial that never trades has 0."""
    mean = sums / count
    variance = squares / count - mean**2
    known = variance > 1e-14 * squares / count
    return np.where(known, mean / np.sqrt(np.where(known, variance, 1.0)), 0.0)
