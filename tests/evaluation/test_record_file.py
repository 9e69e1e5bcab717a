import dataclasses
import json
import math

import numpy as np
import pytest

from quantail.errors import DataError
from quantail.evaluation.plain import to_plain
from quantail.evaluation.record import SERIES_NUMBERS, Estimate, Series
from quantail.evaluation.record_file import SUMMARY, load_evaluation, save_evaluation
from tests.evaluation.example_records import example_evaluation, example_series


@pytest.fixture
def folder(tmp_path):
    save_evaluation(example_evaluation(), tmp_path / "test")
    return tmp_path / "test"


def test_what_is_loaded_is_what_was_saved(folder):
    saved, loaded = example_evaluation(), load_evaluation(folder)
    assert to_plain(loaded, skip=Series) == to_plain(saved, skip=Series)
    assert isinstance(loaded.measures["agent"].sharpe, Estimate)
    assert math.isnan(loaded.measures["agent"].calmar.value)
    for ours, theirs in zip(saved.tracks, loaded.tracks, strict=True):
        for part in ("bars", "portfolio"):
            for name in ("time", *SERIES_NUMBERS):
                was, now = getattr(getattr(ours, part), name), getattr(getattr(theirs, part), name)
                assert was.dtype == now.dtype
                np.testing.assert_array_equal(was, now)


def test_problem_tracks_keep_step_numbers(tmp_path):
    evaluation = example_evaluation()
    series = dataclasses.replace(example_series(5, 0), time=np.arange(5))
    track = dataclasses.replace(
        evaluation.tracks[0], windows=(), bars=series.rows(slice(0, 0)), portfolio=series
    )
    save_evaluation(dataclasses.replace(evaluation, tracks=(track,)), tmp_path / "problem")
    loaded = load_evaluation(tmp_path / "problem").track("agent")
    assert loaded.portfolio.time.dtype == np.int64
    assert len(loaded.bars) == 0


def test_saving_leaves_nothing_beside_the_folder(folder):
    assert [path.name for path in folder.parent.iterdir()] == ["test"]


def test_a_failed_save_leaves_nothing(tmp_path):
    evaluation = dataclasses.replace(example_evaluation(), confidence=math.inf)
    with pytest.raises(ValueError, match="JSON compliant"):
        save_evaluation(evaluation, tmp_path / "test")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_never_overwritten(folder):
    with pytest.raises(DataError, match="exists already"):
        save_evaluation(example_evaluation(), folder)


def test_an_unwritable_place_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="cannot save the evaluation to .*file/test"):
        save_evaluation(example_evaluation(), tmp_path / "file" / "test")


def test_a_folder_without_evaluation_is_named(tmp_path):
    with pytest.raises(DataError, match="holds no evaluation"):
        load_evaluation(tmp_path)


@pytest.mark.parametrize("name", [SUMMARY, "agent.bars.parquet", "flat.portfolio.parquet"])
def test_a_truncated_file_is_found(folder, name):
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: len(data) - 10])
    with pytest.raises(DataError, match=rf"{name} is damaged"):
        load_evaluation(folder)


def test_a_missing_file_is_found(folder):
    (folder / "agent.bars.parquet").unlink()
    with pytest.raises(DataError, match="agent.bars.parquet cannot be read"):
        load_evaluation(folder)


def _edit(folder, change):
    summary = json.loads((folder / SUMMARY).read_text())
    change(summary)
    (folder / SUMMARY).write_text(json.dumps(summary))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.update(format=99), "has format 99; this version reads format 1"),
        (lambda s: s.pop("files"), "no summary of an evaluation"),
        (lambda s: s["evaluation"].pop("verdict"), "no evaluation of this version .*verdict"),
        (lambda s: s["evaluation"].update(role="train"), "role must be one of"),
        (lambda s: s["evaluation"].update(n_trials="3"), "n_trials must be of type"),
        (lambda s: s["evaluation"].update(extra=1), "unknown field extra"),
        (lambda s: s["evaluation"]["tracks"][0].update(name="other"), "other.bars.parquet"),
    ],
)
def test_a_summary_that_does_not_fit_is_refused(folder, change, message):
    _edit(folder, change)
    with pytest.raises(DataError, match=message):
        load_evaluation(folder)


def test_series_refuse_columns_of_different_length():
    series = example_series(5, 0)
    with pytest.raises(DataError, match=r"equity of a series must have one number per bar, \[5\]"):
        dataclasses.replace(series, equity=series.equity[1:])
    with pytest.raises(DataError, match="instants or step numbers; was float64"):
        dataclasses.replace(series, time=np.arange(5.0))


def test_an_unknown_track_is_named():
    with pytest.raises(DataError, match="one of agent, flat.*'optimum'"):
        example_evaluation().track("optimum")
