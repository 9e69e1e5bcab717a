"""Whole runs, small: from configuration to report, and what is left when they stop."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from quantail.config_file import read_config
from quantail.errors import DataError
from quantail.evaluation.record_file import load_evaluation
from quantail.experiment import training
from quantail.experiment.again import evaluate_again
from quantail.experiment.collapse import PATIENCE
from quantail.experiment.config import RunConfig
from quantail.experiment.folder import MESSAGES, METRICS, RunFolder
from quantail.experiment.provenance import role_seed
from quantail.experiment.run import run
from quantail.experiment.selection import read_selection
from quantail.report import write_report
from quantail.report.words import typeset
from quantail.sb3.agent import DistributionalPPO
from tests.experiment.small_runs import MARKET, Watcher, files, small

TIMED = ("time/",)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Watcher]:
    folder, watcher = tmp_path_factory.mktemp("run") / "one", Watcher()
    run(small(), watcher, folder)
    return folder, watcher


def metrics(folder: Path) -> list[dict[str, float]]:
    rows = RunFolder(folder).read_lines(METRICS)
    return [{k: v for k, v in row.items() if not k.startswith(TIMED)} for row in rows]


def test_a_run_leaves_everything_that_is_needed(finished: tuple[Path, Watcher]) -> None:
    folder, watcher = finished
    names = files(folder)
    assert {
        "config.yaml", "provenance.json", "status.json", "metrics.jsonl", "report.html",
        "evaluation/test/evaluation.json", "evaluation/validation/evaluation.json",
        "checkpoints/positive_control/selection.json",
    } <= names  # fmt: skip
    assert not [name for name in names if name.endswith(".tmp")]
    assert read_config(RunConfig, folder / "config.yaml") == small()
    place = RunFolder.open(folder)
    assert place.read_json("status.json")["state"] == "finished"
    known = place.read_json("provenance.json")
    assert known["seed"] == 0
    assert len(known["data_fingerprint"]) == 64
    assert known["versions"]["torch"] == torch.__version__
    assert watcher.stages[0] == "Preparing data and checking it for leaks"
    assert watcher.stages[-1] == "Writing the report"


def test_the_best_agents_are_kept_and_the_best_is_judged(finished: tuple[Path, Watcher]) -> None:
    folder, _ = finished
    selection = read_selection(RunFolder(folder), "checkpoints/positive_control")
    assert selection.n_tried == 3
    assert len(selection.kept) == 2
    kept = {trial.file for trial in selection.kept}
    assert {name for name in files(folder) if name.endswith(".zip")} == kept
    scores = [row["validation/score"] for row in metrics(folder) if "validation/score" in row]
    assert len(scores) == 3
    assert selection.best.score == max(scores)
    test = load_evaluation(folder / "evaluation" / "test")
    assert test.n_trials == 3
    assert test.optimum is not None
    assert typeset(test.verdict.sentence) in (folder / "report.html").read_text()


def test_costs_rise_over_the_first_half(finished: tuple[Path, Watcher]) -> None:
    folder, _ = finished
    scales = [row["market/cost_scale"] for row in metrics(folder) if "market/cost_scale" in row]
    assert scales == [0.0, 0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0]


def test_a_run_is_never_overwritten(finished: tuple[Path, Watcher]) -> None:
    folder, _ = finished
    before = files(folder)
    with pytest.raises(DataError, match="never overwritten"):
        run(small(), Watcher(), folder)
    assert files(folder) == before


def test_the_same_seed_gives_the_same_run(finished: tuple[Path, Watcher], tmp_path: Path) -> None:
    folder, _ = finished
    run(small(), Watcher(), tmp_path / "again")
    run(small("seed=1"), Watcher(), tmp_path / "other")
    assert metrics(tmp_path / "again") == metrics(folder)
    assert metrics(tmp_path / "other") != metrics(folder)


def test_roles_draw_different_numbers() -> None:
    seeds = {role_seed(s, r, i) for s in range(5) for r in ("train", "validation", "test") for i in
             range(3)}  # fmt: skip
    assert len(seeds) == 45


def test_a_kept_agent_can_be_judged_again(finished: tuple[Path, Watcher], tmp_path: Path) -> None:
    folder, _ = finished
    first = load_evaluation(folder / "evaluation" / "test")
    again, place = evaluate_again(folder, "test", out=tmp_path / "again")
    assert again.measures["agent"] == first.measures["agent"]
    assert load_evaluation(place).verdict == first.verdict
    with pytest.raises(DataError, match="exists already. Give a new folder with --out"):
        evaluate_again(folder, "test")


def test_stopped_by_the_user(tmp_path: Path) -> None:
    result = run(small(), Watcher(stop_after=4), tmp_path / "run")
    assert result.test is None
    names = files(result.folder)
    assert "checkpoints/positive_control/stopped-000000000520.zip" in names
    assert RunFolder(result.folder).read_json("status.json")["state"] == "interrupted"
    assert "The run was interrupted at step" in (result.folder / "report.html").read_text()
    agent = DistributionalPPO.load(
        result.folder / "checkpoints" / "positive_control" / "stopped-000000000520.zip"
    )
    assert agent.num_timesteps == 520
    evaluation, _ = evaluate_again(result.folder)
    assert evaluation.role == "test"


def test_every_moment_of_a_run_can_be_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is copied after every write, as a kill would leave it, and read each time."""
    copies: list[Path] = []

    def snapshot(folder: RunFolder) -> None:
        copies.append(tmp_path / f"copy{len(copies)}")
        shutil.copytree(folder.path, copies[-1])

    append, write = RunFolder.append, RunFolder.write_text

    def appending(self: RunFolder, name: str, row: dict[str, object]) -> None:
        append(self, name, row)
        snapshot(self)

    def writing(self: RunFolder, name: str, text: str) -> None:
        write(self, name, text)
        snapshot(self)

    monkeypatch.setattr(RunFolder, "append", appending)
    monkeypatch.setattr(RunFolder, "write_text", writing)
    run(small("selection.validations=2", "budget.steps=512"), Watcher(), tmp_path / "run")
    assert len(copies) > 10
    for copy in copies[:: max(1, len(copies) // 6)]:
        assert write_report(copy).stat().st_size > 5_000
        folder = RunFolder(copy)
        folder.read_lines(METRICS)
        for file in copy.rglob("*.zip"):
            DistributionalPPO.load(file)
    # the list of agents never names a file that is not there
    for copy in copies:
        place = copy / "checkpoints" / "positive_control" / "selection.json"
        if place.exists():
            kept = read_selection(RunFolder(copy), "checkpoints/positive_control").kept
            assert all((copy / trial.file).is_file() for trial in kept)


def test_a_failure_is_on_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(rollout: object) -> None:
        raise ArithmeticError("planted")

    monkeypatch.setattr(training, "action_spread", fails)
    with pytest.raises(ArithmeticError, match="planted"):
        run(small(), Watcher(), tmp_path / "run")
    status = RunFolder(tmp_path / "run").read_json("status.json")
    assert (status["state"], status["result"]) == ("failed", "ArithmeticError: planted")
    assert "ArithmeticError: planted" in write_report(tmp_path / "run").read_text()


def test_a_collapse_is_noticed_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = training.train

    def stubborn(agent: DistributionalPPO, *rest: object) -> DistributionalPPO:
        with torch.no_grad():
            for name, weights in agent.policy.net.actor.named_parameters():
                weights.zero_()
                if "bias" in name:
                    weights[1] = 50.0
        return built(agent, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(training, "train", stubborn)
    watcher = Watcher()
    config = small("budget.cost_ramp=0", "agent.learning_rate.start=1e-9")
    result = run(config, watcher, tmp_path / "run")
    rows = RunFolder(result.folder).read_lines(MESSAGES)
    assert rows[0]["step"] == PATIENCE * 128
    assert "has collapsed to one action (action 1) whatever it sees" in rows[0]["text"]
    assert "budget.cost_ramp = 0.5" in rows[0]["text"]
    held = "The agent holds a position of about 0 for 100.0% of the"
    assert rows[1]["text"].startswith(f"{held} validation on positive_control")
    assert len(rows) == 2  # each is said once
    assert watcher.messages[:2] == [row["text"] for row in rows]
    assert watcher.messages[2].startswith(f"{held} test on positive_control")
    assert result.test is not None
    assert result.test.notes[0].startswith(f"{held} test")
    flags = [row["health/constant_action"] for row in metrics(result.folder)[:8]]
    assert flags == [0, 0, 1, 1, 1, 1, 1, 1]
    assert rows[0]["text"].split(".")[0] in (result.folder / "report.html").read_text()


def test_an_agent_that_acts_by_what_it_sees_has_not_collapsed(
    finished: tuple[Path, Watcher],
) -> None:
    folder, _ = finished
    assert not (folder / MESSAGES).exists()
    assert all(row.get("health/constant_action", 0) == 0 for row in metrics(folder))


def test_walk_forward_on_a_market(tmp_path: Path) -> None:
    result = run(small(of=MARKET), Watcher(), tmp_path / "run")
    assert result.test is not None
    parts = [
        load_evaluation(result.folder / "folds" / f"walk_forward_{k}" / "test") for k in range(2)
    ]
    for name in ("agent", "buy_and_hold"):
        apart = [part.track(name).portfolio.net_return for part in parts]
        together = result.test.track(name).portfolio.net_return
        np.testing.assert_allclose(together, np.concatenate(apart), atol=1e-12)
    assert result.test.n_trials == 4
    assert [len(track.windows) for track in result.test.tracks] == [4] * len(result.test.tracks)
    times = result.test.track("agent").portfolio.time
    assert (np.diff(times) > np.timedelta64(0)).all()
    text = (result.folder / "report.html").read_text()
    assert result.test.verdict.sentence.split(":")[0] in text
    assert [row["step"] for row in metrics(result.folder)] == sorted(
        row["step"] for row in metrics(result.folder)
    )
