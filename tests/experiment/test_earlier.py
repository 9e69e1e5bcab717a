"""Trials of earlier runs on the same bars count."""

import json
from pathlib import Path

import pytest

from quantail.experiment.earlier import earlier_trials
from quantail.experiment.folder import RunFolder
from quantail.experiment.run import run
from tests.experiment.small_runs import MARKET, Watcher, small


def write(
    path: Path, started: str, *, data: str = "bars", settings: str = "", tried: object = 6
) -> RunFolder:
    folder = RunFolder.create(path)
    folder.write_text("config.yaml", "seed: 0\n")
    folder.write_json(
        "provenance.json",
        {
            "started": started,
            "data_fingerprint": data,
            "config_fingerprint": settings or path.name,
        },
    )
    (path / "checkpoints" / "fold").mkdir()
    folder.write_json("checkpoints/fold/selection.json", {"n_tried": tried})
    return folder


@pytest.fixture
def own(tmp_path: Path) -> RunFolder:
    return write(tmp_path / "own", "2026-01-05T00:00:00+00:00")


EARLY, LATE = "2026-01-04T00:00:00+00:00", "2026-01-06T00:00:00+00:00"


def test_runs_before_it_on_the_same_bars_count(own: RunFolder, tmp_path: Path) -> None:
    assert earlier_trials(own, "fold") == 0
    write(tmp_path / "a", EARLY)
    write(tmp_path / "b", EARLY, tried=4)
    assert earlier_trials(own, "fold") == 10
    assert earlier_trials(own, "another") == 0


def test_what_is_no_new_trial_does_not_count(own: RunFolder, tmp_path: Path) -> None:
    write(tmp_path / "later", LATE)
    write(tmp_path / "other bars", EARLY, data="more bars")
    write(tmp_path / "same settings", EARLY, settings="own")
    assert earlier_trials(own, "fold") == 0
    write(tmp_path / "first", EARLY, settings="theirs", tried=3)
    write(tmp_path / "repeated", EARLY, settings="theirs", tried=6)
    assert earlier_trials(own, "fold") == 6


def test_damaged_runs_and_other_folders_are_left_out(own: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "file.txt").write_text("x")
    broken = write(tmp_path / "broken", EARLY)
    (broken.path / "provenance.json").write_text("{")
    (write(tmp_path / "cut", EARLY).path / "provenance.json").write_text(json.dumps({"a": 1}))
    (write(tmp_path / "untried", EARLY).path / "checkpoints/fold/selection.json").unlink()
    write(tmp_path / "odd", EARLY, tried="many")
    assert earlier_trials(own, "fold") == 0


def test_the_second_run_on_the_same_bars_is_judged_by_all_trials(tmp_path: Path) -> None:
    settings = ("budget.steps=256", "environment.data.splits.test_size=300")
    first = run(small(*settings, of=MARKET), Watcher(), tmp_path / "first").test
    provenance = tmp_path / "first" / "provenance.json"
    plain = json.loads(provenance.read_text())
    provenance.write_text(json.dumps(plain | {"started": "2020-01-01T00:00:00+00:00"}))
    second = run(small(*settings, "seed=1", of=MARKET), Watcher(), tmp_path / "second").test
    assert first is not None
    assert second is not None
    assert (first.n_trials, second.n_trials) == (2, 4)
    assert second.overfitting is not None
    assert second.overfitting.n_trials == 4
    assert any("Of the 4 trials that count, 2 were made by earlier runs" in n for n in second.notes)
    assert not any("earlier runs" in note for note in first.notes)
