"""The pipeline knows training rows alone, says which, and refuses hindsight."""

import dataclasses
import json

import numpy as np
import pytest

from quantail.errors import ConfigError, DataError
from quantail.market.features import (
    FeatureTable,
    LogReturn,
    Rsi,
    TimeOfDay,
    VolumeZScore,
    build_features,
    compute_features,
)
from quantail.market.pipeline import FeaturePipeline, PipelineConfig
from quantail.market.segments import TimeWindow
from tests.market.feature_bars import HOUR, START, as_bars, random_bars, random_columns


def hours(start: int, stop: int) -> TimeWindow:
    return TimeWindow(START + start * HOUR, START + stop * HOUR)


BARS = random_bars(400, symbols=2)
FEATURES = build_features([LogReturn(horizons=(1, 5)), Rsi(), VolumeZScore()])
TABLE = compute_features(BARS, FEATURES)
TRAIN, TEST = hours(0, 250), hours(260, 400)


def table_of(values: np.ndarray, warmup: int = 0) -> FeatureTable:
    names = tuple(f"x{k}" for k in range(values.shape[1]))
    return FeatureTable(names, values, np.isfinite(values), warmup)


def rows_between(start: int, stop: int) -> np.ndarray:
    """Rows of both symbols whose hour lies in start..stop."""
    return np.concatenate([np.arange(start, stop), 400 + np.arange(start, stop)])


def test_statistics_are_those_of_the_training_rows():
    settings = PipelineConfig(winsorize=0.05)
    fitted = FeaturePipeline.fit(TABLE, BARS, (TRAIN,), settings)
    rows = rows_between(TABLE.warmup, 250)
    assert fitted.n_rows == len(rows)
    for k in range(TABLE.n_features):
        values = np.sort(TABLE.values[rows, k])
        low, high = np.quantile(values, [0.05, 0.95])
        assert (fitted.low[k], fitted.high[k]) == (low, high)
        assert fitted.center[k] == np.median(values)
        quartiles = np.quantile(values, 0.75) - np.quantile(values, 0.25)
        # 1.349 standard deviations of a normal law lie between its quartiles
        assert fitted.scale[k] == pytest.approx(quartiles / 1.349, rel=1e-4)


def test_later_rows_change_no_statistic():
    """All values outside the training rows are replaced; every number stays."""
    values = np.array(TABLE.values)
    outside = np.setdiff1d(np.arange(800), rows_between(TABLE.warmup, 250))
    values[outside] = np.where(np.isfinite(values[outside]), 1e6, np.nan)
    other = FeatureTable(TABLE.names, values, np.array(TABLE.valid), TABLE.warmup)
    one = FeaturePipeline.fit(TABLE, BARS, (TRAIN,))
    two = FeaturePipeline.fit(other, BARS, (TRAIN,))
    assert one.to_json() == two.to_json()


@pytest.mark.parametrize("scale", ["robust", "standard", "none"])
def test_transform_is_the_formula(scale):
    fitted = FeaturePipeline.fit(TABLE, BARS, (TRAIN,), PipelineConfig(scale=scale))
    scaled = fitted.transform(TABLE, BARS, (TRAIN, TEST))
    rows = np.concatenate([rows_between(TABLE.warmup, 250), rows_between(260, 400)])
    expected = np.minimum(np.maximum(TABLE.values[rows], fitted.low), fitted.high)
    expected = (expected - fitted.center) / fitted.scale
    np.testing.assert_allclose(scaled.values[rows], expected, rtol=1e-6, atol=1e-6)
    assert scaled.values.dtype == np.float32
    others = np.setdiff1d(np.arange(800), rows)
    assert np.isnan(scaled.values[others]).all()
    assert scaled.names == TABLE.names
    if scale == "standard":
        train = scaled.values[rows_between(TABLE.warmup, 250)]
        np.testing.assert_allclose(train.mean(axis=0), 0.0, atol=1e-6)
        np.testing.assert_allclose(train.std(axis=0), 1.0, atol=1e-6)


def test_without_winsorizing_nothing_is_limited():
    fitted = FeaturePipeline.fit(TABLE, BARS, (TRAIN,), PipelineConfig(winsorize=0.0))
    assert np.isneginf(fitted.low).all()
    assert np.isposinf(fitted.high).all()


@pytest.mark.parametrize("winsorize", [0.0, 0.01])
def test_json_round_trip_is_exact_and_names_its_window(winsorize):
    fitted = FeaturePipeline.fit(TABLE, BARS, (TRAIN,), PipelineConfig(winsorize=winsorize))
    text = fitted.to_json()
    back = FeaturePipeline.from_json(text)
    for field in dataclasses.fields(fitted):
        np.testing.assert_array_equal(getattr(back, field.name), getattr(fitted, field.name))
    record = json.loads(text)
    assert record["fitted_on"] == [
        ["2024-01-01T00:00:00.000000000", "2024-01-11T10:00:00.000000000"]
    ]
    assert record["data"] == BARS.fingerprint()
    assert list(record["columns"]) == list(TABLE.names)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "cannot be read: JSONDecodeError"),
        ("{}", "cannot be read: KeyError: 'format'"),
        ("[1]", "cannot be read: TypeError"),
        ('{"format": 99}', "must have format 1; was 99"),
    ],
)
def test_other_json_is_refused(text, message):
    with pytest.raises(DataError, match=message):
        FeaturePipeline.from_json(text)


@pytest.mark.parametrize(
    "window",
    [hours(0, 100), hours(240, 260), hours(0, 400), hours(249, 251)],
    ids=["before", "across the end", "around", "one bar"],
)
@pytest.mark.parametrize("fit", [(hours(100, 250),), (hours(100, 150), hours(180, 250))])
def test_rows_are_not_scaled_with_their_own_future(window, fit):
    fitted = FeaturePipeline.fit(TABLE, BARS, fit)
    with pytest.raises(DataError, match="at or after their start.*Fit on a window that ends"):
        fitted.transform(TABLE, BARS, (window,))


def test_the_training_window_and_its_parts_are_allowed():
    fitted = FeaturePipeline.fit(TABLE, BARS, (hours(100, 250),))
    for window in (hours(100, 250), hours(120, 130), hours(250, 251), hours(260, 400)):
        values = fitted.transform(TABLE, BARS, (window,)).values
        inside = window.covers(BARS.time)
        assert np.isfinite(values[inside]).all()
        assert np.isnan(values[~inside]).all()


def test_cross_validation_may_test_between_but_never_inside():
    fitted = FeaturePipeline.fit(TABLE, BARS, (hours(50, 100), hours(200, 300)))
    between = hours(110, 190)
    with pytest.raises(DataError, match="at or after"):
        fitted.transform(TABLE, BARS, (between,))
    fitted.transform(TABLE, BARS, (between,), order="disjoint")
    with pytest.raises(DataError, match="at or after"):
        fitted.transform(TABLE, BARS, (hours(90, 190),), order="disjoint")


def test_a_missing_value_is_refused_by_name():
    values = np.random.default_rng(0).normal(size=(800, 2))
    values[650, 1] = np.nan
    fitted = FeaturePipeline.fit(table_of(values), BARS, (TRAIN,))
    with pytest.raises(
        DataError, match=r"'x1' has no value at 1 bar\(s\).*'BBB' at 2024-01-11T10:00:00\+00:00"
    ):
        fitted.transform(table_of(values), BARS, (hours(250, 260),))
    fitted.transform(table_of(values), BARS, (hours(251, 260),))


def test_a_missing_value_becomes_the_center_with_a_flag():
    values = np.random.default_rng(0).normal(size=(800, 2))
    values[650, 1] = np.nan
    fitted = FeaturePipeline.fit(table_of(values), BARS, (TRAIN,), PipelineConfig(missing="flag"))
    scaled = fitted.transform(table_of(values), BARS, (hours(250, 400),))
    assert scaled.names == ("x0", "x1", "x0_valid", "x1_valid")
    assert scaled.values[650, 1] == 0.0
    assert scaled.values[650, 2:].tolist() == [1.0, 0.0]
    assert np.isnan(scaled.values[:250]).all()
    flags = scaled.values[rows_between(250, 400), 2:]
    assert flags.sum() == 2 * 300 - 1


def test_missing_training_values_are_left_out_of_the_statistics():
    values = np.random.default_rng(0).normal(size=(800, 1))
    holes = values.copy()
    holes[::2] = np.nan
    fitted = FeaturePipeline.fit(table_of(holes), BARS, (TRAIN,))
    rows = rows_between(0, 250)
    assert fitted.center[0] == np.median(values[rows[rows % 2 == 1]])


def test_rare_values_are_scaled_by_their_deviation():
    """Quartiles meet when most rows share one value; 70 % zeros and 30 % ones here."""
    values = (np.arange(800) % 10 < 3).astype(float)[:, None]
    values[::10] = 0.0
    fitted = FeaturePipeline.fit(table_of(values), BARS, (TRAIN,))
    share = values[rows_between(0, 250)].mean()
    assert fitted.scale[0] == pytest.approx(np.sqrt(share * (1 - share)))


def test_a_constant_column_is_refused_by_name():
    daily = dataclasses.replace(random_columns(60), time=START + np.arange(60) * 24 * HOUR)
    bars = as_bars(dataclasses.replace(daily, interval=24 * HOUR))
    table = compute_features(bars, build_features([TimeOfDay()]))
    with pytest.raises(DataError, match=r"'time_of_day_sin' is constant \(0\).*Remove it"):
        FeaturePipeline.fit(table, bars, (hours(0, 24 * 60),))


def test_too_little_training_data_is_refused():
    with pytest.raises(DataError, match="no bar lies in 2024-01-01.*warm-up of 19 bars"):
        FeaturePipeline.fit(TABLE, BARS, (hours(0, 19),))
    values = np.full((800, 1), np.nan)
    values[0] = 1.0
    with pytest.raises(DataError, match=r"'x0' has 1 value\(s\) in the training rows"):
        FeaturePipeline.fit(table_of(values), BARS, (TRAIN,))


def test_other_columns_are_refused():
    fitted = FeaturePipeline.fit(TABLE, BARS, (TRAIN,))
    other = table_of(np.zeros((800, 2)))
    with pytest.raises(DataError, match=r"fitted on columns \['log_return_1'"):
        fitted.transform(other, BARS, (TEST,))


def test_no_columns_at_all():
    empty = table_of(np.zeros((800, 0)))
    fitted = FeaturePipeline.fit(empty, BARS, (TRAIN,))
    assert fitted.transform(empty, BARS, (TEST,)).values.shape == (800, 0)
    assert FeaturePipeline.from_json(fitted.to_json()).names == ()


def test_quartiles_must_survive_winsorizing():
    with pytest.raises(ConfigError, match=r"winsorize: must be less than 0\.25"):
        PipelineConfig(winsorize=0.3)
    assert PipelineConfig(winsorize=0.3, scale="standard").winsorize == 0.3


def test_an_unknown_order_is_refused():
    fitted = FeaturePipeline.fit(TABLE, BARS, (TRAIN,))
    with pytest.raises(DataError, match="must be 'past_only' or 'disjoint'; was 'pastonly'"):
        fitted.transform(TABLE, BARS, (TEST,), order="pastonly")


COLUMN = {"low": None, "high": None, "center": 0.0, "scale": 1.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fitted_on": [["x", "y"]]}, "ValueError"),
        ({"fitted_on": []}, "fitted_on must list windows"),
        ({"fitted_on": [["2024-02-01", "2024-01-01"]]}, "start < stop"),
        ({"fitted_on": [["NaT", "NaT"]]}, "start < stop"),
        ({"columns": {"x": COLUMN | {"center": None}}}, "center must be a finite"),
        ({"columns": {"x": COLUMN | {"scale": 0.0}}}, "scale must be finite and greater than 0"),
        ({"columns": {"x": COLUMN | {"low": 2.0, "high": 1.0}}}, "low must not exceed high"),
        ({"columns": {"x": COLUMN | {"low": "q"}}}, "ValueError"),
        ({"columns": [1]}, "AttributeError"),
        ({"config": {"scale": "x"}}, "cannot be read"),
    ],
)
def test_statistics_that_no_fit_wrote_are_refused(change, message):
    record = json.loads(FeaturePipeline.fit(TABLE, BARS, (TRAIN,)).to_json()) | change
    with pytest.raises(DataError, match=message):
        FeaturePipeline.from_json(json.dumps(record))


def test_bars_of_another_length_are_refused_with_both_lengths():
    table = compute_features(BARS, build_features([LogReturn()]))
    window = hours(0, 200)
    shorter = random_bars(390, symbols=2)
    with pytest.raises(DataError, match="the table has 800 rows and the bars have 780; they must"):
        FeaturePipeline.fit(table, shorter, (window,))
    fitted = FeaturePipeline.fit(table, BARS, (window,))
    with pytest.raises(DataError, match="the table has 800 rows and the bars have 780; they must"):
        fitted.transform(table, shorter, (hours(200, 300),))
