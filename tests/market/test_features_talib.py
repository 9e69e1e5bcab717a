"""Features equal TA-Lib after the warm-up, to 1e-9, and start at the same row."""

import numpy as np
import pytest
import talib

from quantail.market.features import (
    Atr,
    BollingerPosition,
    LogReturn,
    Macd,
    OnBalanceVolume,
    Rsi,
)
from quantail.market.features.ranges import true_range
from quantail.market.features.volume import on_balance_volume
from tests.market.feature_bars import random_columns

SEEDS = (0, 1, 2)


def assert_equal(ours: np.ndarray, theirs: np.ndarray) -> None:
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))
    np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("window", [2, 14, 50])
def test_rsi(seed, window):
    bars = random_columns(2000, seed)
    ours = Rsi(window=window).build()(bars)[:, 0]
    assert_equal(ours, talib.RSI(bars.close, window))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("fast", "slow", "signal"), [(12, 26, 9), (2, 3, 1), (10, 60, 20)])
def test_macd(seed, fast, slow, signal):
    bars = random_columns(2000, seed)
    theirs = talib.MACD(bars.close, fast, slow, signal)
    ours = Macd(fast=fast, slow=slow, signal=signal, relative=False).build()(bars)
    assert_equal(ours[:, 0], theirs[0])
    assert_equal(ours[:, 1], theirs[1])
    relative = Macd(fast=fast, slow=slow, signal=signal).build()(bars)
    assert_equal(relative[:, 0], theirs[0] / bars.close)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("window", [1, 14, 50])
def test_atr(seed, window):
    bars = random_columns(2000, seed)
    theirs = talib.ATR(bars.high, bars.low, bars.close, window)
    assert_equal(Atr(window=window, relative=False).build()(bars)[:, 0], theirs)
    natr = talib.NATR(bars.high, bars.low, bars.close, window)
    # TA-Lib's NATR with a window of 1 is the true range itself, not divided by the price.
    scale = bars.close / 100 if window > 1 else 1.0
    ours = Atr(window=window).build()(bars)[:, 0]
    assert_equal(ours * bars.close, natr * scale)


def test_true_range():
    bars = random_columns(500)
    assert_equal(
        true_range(bars.high, bars.low, bars.close),
        talib.TRANGE(bars.high, bars.low, bars.close),
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("window", "width"), [(2, 1.0), (20, 2.0), (100, 2.5)])
def test_bollinger_position(seed, window, width):
    bars = random_columns(2000, seed)
    upper, middle, lower = talib.BBANDS(bars.close, window, width, width)
    ours = BollingerPosition(window=window, width=width).build()(bars)[:, 0]
    # Bands rather than position: TA-Lib's running sums lose digits where a band is very narrow.
    reach = (upper - lower) / 2
    assert_equal(middle + ours * reach, bars.close + 0 * middle)
    wide = reach > 1e-3 * bars.close
    np.testing.assert_allclose(
        ours[wide], ((bars.close - middle) / reach)[wide], rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_on_balance_volume(seed):
    bars = random_columns(2000, seed)
    ours = OnBalanceVolume(window=None).build()(bars)[:, 0]
    assert_equal(ours, talib.OBV(bars.close, bars.volume))


def test_on_balance_volume_ignores_an_unchanged_close():
    close, volume = np.array([1.0, 2.0, 2.0, 1.0]), np.array([5.0, 7.0, 11.0, 13.0])
    ours = talib.OBV(close, volume)
    np.testing.assert_array_equal(ours, [5.0, 12.0, 12.0, -1.0])
    np.testing.assert_array_equal(on_balance_volume(close, volume), ours)


@pytest.mark.parametrize("horizon", [1, 5, 50])
def test_log_return(horizon):
    bars = random_columns(500)
    simple = talib.ROCP(bars.close, horizon)
    ours = LogReturn(horizons=(horizon,)).build()(bars)[:, 0]
    assert_equal(np.expm1(ours), simple)
