"""``quantail data check``: passes on clean features, refuses leaks with column and bar."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from quantail.cli.data import RUN_KEYS, app
from quantail.errors import ConfigError, DataError
from quantail.experiment.config import RunConfig
from quantail.market.sources import SyntheticSource

ROOT = Path(__file__).parents[2]

FUNCTIONS = """
    from quantail.market.features import feature

    @feature(name="momentum", warmup=10)
    def momentum(bars):
        return bars["close"].pct_change(10)

    @feature(name="tomorrow", warmup=0)
    def tomorrow(bars):
        return bars["close"].shift(-1) / bars["close"]

    @feature(name="centered", warmup=4)
    def centered(bars):
        return bars["close"].rolling(9, center=True).mean() / bars["close"]

    @feature(name="z_score", warmup=0)
    def z_score(bars):
        return (bars["close"] - bars["close"].mean()) / bars["close"].std()

    @feature(name="filled", warmup=0)
    def filled(bars):
        return bars["close"].where(bars["close"] > bars["open"]).bfill() / bars["close"]
"""

CONFIG = """
source: {{kind: synthetic, bars: 500, symbols: 2, start: 2024-03-01, steps_per_bar: 2}}
features:
  - {{kind: rsi}}
  - {{kind: custom, function: '{file}:{name}'}}
"""


@pytest.fixture
def write(tmp_path):
    file = tmp_path / "functions.py"
    file.write_text(dedent(FUNCTIONS))

    def written(name: str) -> str:
        path = tmp_path / f"{name}.yaml"
        path.write_text(CONFIG.format(file=file, name=name))
        return str(path)

    return written


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["check", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_clean_features_pass(write):
    text = run(write("momentum"))
    assert "bars      1000 of 2 symbol(s), 2024-03-01T00:00:00+00:00 to 2024-03-21T19:00" in text
    assert "features  2 column(s), warm-up 14 bars: rsi_14, momentum" in text
    # 60 % of 500 bars less the warm-up of 14, for two symbols.
    assert "split     fractions: train 572, validation 200, test 200 bars" in text
    assert "leaks     none in 2 column(s), tried on SYN0, SYN1" in text


def first_fallen_bar() -> int:
    """The first bar that ``filled`` must fill from a later one."""
    bars = SyntheticSource(bars=500, symbols=2, start="2024-03-01", steps_per_bar=2).load()
    return int(np.argmax(bars.close[:500] <= bars.open[:500]))


@pytest.mark.parametrize(
    ("name", "row"),
    [("tomorrow", 0), ("centered", 4), ("z_score", 0), ("filled", first_fallen_bar())],
    ids=["shift(-1)", "centered window", "full-sample z-score", "fill from the future"],
)
def test_a_leak_is_refused_with_its_column_and_first_bar(write, name, row):
    with pytest.raises(DataError) as caught:
        run(write(name))
    text = str(caught.value)
    assert text.startswith("1 feature column(s) use information from the future")
    assert (
        f"column '{name}' fails the truncation test, first at bar {row} of symbol 'SYN0' "
        f"(2024-03-01T{row:02}:00:00+00:00)"
    ) in text


def test_an_allowed_leak_is_shown(write):
    text = run(write("tomorrow"), "--set", "leak_check.allow=[tomorrow]", "--set",
               "pipeline.missing=flag")  # fmt: skip
    assert "allowed   column 'tomorrow' fails the truncation test, first at bar 0" in text
    assert "none but those allowed" in text


def test_overrides_and_their_mistakes(write):
    assert "bars      1400 of 2" in run(write("momentum"), "--set", "source.bars=700")
    with pytest.raises(ConfigError, match="source.barz"):
        run(write("momentum"), "--set", "source.barz=700")


def test_the_example_configuration_passes():
    text = run(str(ROOT / "configs" / "data_check.yaml"))
    assert "walk_forward_3" in text
    assert "leaks     none in 8 column(s)" in text


def test_the_command_line_ends_with_code_2_and_no_traceback(write):
    command = [sys.executable, "-c", "from quantail.cli import main; main()", "data", "check"]
    done = subprocess.run(
        [*command, write("tomorrow")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "column 'tomorrow' fails" in done.stderr
    assert "Traceback" not in done.stderr


def test_repairs_are_asked_for_by_name_and_listed(tmp_path):
    bars = SyntheticSource(bars=400, steps_per_bar=2).load().to_frame()
    table = pd.concat([bars, bars.iloc[[7]]]).sort_values("time")
    table.to_csv(tmp_path / "bars.csv", index=False)
    config = tmp_path / "run.yaml"
    config.write_text(f"source: {{kind: csv, path: '{tmp_path / 'bars.csv'}'}}\n")

    def run(*options):
        arguments = ["check", str(config), *options]
        return CliRunner().invoke(app, arguments, catch_exceptions=False)

    with pytest.raises(DataError, match="more than one bar|duplicate|same time"):
        run()
    repaired = run("--repair", "duplicates=last")
    assert repaired.exit_code == 0
    assert "dropped duplicates (last), 1 row(s), first at " in repaired.output
    with pytest.raises(ConfigError, match=r"source.repair.duplicate: is not a known key; did you"):
        run("--repair", "duplicate=last")


def test_machines_get_one_json_object() -> None:
    done = CliRunner().invoke(app, ["check", str(ROOT / "configs" / "data_check.yaml"), "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["bars"] == 10000
    assert said["symbols"] == ["SYN0", "SYN1"]
    assert said["splits"][0]["name"] == "walk_forward_0"
    assert said["splits"][0]["test"] == 1000


RUN = """
environment:
  kind: market
  data:
    source: {kind: synthetic, bars: 500, start: 2024-03-01, steps_per_bar: 2}
    features: [{kind: rsi}]
"""


def test_the_configuration_of_a_run_will_do(tmp_path):
    (tmp_path / "run.yaml").write_text(RUN)
    done = CliRunner().invoke(
        app, ["check", str(tmp_path / "run.yaml"), "--json", "--set", "source.bars=600"]
    )
    assert done.exit_code == 0, done.output
    said = json.loads(done.output)
    assert said["bars"] == 600
    assert said["features"] == ["rsi_14"]


def test_a_run_is_known_however_its_keys_are_written(tmp_path):
    plain = "{kind: synthetic, bars: 500, start: 2024-03-01, steps_per_bar: 2}"
    inner = f"{{kind: market, data: {{source: {plain}, features: [{{kind: rsi}}]}}}}"
    for text in (f"{{environment: {inner}}}\n", f'"environment": {inner}\n'):
        (tmp_path / "run.yaml").write_text(text)
        assert json.loads(run(str(tmp_path / "run.yaml"), "--json"))["bars"] == 500


@pytest.mark.parametrize("text", ["environment: {kind: problem}\n", "seed: 3\n", "budget: {}\n"])
def test_a_run_without_data_is_refused(tmp_path, text):
    (tmp_path / "run.yaml").write_text(text)
    done = CliRunner().invoke(app, ["check", str(tmp_path / "run.yaml")])
    assert isinstance(done.exception, ConfigError)
    assert "environment.kind: must be 'market' for data to be checked; was 'problem'" in str(
        done.exception
    )


def test_the_keys_of_a_run_are_those_of_its_class():
    assert {field.name for field in dataclasses.fields(RunConfig)} == RUN_KEYS


def test_data_with_a_key_too_many_are_not_taken_for_a_run(tmp_path):
    text = """
        source: {kind: synthetic, bars: 500}
        seed: 3
    """
    (tmp_path / "data.yaml").write_text(dedent(text))
    with pytest.raises(ConfigError, match="seed: is not a known key; allowed here: features"):
        run(str(tmp_path / "data.yaml"))
