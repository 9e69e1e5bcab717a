"""Wrong input: one clear sentence, exit code 2, no traceback."""

import sys
from pathlib import Path

import pytest

from quantail import cli
from tests.experiment.small_runs import MARKET, PROBLEM

CSV = "environment.data.source.kind=csv"
FOLDER = "{tmp}"


def csv(text: str) -> str:
    """Marks text that is written to prices.csv before the command runs."""
    return f"csv:{text}"


GOOD = "time,open,high,low,close,volume\n" + "".join(
    f"2020-01-{day:02d},10,11,9,10,100\n" for day in range(1, 29)
)


def sets(*assignments: str) -> list[str]:
    return [part for given in assignments for part in ("--set", given)]


def own(*assignments: str) -> list[str]:
    """A run on prices.csv."""
    source = ["environment.kind=market", CSV, "environment.data.source.path={tmp}/prices.csv"]
    return ["train", "--out", "{tmp}/run", *sets(*source, *assignments)]


def market(*assignments: str) -> list[str]:
    return ["train", "--out", "{tmp}/run", *sets(*MARKET, *assignments)]


def problem(*assignments: str) -> list[str]:
    return ["train", "--out", "{tmp}/run", *sets(*PROBLEM, *assignments)]


CASES: dict[str, tuple[list[str], str]] = {
    "no such configuration": (["train", "nowhere.yaml"], "cannot be read: No such file"),
    "a folder as configuration": (["train", FOLDER], "cannot be read: Is a directory"),
    "not YAML": (["train", "{tmp}/bad.yaml"], "bad.yaml"),
    "unknown key": (problem("budget.step=5"), "did you mean 'budget.steps'?"),
    "unknown part": (problem("agents.gamma=1"), "is not a known key"),
    "wrong type": (problem("budget.steps=many"), "budget.steps: must be a whole number"),
    "out of range": (problem("agent.gamma=2"), "agent.gamma: must be at most 1"),
    "no assignment": (["train", "--set", "seed"], "--set seed"),
    "unknown metric": (
        problem("selection.metric=sharp"), "selection.metric: must be 'mean_reward'",
    ),
    "metric of another kind": (
        problem("selection.metric=sharpe"), "selection.metric: must be one of mean_reward",
    ),
    "unknown problem": (problem("environment.problem.kind=maze"), "environment.problem.kind: must"),
    "unknown source": (
        ["train", *sets("environment.kind=market", "environment.data.source.kind=ftp")],
        "environment.data.source.kind: must be one of",
    ),
    "no source": (["train", *sets("environment.kind=market")], "environment.data"),
    "too few steps": (problem("budget.steps=10"), "budget.steps: must be at least"),
    "batch that does not divide": (problem("agent.batch_size=48"), "agent.batch_size: must divide"),
    "chunks that do not divide": (problem("agent.chunk_length=5"), "chunk_length must divide"),
    "no data file": (own(), "names no file"),
    "empty data file": ([csv(""), *own()], "prices.csv"),
    "wrong column": ([csv(GOOD.replace("close", "shut")), *own()], "close"),
    "text for a price": ([csv(GOOD.replace("10,11", "ten,11", 1)), *own()], "open"),
    "impossible bar": ([csv(GOOD.replace("11,9", "8,9", 1)), *own()], "high"),
    "times out of order": (
        [csv(GOOD + "2020-01-05,10,11,9,10,100\n"), *own()], "2020-01-05",
    ),
    "too few bars for the features": ([csv(GOOD), *own()], "bars"),
    "empty window": (
        market(
            "environment.data.splits={kind: fixed, train: {start: 1990-01-01, stop: 1991-01-01}, "
            "test: {start: 1992-01-01, stop: 1993-01-01}}"
        ),
        "splits.train holds no bar between",
    ),
    "split overlap": (
        market(
            "environment.data.splits={kind: fixed, train: {start: 2020-01-01, stop: 2020-01-20}, "
            "test: {start: 2020-01-10, stop: 2020-01-29}}"
        ),
        "must not be before the end of train",
    ),
    "no validation": (
        market("environment.data.splits.validation_size=0"), "has no validation bars",
    ),
    "window shorter than warm-up": (
        market("environment.data.features=[{kind: log_return, horizons: [400]}]"), "warm-up",
    ),
    "window shorter than an episode": (
        market("environment.simulator.episodes.length=400"), "Use a longer window",
    ),
    "split larger than the data": (
        market("environment.data.splits.train_size=5000"), "walk-forward needs at least 5250 bars",
    ),
    "a leaking feature": (
        market("environment.data.features=[{kind: custom, function: '{tmp}/leak.py:leak'}]"),
        "leak",
    ),
    "a run that is there already": (
        ["train", "--out", FOLDER, *sets(*PROBLEM)], "never overwritten",
    ),
    "a file in the way": (
        ["train", "--out", "{tmp}/bad.yaml/run", *sets(*PROBLEM)], "cannot be written",
    ),
    "unwritable folder": (
        ["train", "--out", "/proc/run", *sets(*PROBLEM)], "run folder /proc/run cannot be written",
    ),
    "report of no run": (["report", FOLDER], "holds no run"),
    "report of a missing folder": (["report", "{tmp}/none"], "cannot be read"),
    "evaluate no run": (["evaluate", "{tmp}/none"], "holds no run"),
    "init over a file": (["init", "{tmp}/bad.yaml"], "exists already"),
    "unknown control": (["doctor", "--only", "luck"], "--only must be one of leaks, oracle"),
    "unknown role": (["evaluate", "{tmp}/none", "--role", "train"], "--role must be one of"),
    "unknown option": (["train", "--fast"], "No such option"),
}  # fmt: skip

LEAK = """
from quantail.market.features.custom import feature


@feature(name="leak", warmup=0)
def leak(bars):
    close = bars["close"]
    return (close.shift(-1) / close - 1.0).fillna(0.0)
"""


@pytest.mark.parametrize("name", list(CASES))
def test_one_sentence_and_exit_code_2(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments, expected = CASES[name]
    (tmp_path / "bad.yaml").write_text("a: [1\nb: }")
    (tmp_path / "leak.py").write_text(LEAK)
    if arguments[0].startswith("csv:"):
        (tmp_path / "prices.csv").write_text(arguments[0].removeprefix("csv:"))
        arguments = arguments[1:]
    given = [part.replace("{tmp}", str(tmp_path)) for part in arguments]
    monkeypatch.setattr(sys, "argv", ["quantail", *given])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    said = capsys.readouterr().err
    assert stopped.value.code == 2, said
    assert expected in said
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists(), "refused input must leave no run behind"
