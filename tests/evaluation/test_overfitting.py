import itertools
import math

import numpy as np
import pytest

from quantail.errors import DataError
from quantail.evaluation.overfitting import (
    deflated_sharpe,
    deflated_sharpe_of,
    expected_maximum_sharpe,
    probability_of_overfitting,
)


def test_the_worked_example_of_bailey_and_lopez_de_prado():
    # Their example: 100 trials whose yearly Sharpe ratios have variance 1/2, of which the best has
    # 2.5 over 1250 days (250 a year), skewness -3 and kurtosis 10.
    # SR0 = sqrt(1/(2·250)) · ((1-γ)·Φ⁻¹(.99) + γ·Φ⁻¹(1-1/(100e)))
    #     = .0447214 · (.4227843·2.3263479 + .5772157·2.6794…) = .1132
    threshold = expected_maximum_sharpe(100, 0.5 / 250)
    assert threshold == pytest.approx(0.1132, abs=5e-5)
    # SR = 2.5/√250 = .158114; spread² = 1 + 3·.158114 + 9/4·.025 = 1.530592
    # z = (.158114 - .1132)·√1249/√1.530592 = 1.2837; Φ(z) = .9004
    found = deflated_sharpe(2.5 / math.sqrt(250), threshold, 1250, -3.0, 10.0)
    assert found == pytest.approx(0.9004, abs=1e-4)
    # with 46 trials instead it would have passed at 95 %
    fewer = expected_maximum_sharpe(46, 0.5 / 250)
    assert deflated_sharpe(2.5 / math.sqrt(250), fewer, 1250, -3.0, 10.0) == pytest.approx(
        0.9505, abs=1e-4
    )


def test_the_expected_maximum_is_that_of_normal_draws():
    rng = np.random.default_rng(0)
    best = rng.normal(0.0, 0.2, (4000, 50)).max(axis=1)
    assert expected_maximum_sharpe(50, 0.04) == pytest.approx(best.mean(), rel=0.02)
    assert expected_maximum_sharpe(1, 0.04) == 0.0
    assert expected_maximum_sharpe(2, 0.04) > 0.1  # the larger of two has 0.2/√π = 0.113


def test_more_trials_leave_less():
    returns = np.random.default_rng(1).normal(0.001, 0.01, 500)
    values = [deflated_sharpe_of(returns, n)[0] for n in (1, 2, 10, 100, 1000)]
    assert values == sorted(values, reverse=True)
    assert values[0] > 0.9
    assert values[-1] < 0.5


def test_a_single_trial_of_noise_is_uniform():
    rows = np.random.default_rng(2).standard_t(5, (2000, 250))
    values = np.array([deflated_sharpe_of(row, 1)[0] for row in rows])
    assert (values > 0.95).mean() == pytest.approx(0.05, abs=0.015)
    assert values.mean() == pytest.approx(0.5, abs=0.02)


def test_the_best_of_many_trials_of_noise_is_not_significant():
    rng = np.random.default_rng(3)
    passed = 0
    for _ in range(300):
        trials = rng.normal(0.0, 0.01, (200, 20))
        sharpes = trials.mean(axis=0) / trials.std(axis=0, ddof=1)
        best = trials[:, sharpes.argmax()]
        passed += deflated_sharpe_of(best, 20, sharpes)[0] > 0.95
    assert passed <= 15  # 5 % of 300 and less


def test_what_has_no_spread_has_no_deflated_sharpe():
    assert math.isnan(deflated_sharpe_of(np.zeros(100), 3)[0])
    assert math.isnan(deflated_sharpe(0.1, 0.0, 1, 0.0, 3.0))


def test_no_trials_are_refused():
    with pytest.raises(DataError, match="n_trials must be at least 1; was 0"):
        expected_maximum_sharpe(0, 1.0)


def test_overfitting_of_noise_is_one_half():
    rng = np.random.default_rng(4)
    values = [probability_of_overfitting(rng.normal(size=(320, 9)), 8) for _ in range(60)]
    assert np.mean(values) == pytest.approx(0.5, abs=0.08)


def test_one_truly_good_trial_is_found_again():
    returns = np.random.default_rng(5).normal(size=(640, 10))
    returns[:, 3] += 0.5
    assert probability_of_overfitting(returns) == 0.0


def test_overfitting_equals_a_plain_count():
    returns = np.random.default_rng(6).normal(size=(96, 5))
    blocks = np.split(returns, 6)
    below = []
    for chosen in itertools.combinations(range(6), 3):
        inside = np.concatenate([blocks[i] for i in chosen])
        outside = np.concatenate([blocks[i] for i in range(6) if i not in chosen])
        best = (inside.mean(0) / inside.std(0)).argmax()
        ratios = outside.mean(0) / outside.std(0)
        rank = 1 + sum(ratio < ratios[best] for ratio in ratios)
        below.append(math.log(rank / (6 - rank)) <= 0.0)
    assert probability_of_overfitting(returns, 6) == pytest.approx(np.mean(below))


def test_copies_of_one_trial_are_not_better_than_the_median():
    returns = np.repeat(np.random.default_rng(7).normal(size=(64, 1)), 4, axis=1)
    assert probability_of_overfitting(returns, 4) == 1.0
    assert probability_of_overfitting(np.zeros((64, 3)), 4) == 1.0


@pytest.mark.parametrize(
    ("shape", "blocks", "message"),
    [
        ((100, 1), 4, "at least 2 trials"),
        ((100,), 4, "at least 2 trials"),
        ((100, 3), 5, "must be even"),
        ((20, 3), 16, "half of the 20 bars; was 16"),
    ],
)
def test_too_little_for_cross_validation_is_refused(shape, blocks, message):
    with pytest.raises(DataError, match=message):
        probability_of_overfitting(np.zeros(shape), blocks)
