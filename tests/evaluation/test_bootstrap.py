import math
import warnings

import numpy as np
import pytest
from arch.bootstrap import StationaryBootstrap, optimal_block_length

from quantail.errors import DataError
from quantail.evaluation import bootstrap as module
from quantail.evaluation import measures as m
from quantail.evaluation.bootstrap import (
    BootstrapConfig,
    block_length,
    intervals,
    mean_test,
    resample,
)

FEW = BootstrapConfig(samples=199)


def autoregression(rng, rho, shape):
    """Return stationary AR(1) rows with standard normal innovations."""
    noise = rng.normal(size=shape)
    rows = np.empty(shape)
    rows[:, 0] = noise[:, 0] / math.sqrt(1.0 - rho * rho)
    for t in range(1, shape[1]):
        rows[:, t] = rho * rows[:, t - 1] + noise[:, t]
    return rows


def test_blocks_follow_one_another_on_a_circle():
    index = resample(50, 5.0, 400, np.random.default_rng(0))
    assert index.shape == (400, 50)
    assert index.min() == 0
    assert index.max() == 49
    follows = (np.diff(index, axis=1) % 50) == 1
    # a new block begins with probability 1/5, and by chance goes on in place with 1/50 of that
    assert follows.mean() == pytest.approx(1 - 1 / 5 + 1 / 250, abs=0.01)
    assert np.bincount(index.ravel(), minlength=50).std() < 60  # all bars alike: 400 ± 20 and more


def test_blocks_of_length_one_are_independent_draws():
    index = resample(40, 1.0, 500, np.random.default_rng(0))
    assert ((np.diff(index, axis=1) % 40) == 1).mean() == pytest.approx(1 / 40, abs=0.006)


def test_the_spread_of_resampled_means_is_that_of_arch():
    series = autoregression(np.random.default_rng(3), 0.6, (1, 400))[0]
    ours = series[resample(400, 12.0, 3000, np.random.default_rng(1))].mean(axis=1)
    library = StationaryBootstrap(12, series, seed=np.random.default_rng(2))
    theirs = np.array([data[0].mean() for data, _ in library.bootstrap(3000)])
    assert ours.std() == pytest.approx(theirs.std(), rel=0.06)
    assert ours.mean() == pytest.approx(series.mean(), abs=4 * ours.std() / math.sqrt(3000))


def test_block_length_is_that_of_arch_within_bounds():
    series = autoregression(np.random.default_rng(3), 0.6, (1, 400))[0]
    assert block_length(series) == float(optimal_block_length(series)["stationary"].iloc[0])
    assert block_length(np.random.default_rng(0).normal(size=300)) >= 1.0
    trend = np.cumsum(np.random.default_rng(0).normal(size=80))
    assert block_length(trend) == 80 / 8


@pytest.mark.parametrize("series", [np.zeros(100), np.full(50, 0.3), np.arange(5.0)])
def test_block_length_without_information_is_one(series):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert block_length(series) == 1.0


def _misses(rows, settings=FEW):
    """Return how often the interval lies above and below the true mean of zero, as shares."""
    tests = [mean_test(row, settings).mean for row in rows]
    low, high = np.array([(test.low, test.high) for test in tests]).T
    return (low > 0.0).mean(), (high < 0.0).mean()


@pytest.mark.parametrize("rho", [0.0, 0.5])
def test_intervals_cover_the_true_mean_at_their_level(rho):
    # 95 %: 2.5 % on each side; 300 series: three standard errors are 2.7 %
    above, below = _misses(autoregression(np.random.default_rng(7), rho, (300, 200)))
    assert above < 0.052
    assert below < 0.052
    assert above + below > 0.02


def test_ignoring_dependence_would_not_cover():
    rows = autoregression(np.random.default_rng(7), 0.5, (200, 200))
    tests = [mean_test(row, FEW, block=1.0).mean for row in rows]
    assert np.mean([test.low > 0.0 or test.high < 0.0 for test in tests]) > 0.15


def test_small_gains_and_rare_losses_are_not_taken_for_skill():
    rng = np.random.default_rng(11)
    above, _ = _misses(1.0 - rng.exponential(size=(300, 200)))
    assert above < 0.052


@pytest.mark.verify
@pytest.mark.parametrize("law", ["independent", "dependent", "skewed"])
def test_false_positives_stay_at_the_level_over_many_series(law):
    # 4000 series: standard error 0.25 %; 2.5 % and the block length's own error of 0.4 %
    rng = np.random.default_rng(23)
    rows = {
        "independent": lambda: rng.normal(size=(4000, 300)),
        "dependent": lambda: autoregression(rng, 0.3, (4000, 300)),
        "skewed": lambda: 1.0 - rng.exponential(size=(4000, 300)),
    }[law]()
    above, _ = _misses(rows, BootstrapConfig(samples=399))
    assert above < 0.025 + 0.004 + 3 * 0.0025


def test_p_value_and_interval_agree():
    rng = np.random.default_rng(0)
    for shift in (0.0, 0.1, 0.2, 0.3):
        result = mean_test(rng.normal(shift, 1.0, 150), FEW)
        assert (result.mean.low > 0.0) == (result.p_value <= 0.025)


def test_a_higher_level_is_wider_and_a_seed_repeats():
    series = np.random.default_rng(0).normal(size=200)
    narrow = mean_test(series, BootstrapConfig(confidence=0.8, samples=199)).mean
    wide = mean_test(series, BootstrapConfig(confidence=0.99, samples=199)).mean
    assert wide.low < narrow.low < narrow.value < narrow.high < wide.high
    assert mean_test(series, FEW) == mean_test(series, FEW)
    assert mean_test(series, FEW) != mean_test(series, BootstrapConfig(samples=199, seed=1))


def test_long_series_are_resampled_less_often(monkeypatch):
    series = np.random.default_rng(0).normal(0.5, 1.0, 300)
    monkeypatch.setattr(module, "_MOST_BARS", 300 * 250)
    found = mean_test(series, BootstrapConfig(samples=1000))
    assert found.p_value == pytest.approx(1 / 251, rel=1e-12)  # none of 250 resamples reaches it
    monkeypatch.setattr(module, "_MOST_BARS", 1)
    assert mean_test(series, BootstrapConfig(samples=1000)).p_value == pytest.approx(1 / 201)
    monkeypatch.setattr(module, "_CHUNK", 300 * 64)
    assert mean_test(series, BootstrapConfig(samples=1000)).p_value == pytest.approx(1 / 201)


def test_short_and_constant_series():
    short = mean_test(np.arange(10.0), FEW)
    assert (short.mean.low, short.mean.high, short.p_value) == (None, None, 1.0)
    assert short.mean.covers(0.0)
    idle = mean_test(np.zeros(100), FEW)
    assert (idle.mean.low, idle.mean.high, idle.p_value) == (0.0, 0.0, 1.0)
    assert math.isnan(mean_test(np.zeros(0), FEW).mean.value)


def test_returns_that_are_no_numbers_are_refused():
    with pytest.raises(DataError, match="returns must be finite; bar 3 is nan"):
        mean_test(np.array([0.0, 0.1, 0.2, math.nan] * 10), FEW)


def test_pairs_of_bars_stay_pairs():
    rng = np.random.default_rng(0)
    common, own = rng.normal(size=300), 0.01 * rng.normal(size=300)
    columns = np.stack([common + own, common])
    difference = intervals(
        columns, {"mean": lambda c: np.asarray((c[..., 0, :] - c[..., 1, :]).mean(-1))}, 1.0, FEW
    )["mean"]
    # the common part cancels: the width is that of the small one, 4 · 0.01/√300
    assert difference.high - difference.low < 0.004
    assert difference.value == pytest.approx(own.mean())


def test_intervals_of_measures_cover_and_say_when_they_cannot():
    rows = np.random.default_rng(5).normal(0.0, 0.01, (100, 250))
    hits = 0
    for row in rows:
        measured = intervals(row[None], {"s": lambda c: m.volatility(c[..., 0, :], 1.0)}, 1.0, FEW)
        hits += measured["s"].covers(0.01)
    assert hits >= 87  # 95 % less three standard errors and the percentile's own shortfall
    gains = np.abs(rows[0])
    undefined = intervals(gains[None], {"p": lambda c: m.profit_factor(c[..., 0, :])}, 1.0, FEW)
    assert math.isnan(undefined["p"].value)
    assert undefined["p"].low is None
    assert (
        intervals(rows[:1, :10], {"s": lambda c: c[..., 0, :].std(-1)}, 1.0, FEW)["s"].low is None
    )
