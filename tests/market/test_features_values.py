"""Features against plain Python, missing values, and symbols that must not mix."""

import dataclasses
import math
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from quantail.errors import ConfigError, DataError
from quantail.market.features import (
    Atr,
    BollingerPosition,
    FeatureTable,
    LogReturn,
    Macd,
    OnBalanceVolume,
    ParkinsonVolatility,
    QuotedSpread,
    RealizedVolatility,
    Rsi,
    TimeOfDay,
    TimeOfWeek,
    TimeSinceGap,
    VolumeZScore,
    YangZhangVolatility,
    build_features,
    compute_features,
)
from quantail.market.features.clock import time_since_gap
from tests.market.feature_bars import HOUR, START, as_bars, random_bars, random_columns
from tests.reference import features as plain

ALL = (
    LogReturn(horizons=(1, 5)),
    LogReturn(price="adjusted_close"),
    RealizedVolatility(window=7),
    ParkinsonVolatility(window=7),
    YangZhangVolatility(window=7),
    Rsi(window=7),
    Macd(fast=3, slow=6, signal=4),
    Macd(fast=3, slow=6, signal=4, relative=False),
    Atr(window=7),
    Atr(window=7, relative=False),
    BollingerPosition(window=7),
    OnBalanceVolume(window=7),
    OnBalanceVolume(window=None),
    VolumeZScore(window=7),
    QuotedSpread(),
    TimeOfDay(),
    TimeOfWeek(timezone="America/New_York"),
    TimeSinceGap(limit=7),
)
IDS = [config.build().names[0] for config in ALL]


@pytest.mark.parametrize("window", [2, 20, 50])
def test_window_features_equal_plain_python(window):
    bars = random_columns(120)
    o, h, lo, c, v = (list(getattr(bars, n)) for n in ("open", "high", "low", "close", "volume"))
    cases = {
        RealizedVolatility(window=window): lambda t: plain.realized_volatility(c, t, window),
        ParkinsonVolatility(window=window): lambda t: plain.parkinson_volatility(h, lo, t, window),
        YangZhangVolatility(window=window): lambda t: plain.yang_zhang_volatility(
            o, h, lo, c, t=t, window=window
        ),
        BollingerPosition(window=window, width=1.0): lambda t: plain.z_score(c, t, window),
        VolumeZScore(window=window): lambda t: plain.z_score(v, t, window),
        OnBalanceVolume(window=window): lambda t: plain.signed_volume_share(c, v, t, window),
    }
    for config, expected in cases.items():
        feature = config.build()
        values = feature(bars)[:, 0]
        rows = range(feature.warmup, bars.n_bars)
        np.testing.assert_allclose(
            values[feature.warmup :], [expected(t) for t in rows], rtol=1e-10, err_msg=str(config)
        )


def test_time_since_gap_counts_bars_since_the_last_pause():
    rng = np.random.default_rng(3)
    steps = np.where(rng.random(200) < 0.06, 5, 1)
    time = START + np.cumsum(steps) * HOUR
    clock = [datetime.fromtimestamp(t, UTC) for t in time.astype("M8[s]").astype(int)]
    got = time_since_gap(time, HOUR, 12)
    for t in range(200):
        expected = plain.bars_since_gap(clock, timedelta(hours=1), t, 12)
        assert math.isnan(got[t]) if expected is None else got[t] == expected


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_clock_features_follow_the_wall_clock(zone):
    # 15 minutes times 40,000 cross both changes of the clock in 2024.
    n = 40_000
    columns = dataclasses.replace(
        random_columns(n), time=START + np.arange(n) * np.timedelta64(900, "s")
    )
    days = TimeOfDay(timezone=zone).build()(columns)
    weeks = TimeOfWeek(timezone=zone).build()(columns)
    for t in range(0, n, 77):
        moment = datetime.fromtimestamp(int(columns.time[t].astype("M8[s]").astype(int)), UTC)
        local = moment.astimezone(ZoneInfo(zone))
        for values, period in ((days, 1), (weeks, 7)):
            angle = plain.clock_angle(local, period)
            assert values[t] == pytest.approx([math.sin(angle), math.cos(angle)], abs=1e-9)


@pytest.mark.parametrize("config", ALL, ids=IDS)
def test_warmup_is_exactly_the_rows_without_value(config):
    feature = config.build()
    values = feature(random_columns(60))
    assert np.isnan(values[: feature.warmup]).all()
    assert np.isfinite(values[feature.warmup :]).all()
    raw = np.array(feature.compute(random_columns(60))).reshape(60, -1)
    if feature.warmup:
        # One row earlier there is no value for the slowest column, so nothing is thrown away.
        assert np.isnan(raw[feature.warmup - 1]).any()


@pytest.mark.parametrize("config", ALL, ids=IDS)
@pytest.mark.parametrize("length", [0, 1, 2, 7])
def test_short_series_give_missing_values(config, length):
    feature = config.build()
    values = feature(random_columns(60).rows(0, length))
    assert values.shape == (length, len(feature.names))
    assert np.isnan(values[: feature.warmup]).all()


@pytest.mark.parametrize("config", ALL, ids=IDS)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_missing_input_never_becomes_a_number(config, bad):
    """Wherever changing an input moves a value, a missing input must leave no value."""
    feature = config.build()
    columns = random_columns(60)
    clean = feature(columns)
    row = 30
    for name in ("open", "high", "low", "close", "volume", "spread", "adjusted_close"):
        series = getattr(columns, name)
        moved_series, bad_series = series.copy(), series.copy()
        moved_series[row] *= 1.5 if name != "low" else 0.5
        bad_series[row] = bad
        moved = feature(dataclasses.replace(columns, **{name: moved_series})) != clean
        moved &= np.isfinite(clean)
        missing = np.isnan(feature(dataclasses.replace(columns, **{name: bad_series})))
        assert not (moved & ~missing).any(), f"{name}: {np.argwhere(moved & ~missing)[:3]}"


def test_nothing_is_invented_where_the_price_stands_still():
    n = 60
    flat = np.full(n, 0.1)
    columns = dataclasses.replace(
        random_columns(n), open=flat, high=flat, low=flat, close=flat, volume=np.zeros(n)
    )
    for config in (
        Rsi(window=7),
        BollingerPosition(window=7),
        VolumeZScore(window=7),
        OnBalanceVolume(window=7),
    ):
        assert np.isnan(config.build()(columns)).all(), config
    for config in (RealizedVolatility(window=7), Atr(window=7)):
        feature = config.build()
        assert (feature(columns)[feature.warmup :] == 0.0).all()


def test_windows_forget_a_large_value_without_residue():
    """A running sum would keep the rounding of 1e12 for good; a fresh sum does not."""
    n = 60
    volume = np.full(n, 3.3)
    volume[10] = 1e12
    columns = dataclasses.replace(random_columns(n), volume=volume)
    values = VolumeZScore(window=5).build()(columns)[:, 0]
    assert np.isfinite(values[10:15]).all()
    assert np.isnan(values[15:]).all()


def test_symbols_do_not_bleed_into_each_other():
    parts = [random_columns(80, seed, name) for seed, name in enumerate(("AAA", "BBB", "CCC"))]
    parts[1] = parts[1].rows(0, 37)
    features = build_features([config for config in ALL if "adjusted" not in str(config)])
    together = compute_features(as_bars(*parts), features)
    apart = [compute_features(as_bars(part), features).values for part in parts]
    np.testing.assert_array_equal(together.values, np.concatenate(apart))
    assert together.warmup == max(feature.warmup for feature in features)
    np.testing.assert_array_equal(together.valid, np.isfinite(together.values))


def test_no_features_give_an_empty_table():
    table = compute_features(random_bars(10), ())
    assert table.values.shape == (10, 0)
    assert table.warmup == 0


def test_tables_are_read_only_and_consistent():
    table = compute_features(random_bars(20), build_features([LogReturn()]))
    with pytest.raises(ValueError, match="read-only"):
        table.values[0, 0] = 1.0
    with pytest.raises(DataError, match="finite value exactly where valid"):
        FeatureTable(("x",), np.array([[1.0]]), np.array([[False]]), 0)
    with pytest.raises(DataError, match=r"shape \[rows, 2\]"):
        FeatureTable(("x", "y"), np.array([[1.0]]), np.array([[True]]), 0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LogReturn(horizons=(1, 0)), "at least 1 bar.*look at the present or the future"),
        (lambda: LogReturn(horizons=(2, 2)), "must differ"),
        (lambda: LogReturn(horizons=()), "at least 1 item"),
        (lambda: Macd(fast=26, slow=12), r"fast: must be less than slow \(12\); was 26"),
        (lambda: YangZhangVolatility(window=1), "window: must be at least 2; was 1"),
        (lambda: TimeOfDay(timezone="Mars/Olympus"), "timezone: must be a time zone's name.*Mars"),
        (lambda: TimeOfWeek(timezone=""), "timezone: must be a time zone's name"),
        (lambda: build_features([Rsi(), Rsi()]), "different column names.*rsi_14"),
    ],
)
def test_refused_settings(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("config", "column"),
    [(QuotedSpread(), "spread"), (LogReturn(price="adjusted_close"), "adjusted_close")],
)
def test_an_absent_column_is_refused_by_name(config, column):
    columns = dataclasses.replace(random_columns(30), **{column: None})
    with pytest.raises(DataError, match=rf"{column}.*'AAA'"):
        config.build()(columns)
