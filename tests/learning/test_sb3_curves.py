"""Same script, same curves: our agent set to PPO's estimator beside PPO; run by ``make verify``."""

import numpy as np
import pytest

from tests.learning.sb3_curves import (
    AREA_MARGIN,
    FINAL_MARGIN,
    PROBLEMS,
    Difference,
    compare,
    p_value,
    train,
)


@pytest.mark.verify
@pytest.mark.parametrize("name", PROBLEMS)
def test_curves_are_equal_within_seed_noise_and_the_comparison_would_see_a_fault(name: str) -> None:
    problem, curves = PROBLEMS[name], train(name)
    area, final = compare(curves["ours"], curves["PPO"])
    assert area.is_none(AREA_MARGIN * problem.reach), area
    assert final.is_none(FINAL_MARGIN * problem.reach), final
    if "slow" in curves:
        area, _ = compare(curves["slow"], curves["PPO"])
        assert not area.is_none(AREA_MARGIN * problem.reach), area


def test_permutations_by_hand() -> None:
    # Of the 6 ways to deal 1, 2, 5, 6 into pairs, 2 have means as far apart as {1, 2} and {5, 6}.
    assert p_value(np.array([1.0, 2.0]), np.array([5.0, 6.0])) == pytest.approx(2 / 6)
    # {1, 6} and {2, 5}: equal means, so every way is at least as far apart.
    assert p_value(np.array([1.0, 6.0]), np.array([2.0, 5.0])) == 1.0
    # Of the 4 ways to take one of 0, 0, 0, 9, one has the gap of {9} and {0, 0, 0}.
    assert p_value(np.array([9.0]), np.zeros(3)) == pytest.approx(1 / 4)


def test_no_difference_needs_a_narrow_interval_too() -> None:
    first, second = np.arange(5.0), np.arange(5.0) + np.array([0.1, 0.1, 0.0, -0.1, -0.1])
    gap = Difference.of(first, second)
    assert gap.is_none(5.0)
    assert not gap.is_none(1.0)  # the interval is about ±2.2
    assert not Difference.of(first - 10, second).is_none(20.0)  # no overlap: p = 2 / 252
    assert Difference.of(np.ones(3), np.ones(3)) == Difference(0.0, 0.0, 0.0, 1.0)
