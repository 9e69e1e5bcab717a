"""The leak guard: planted leaks are named with their first bar, causal features pass."""

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from quantail.errors import ConfigError, DataError
from quantail.market.features import (
    BollingerPosition,
    LogReturn,
    Rsi,
    VolumeZScore,
    build_features,
    feature,
)
from quantail.market.leakage import LeakCheck, find_leaks, refuse_leaks, refuse_shared_timestamps
from quantail.market.perturbation import perturbed, spliced
from quantail.market.sources import SyntheticSource
from quantail.market.sources.laws import OrnsteinUhlenbeck
from quantail.testing import check_features
from tests.market.feature_bars import HOUR, START, as_bars, random_bars, random_columns
from tests.market.feature_trees import causal_expressions, leaking_expressions

QUICK = LeakCheck(dense_cuts=32, sampled_cuts=3, label_correlation=0.99)
LABELS = LeakCheck(dense_cuts=32, sampled_cuts=3)
BARS = random_bars(400)


def named(function, warmup=0, name="mine"):
    return feature(name=name, warmup=warmup)(function).build()


def first_leak(function, warmup=0, bars=BARS, check=None):
    report = find_leaks([named(function, warmup)], bars, check)
    return report.leaks[0] if report.leaks else None


# --- what the guard must see ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "warmup", "row"),
    [
        (lambda bars: bars["close"].shift(-1), 0, 0),
        (lambda bars: bars["close"].shift(-1), 7, 7),
        # Row 4 has the window 0..8, whose newest bar is 8.
        (lambda bars: bars["close"].rolling(9, center=True).mean(), 4, 4),
        (lambda bars: (bars["close"] - bars["close"].mean()) / bars["close"].std(), 0, 0),
        # Every tenth bar has a value; bar 0 has its own, bar 1 waits for bar 10.
        (lambda bars: bars["close"].where(np.arange(len(bars)) % 10 == 0).bfill(), 0, 1),
        # A warm-up that was filled from the future and not declared.
        (lambda bars: bars["close"].rolling(20).mean().bfill(), 0, 0),
    ],
    ids=["shift", "shift after warm-up", "centered", "z-score", "bfill", "filled warm-up"],
)
def test_the_first_offending_bar_is_named(function, warmup, row):
    leak = first_leak(function, warmup)
    assert leak.row == row
    assert leak.time == START + row * HOUR
    with pytest.raises(
        DataError, match=rf"'mine' fails the \w+ test, first at bar {row} of symbol 'AAA' \(2024-"
    ):
        check_features(named(function, warmup), BARS)


def test_the_same_rolling_window_without_the_fill_passes():
    function = lambda bars: bars["close"].rolling(20).mean().bfill()  # noqa: E731
    assert first_leak(function, warmup=19) is None


def test_a_leak_that_begins_late_is_found():
    """Only bars after the 250th look ahead, far beyond the stretch that is searched bar by bar."""

    def late(bars):
        x = bars["close"].copy()
        x[bars.index >= bars.index[0] + pd.Timedelta(hours=250)] = np.nan
        return x.fillna(bars["close"].shift(-3))

    leak = first_leak(late)
    assert leak is not None
    assert 250 <= leak.row < 400


def test_a_leak_with_a_long_reach_is_found():
    leak = first_leak(lambda bars: bars["close"].shift(-900), bars=random_bars(2000))
    assert leak.test == "truncation"


@pytest.mark.parametrize("fill", ["bfill", "interpolate"])
def test_a_single_filled_hole_is_found(fill):
    """One hole in 3,000 bars: sampled cuts would miss it, but a filled hole looks like one."""
    hole = START + 2345 * HOUR

    def filled(bars):
        holed = bars["close"].where(bars.index != pd.Timestamp(hole, tz="UTC"))
        return getattr(holed, fill)()

    leak = first_leak(filled, bars=random_bars(3000), check=QUICK)
    assert (leak.row, leak.time) == (2345, hole)


def test_rounding_that_depends_on_the_length_is_no_leak():
    """A causal filter by Fourier transform: the same numbers up to the last digits."""

    def filtered(bars):
        close = bars["close"].to_numpy()
        size = len(close) + 8
        kernel = np.full(8, 0.125)
        return np.fft.irfft(np.fft.rfft(close, size) * np.fft.rfft(kernel, size), size)[
            : len(close)
        ]

    values = [filtered(random_columns(n).to_frame())[10] for n in (50, 51, 52, 53)]
    assert len(set(values)) > 1
    assert first_leak(filtered, check=QUICK) is None


def test_each_column_is_judged_alone():
    def two(bars):
        return pd.DataFrame({"a": bars["close"].diff(), "b": bars["close"].diff().shift(-1)})

    built = feature(name=("good", "bad"), warmup=0)(two).build()
    report = find_leaks([built, *build_features([Rsi()])], BARS)
    assert [leak.column for leak in report.leaks] == ["bad"]
    assert report.columns == ("good", "bad", "rsi_14")


def test_perturbation_sees_what_truncation_cannot():
    """A jump alarm one bar early: no jump in these bars, so removing bars changes nothing."""

    def alarm(bars):
        close = bars["close"].to_numpy()
        return np.append(close[1:] > 1.2 * close[:-1], False) * 1.0

    leak = first_leak(alarm)
    assert leak.test == "perturbation"
    assert "when the later bars are altered" in leak.detail


@pytest.mark.parametrize("column", ["open", "high", "low", "close", "volume", "spread", "funding"])
def test_every_column_of_the_future_is_altered(column):
    noise = perturbed(random_columns(100), np.random.default_rng(0))
    mixed = spliced(random_columns(100), noise, 40)
    before, after = random_columns(100).to_frame(), mixed.to_frame()
    pd.testing.assert_frame_equal(after[:40], before[:40])
    assert (after[column][40:] != before[column][40:]).all()
    assert (after["high"] >= after[["open", "close"]].max(axis=1)).all()
    assert (after["low"] <= after[["open", "close"]].min(axis=1)).all()
    assert (after["low"] > 0).all()


def test_features_that_change_from_call_to_call_are_refused():
    rng = np.random.default_rng(0)
    leak = first_leak(lambda bars: bars["close"] * rng.random())
    assert leak.test == "repeat"


def test_a_future_read_from_elsewhere_is_found_by_the_label_shift():
    """A table of tomorrow's prices, looked up by time: cutting the bars does not touch it."""
    bars = random_bars(1000)
    index = pd.DatetimeIndex(bars.time).tz_localize("UTC")
    tomorrow = pd.Series(np.append(bars.close[1:], np.nan), index)

    leak = first_leak(lambda b: tomorrow.reindex(b.index) / b["close"] - 1.0, bars=bars)
    assert leak.test == "label-shift"
    assert "with the return 1 bar(s) later is 1.000" in leak.detail
    noise = np.random.default_rng(1).normal(0.0, 0.02, 1000)
    faint = pd.Series(np.append(np.diff(np.log(bars.close)), np.nan) + noise, index)
    limit = LeakCheck(dense_cuts=32, sampled_cuts=3, label_correlation=0.3)
    assert first_leak(lambda b: faint.reindex(b.index), bars=bars, check=limit).row == 0
    assert first_leak(lambda b: faint.reindex(b.index), bars=bars) is None


def test_label_shift_looks_several_bars_ahead():
    bars = random_bars(1000)
    index = pd.DatetimeIndex(bars.time).tz_localize("UTC")
    returns = pd.Series(np.diff(np.log(bars.close), prepend=np.nan), index)
    leak = first_leak(lambda b: returns.shift(-4).reindex(b.index), bars=bars)
    assert "with the return 4 bar(s) later" in leak.detail


# --- properties -----------------------------------------------------------------------------------


def assert_passes(expression):
    name, function = expression
    leak = first_leak(function, bars=random_bars(120), check=QUICK)
    assert leak is None, f"{name}: {leak}"


def assert_fails(expression):
    name, function = expression
    leak = first_leak(function, bars=random_bars(120), check=QUICK)
    assert leak is not None, name
    assert leak.column == "mine"


@settings(max_examples=20)
@given(expression=causal_expressions)
def test_causal_compositions_pass(expression):
    assert_passes(expression)


@settings(max_examples=100)
@given(expression=leaking_expressions)
def test_planted_leaks_fail(expression):
    assert_fails(expression)


@pytest.mark.verify
@settings(max_examples=500, derandomize=False)
@given(expression=causal_expressions)
def test_many_causal_compositions_pass(expression):
    assert_passes(expression)


@pytest.mark.verify
@settings(max_examples=2000, derandomize=False)
@given(expression=leaking_expressions)
def test_many_planted_leaks_fail(expression):
    assert_fails(expression)


# --- the verdict ----------------------------------------------------------------------------------


def test_all_leaking_columns_are_listed_with_advice():
    leaks = [
        named(lambda bars: bars["close"].shift(-1), name="one"),
        named(lambda bars: bars["close"].rank(), name="two"),
    ]
    with pytest.raises(DataError) as caught:
        refuse_leaks([*leaks, *build_features([Rsi()])], BARS)
    text = str(caught.value)
    assert text.startswith("2 feature column(s) use information from the future:")
    assert re.search(r"'one'.*\n.*'two'", text)
    assert "leak_check.allow" in text
    assert "rsi" not in text


def test_an_override_names_the_column_and_must_be_needed():
    leaking = named(lambda bars: bars["close"].shift(-1), name="oracle")
    report = refuse_leaks([leaking], BARS, LeakCheck(allow=("oracle",)))
    assert [leak.column for leak in report.leaks] == ["oracle"]
    for allow in (("oracle", "rsi_14"), ("oracle", "nonsense")):
        with pytest.raises(ConfigError, match=rf"leak_check.allow: .*'{allow[1]}' does not"):
            refuse_leaks([leaking, *build_features([Rsi()])], BARS, LeakCheck(allow=allow))


def test_the_longest_symbols_are_tried():
    sizes = {"A": 50, "B": 300, "C": 20, "D": 200}
    bars = as_bars(*(random_columns(n, 0, name) for name, n in sizes.items()))
    report = find_leaks(build_features([LogReturn()]), bars, LeakCheck(max_symbols=2))
    assert report.symbols == ("B", "D")


def test_too_few_bars_are_refused():
    with pytest.raises(DataError, match=r"at least 51 bars \(warm-up 19 and 32 more\).* has 40"):
        check_features(VolumeZScore(), random_bars(40))


def test_one_feature_or_several():
    assert check_features(Rsi(), BARS).columns == ("rsi_14",)
    assert check_features([Rsi(), LogReturn()], BARS).columns == ("rsi_14", "log_return_1")


# --- shared timestamps ----------------------------------------------------------------------------


def test_a_moment_on_two_sides_is_named():
    bars = random_bars(100, symbols=2)
    rows = {"train": np.arange(60), "test": np.arange(140, 200)}  # BBB's hours 40..99
    with pytest.raises(
        DataError,
        match=r"train and test share 20 bar time\(s\), the first at 2024-01-02T16:00:00\+00:00 "
        r"\(symbol 'BBB' in test\)",
    ):
        refuse_shared_timestamps(bars, rows)
    refuse_shared_timestamps(bars, {"train": np.arange(40), "test": np.arange(140, 200)})
    nothing = np.empty(0, dtype=np.int64)
    refuse_shared_timestamps(bars, {"train": np.arange(40), "validation": nothing})


# --- beyond the sampled symbols and rows ----------------------------------------------------------


def hole_filled(bars):
    return bars["close"].where(bars["volume"] > 0).bfill()


def with_idle(columns, row):
    volume = columns.volume.copy()
    volume[row] = 0.0
    return dataclasses.replace(columns, volume=volume)


def test_a_hole_in_a_symbol_that_is_not_sampled_is_found():
    parts = [random_columns(n, 0, name) for name, n in {"A": 90, "B": 80, "C": 70}.items()]
    short = with_idle(random_columns(60, 0, "D"), 41)
    leak = first_leak(hole_filled, bars=as_bars(*parts, short), check=QUICK)
    assert (leak.symbol, leak.row) == ("D", 41)
    causal = lambda bars: bars["close"].where(bars["volume"] > 0).ffill()  # noqa: E731
    assert first_leak(causal, bars=as_bars(*parts, short), check=QUICK) is None


def test_a_hole_after_the_rows_that_are_sampled_is_found():
    columns = with_idle(random_columns(20_300), 20_200)
    assert first_leak(hole_filled, bars=as_bars(columns), check=QUICK).row == 20_200


def test_the_first_bar_is_named_when_the_reach_exceeds_the_dense_cuts():
    bars = random_bars(15_000)
    assert first_leak(lambda b: b["close"].shift(-200), bars=bars).row == 0
    assert first_leak(lambda b: b["close"].shift(-200), 7, bars=bars).row == 7


def test_a_large_level_does_not_hide_a_leak():
    function = lambda b: 1e12 + b["close"].shift(-1).fillna(b["close"])  # noqa: E731
    assert first_leak(function, check=QUICK).row == 0
    assert first_leak(lambda b: 1e12 + b["close"], check=QUICK) is None


def test_a_predictable_market_is_no_leak_of_built_in_features():
    law = OrnsteinUhlenbeck(reversion=2.0)
    bars = SyntheticSource(bars=600, steps_per_bar=2, law=law).load()
    assert not find_leaks(build_features([BollingerPosition(), Rsi()]), bars, LABELS).leaks
    own = lambda b: b["close"] / b["close"].rolling(20).mean()  # noqa: E731
    leak = first_leak(own, 19, bars=bars, check=LABELS)
    assert leak.test == "label-shift"
    assert "or the market is that predictable; raise leak_check.label_correlation" in leak.detail


def test_a_warmup_declared_too_short_is_refused():
    mean = lambda bars: bars["close"].rolling(50).mean()  # noqa: E731
    with pytest.raises(
        DataError, match=r"'mine' has no value at bar 40, straight after its declared warm-up"
    ):
        check_features(named(mean, 40), BARS, LABELS)
    assert check_features(named(mean, 49), BARS, LABELS).columns == ("mine",)
