"""A run's folder is whole at every moment and never overwritten."""

from pathlib import Path

import pytest

from quantail.errors import DataError
from quantail.experiment.folder import METRICS, RunFolder, usual_folder
from quantail.experiment.selection import Selection, Trial


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DataError, match="is not empty, and a run is never overwritten"):
        RunFolder.create(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot be written: (Not a directory|File exists)"):
        RunFolder.create(tmp_path / "file" / "run")


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no run: there is no config.yaml"):
        RunFolder.open(tmp_path)


def test_an_unfinished_last_line_is_left_out_and_a_damaged_one_named(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.append(METRICS, {"step": 1, "loss": 0.5})
    folder.append(METRICS, {"step": 2, "loss": None})
    path = folder.path / METRICS
    path.write_bytes(path.read_bytes() + b'{"step": 3, "lo')
    assert folder.read_lines(METRICS) == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": None}]
    path.write_bytes(b"{broken\n" + path.read_bytes())
    with pytest.raises(DataError, match="damaged in line 1"):
        folder.read_lines(METRICS)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run")
    folder.write_text("status.json", "{")
    with pytest.raises(DataError, match="status.json is damaged"):
        folder.read_json("status.json")
    folder.write_text("status.json", "[]")
    with pytest.raises(DataError, match="holds no keys and values"):
        folder.read_json("status.json")
    with pytest.raises(DataError, match="cannot be read: No such file"):
        folder.read_json("other.json")


def test_two_runs_of_one_second_get_two_folders(tmp_path: Path) -> None:
    first = usual_folder("x", tmp_path)
    first.mkdir()
    assert usual_folder("x", tmp_path) != first


def test_the_best_are_kept_and_of_equals_the_earlier_leads() -> None:
    selection = Selection("sharpe")
    for step, score in ((1, 0.5), (2, 0.9), (3, 0.5), (4, 0.1)):
        selection = selection.with_trial(Trial(step, score, f"{step}.zip"), keep=2)
    assert [trial.step for trial in selection.kept] == [2, 1]
    assert selection.best.score == 0.9
    assert selection.n_tried == 4
