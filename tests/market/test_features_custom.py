"""Features of the user's own: decorator, module, file, entry point, and what is refused."""

import sys
from textwrap import dedent

import numpy as np
import pandas as pd
import pytest

from quantail.errors import ConfigError, DataError
from quantail.market.features import CustomFeature, build_features, feature
from tests.market.feature_bars import random_columns

SOURCE = """
    from dataclasses import dataclass
    import pandas as pd
    from quantail.market.features import feature

    @dataclass
    class Holder:
        value: "int" = 3

    @feature(name="body", warmup=0)
    def body(bars: pd.DataFrame) -> pd.Series:
        return bars["close"] / bars["open"] - 1.0

    @feature(name=("mean", "deviation"), warmup=lambda window=5: window - 1)
    def moments(bars, window=5):
        rolling = bars["close"].rolling(window)
        return pd.DataFrame({"m": rolling.mean(), "s": rolling.std()})

    def plain(bars):
        return bars["close"]
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my_features.py"
    path.write_text(dedent(SOURCE))
    return path


def test_a_file(file):
    columns = random_columns(50)
    values = CustomFeature(function=f"{file}:body").build()(columns)
    np.testing.assert_allclose(values[:, 0], columns.close / columns.open - 1.0)


def test_arguments_set_the_warmup_and_names_replace(file):
    function = f"{file}:moments"
    quick = CustomFeature(function=function, arguments={"window": 3}, names=("m3", "s3"))
    slow = CustomFeature(function=function)
    built = build_features([quick, slow])
    assert [part.warmup for part in built] == [2, 4]
    assert [part.names for part in built] == [("m3", "s3"), ("mean", "deviation")]
    columns = random_columns(50)
    expected = pd.Series(columns.close).rolling(3).mean()
    np.testing.assert_allclose(built[0](columns)[:, 0], expected)


def test_a_module(file, monkeypatch):
    monkeypatch.syspath_prepend(str(file.parent))
    built = CustomFeature(function="my_features:body").build()
    assert built.names == ("body",)
    sys.modules.pop("my_features")


def test_an_entry_point(file, monkeypatch):
    info = file.parent / "my_features-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-features\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[quantail.features]\nbody = my_features:body\n")
    monkeypatch.syspath_prepend(str(file.parent))
    assert CustomFeature(function="body").build().names == ("body",)
    with pytest.raises(ConfigError, match=r"'boby' is no entry point.*\(there: body\)"):
        CustomFeature(function="boby").build()
    sys.modules.pop("my_features")


def test_a_decorated_function_is_still_a_function():
    @feature(name="twice", warmup=0)
    def twice(bars):
        return bars["close"] * 2

    frame = random_columns(5).to_frame()
    pd.testing.assert_series_equal(twice(frame), frame["close"] * 2)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{file}:missing", "has no 'missing'; correct the name after the colon"),
        ("{file}:plain", r"under @feature\(name=..., warmup=...\).*it is a function"),
        ("{file}x.py:body", "is no file .looked at .*; correct the path"),
        ("no_such_package_here:body", "cannot be imported.*Install the package"),
        ("nowhere", "is no entry point of the group quantail.features"),
    ],
)
def test_a_function_that_cannot_be_found(file, name, message):
    with pytest.raises(ConfigError, match=message):
        CustomFeature(function=name.format(file=file)).build()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda bars: bars["close"].dropna().iloc[1:], "another index of 49 row"),
        (lambda bars: bars["close"].to_numpy()[1:], r"shape \(50, 1\).*returned shape \(49,"),
        (lambda bars: bars[["open", "close"]], r"shape \(50, 1\).*returned shape \(50, 2\)"),
        (lambda bars: ["a"] * len(bars), "must return numbers.*returned a list"),
        (lambda bars: None, r"returned shape \(\)"),
    ],
)
def test_what_a_function_may_not_return(function, message):
    built = feature(name="mine", warmup=0)(function).build()
    with pytest.raises(DataError, match=rf"(?s)'mine'.*{message}"):
        built(random_columns(50))


def test_a_function_that_fails_is_named_with_its_bars():
    built = feature(name="mine", warmup=0)(lambda bars: bars["klose"]).build()
    with pytest.raises(
        DataError, match=r"'mine' failed on 50 bar\(s\) of symbol 'AAA': KeyError: 'klose'"
    ):
        built(random_columns(50))


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"name": "", "warmup": 0}, "different words"),
        ({"name": ("a", "a"), "warmup": 0}, "different words"),
        ({"name": (), "warmup": 0}, "different words"),
        ({"name": "a", "warmup": -1}, "'a': warmup must be a whole number of at least 0; was -1"),
        ({"name": "a", "warmup": 1.5}, "whole number"),
        ({"name": "a", "warmup": True}, "whole number"),
    ],
)
def test_refused_declarations(keywords, message):
    with pytest.raises(ConfigError, match=message):
        feature(**keywords)


def test_refused_names_and_warmups_at_build():
    one = feature(name="one", warmup=lambda lag: lag)(lambda bars, lag: bars["close"].shift(lag))
    with pytest.raises(ConfigError, match=r"must give 1 name\(s\)"):
        one.build({"lag": 1}, ("a", "b"))
    with pytest.raises(ConfigError, match="'one': warmup must be a whole number"):
        one.build({"lag": -1})


def test_a_function_cannot_change_the_bars():
    def greedy(bars):
        bars["close"] = 0.0
        bars.iloc[:, 0] = 7.0
        return bars["close"]

    columns = random_columns(20)
    before = columns.to_frame()
    feature(name="greedy", warmup=0)(greedy).build()(columns)
    pd.testing.assert_frame_equal(columns.to_frame(), before)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def f(:", "failed to load: SyntaxError"),
        ("import no_such_package_here", "failed to load: ModuleNotFoundError"),
        ("raise RuntimeError('boom')", "failed to load: RuntimeError: boom"),
        ("undefined", "failed to load: NameError"),
    ],
)
def test_a_file_that_fails_to_load_is_named(tmp_path, code, message):
    path = tmp_path / "broken.py"
    path.write_text(code)
    with pytest.raises(ConfigError, match=f"broken.py' {message}"):
        CustomFeature(function=f"{path}:f").build()


@pytest.mark.parametrize("function", [":x", ".x:f", "package:"])
def test_a_reference_of_no_known_form_is_refused(function):
    with pytest.raises(ConfigError, match="must be package.module:function or path"):
        CustomFeature(function=function).build()


def test_a_warmup_without_its_arguments_is_refused():
    lagged = feature(name="one", warmup=lambda lag: lag)(lambda bars, lag: bars["close"])
    with pytest.raises(ConfigError, match="'one' cannot tell its warm-up from {}: TypeError"):
        lagged.build()


@pytest.mark.parametrize("fault", [RuntimeError, ImportError, AssertionError])
def test_further_faults_of_a_function_are_named(fault):
    def failing(bars):
        raise fault("boom")

    with pytest.raises(DataError, match=f"'mine' failed on .*{fault.__name__}: boom"):
        feature(name="mine", warmup=0)(failing).build()(random_columns(50))
