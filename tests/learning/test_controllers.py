"""What the controllers are worth; run by ``make verify``. Figures stand in docs/controllers.md."""

import statistics

import numpy as np
import pytest
from scipy import stats

from tests.learning.controllers import LOCK_STEPS, cartpole, lock_steps

SEEDS = range(5)


def interval(first: list[float], second: list[float]) -> tuple[float, float]:
    """Return the 95 % interval of the difference of the means (Welch)."""
    low, high = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    return float(low), float(high)


@pytest.mark.verify
def test_the_kl_controller_saves_runs_with_a_rate_too_high() -> None:
    better = []
    for factor in (10.0, 30.0):
        held = [cartpole(factor, True, seed) for seed in SEEDS]
        free = [cartpole(factor, False, seed) for seed in SEEDS]
        better.append(interval(held, free)[0] > 0)
    assert any(better)


@pytest.mark.verify
def test_demonstrations_halve_the_steps_to_a_rare_reward() -> None:
    shown = [lock_steps(True, seed) for seed in range(3)]
    alone = [lock_steps(False, seed) for seed in range(3)]
    assert max(shown) < LOCK_STEPS
    assert statistics.mean(shown) < statistics.mean(alone) / 2


def test_the_interval_by_hand() -> None:
    """Means 3 and 1, variances 1 each, n = 3: 2 ± t(4) sqrt(2/3), t(4) = 2.776."""
    low, high = interval([2.0, 3.0, 4.0], [0.0, 1.0, 2.0])
    assert (low, high) == pytest.approx(
        (2 - 2.7764 * np.sqrt(2 / 3), 2 + 2.7764 * np.sqrt(2 / 3)), abs=1e-3
    )
