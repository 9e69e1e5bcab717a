import json
import math
import shutil

import pytest

from quantail.errors import DataError
from quantail.evaluation.record_file import save_evaluation
from quantail.report.run_folder import read_run
from tests.evaluation.example_records import example_evaluation


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text("seed: 1\n")
    (folder / "provenance.json").write_text('{"seed": 1}')
    (folder / "status.json").write_text('{"state": "finished", "step": 20}')
    rows = [{"step": 10, "train/loss": 1.0}, {"step": 20, "train/loss": None, "a/b": 2}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    save_evaluation(example_evaluation(), folder / "evaluation" / "test")
    return folder


def test_a_whole_run_has_no_problems(run):
    record = read_run(run)
    assert record.problems == ()
    assert record.config == "seed: 1\n"
    assert record.provenance == {"seed": 1}
    assert set(record.evaluations) == {"test"}
    loss = record.curves["train/loss"]
    assert loss.steps.tolist() == [10, 20]
    assert loss.values[0] == 1.0
    assert math.isnan(loss.values[1])
    assert record.curves["a/b"].steps.tolist() == [20]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("config.yaml", "The settings are not on record: config.yaml is missing."),
        ("provenance.json", "Versions, seed and data are not on record: provenance.json is missing."),  # noqa: E501
        ("status.json", "How the run ended is not on record: status.json is missing."),
        ("metrics.jsonl", "Training curves are missing: metrics.jsonl is missing."),
    ],
)  # fmt: skip
def test_a_missing_file_is_said_and_the_rest_is_read(run, name, sentence):
    (run / name).unlink()
    record = read_run(run)
    assert record.problems == (sentence,)
    assert "test" in record.evaluations


def test_a_file_cut_off_at_any_byte_still_gives_a_record(run):
    shutil.rmtree(run / "evaluation")
    for name in ("provenance.json", "status.json", "metrics.jsonl"):
        whole = (run / name).read_bytes()
        for length in range(len(whole)):
            (run / name).write_bytes(whole[:length])
            record = read_run(run)
            said = " ".join(record.problems)
            assert name == "metrics.jsonl" or f"{name} is damaged" in said
            assert record.config == "seed: 1\n"
        (run / name).write_bytes(whole)


def test_an_unfinished_last_line_costs_only_itself(run):
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 30, "train/lo')
    record = read_run(run)
    assert record.problems == ("1 line is damaged in metrics.jsonl and left out.",)
    assert record.curves["train/loss"].steps.tolist() == [10, 20]


def test_rows_without_a_step_and_words_among_numbers_are_left_out(run):
    lines = ('{"train/loss": 3}', "[1]", '{"step": 30, "train/loss": 4, "split": "a", "x": true}')
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    record = read_run(run)
    assert record.problems == ("2 lines are damaged in metrics.jsonl and left out.",)
    assert set(record.curves) == {"train/loss"}


def test_a_run_killed_before_its_test_says_so(run):
    shutil.rmtree(run / "evaluation")
    (run / "status.json").write_text('{"state": "running", "step": 12345}')
    assert read_run(run).problems == (
        "The run had not ended when this report was written; last sign of life at step 12,345.",
        "The run was not tested: there is no test evaluation.",
    )


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        ({"state": "interrupted", "step": 7}, "The run was interrupted at step 7."),
        ({"state": "failed", "step": 7, "result": "Disk full."}, "failed at step 7: Disk full."),
        ({"state": "asleep"}, "The state of the run on record is 'asleep'."),
    ],
)
def test_how_a_run_ended_is_said(run, status, sentence):
    (run / "status.json").write_text(json.dumps(status))
    (said,) = read_run(run).problems
    assert sentence in said


def test_a_damaged_evaluation_is_named_and_not_used(run):
    (run / "evaluation" / "test" / "agent.bars.parquet").write_bytes(b"PAR1")
    record = read_run(run)
    assert record.evaluations == {}
    assert "The test evaluation cannot be used: " in record.problems[0]
    assert "does not match its checksum" in record.problems[0]


def test_messages_are_told_apart_and_said_once(run):
    rows = [
        {"step": 5, "level": "warning", "text": "Collapsed."},
        {"step": 5, "level": "warning", "text": "Collapsed."},
        {"step": 6, "level": "note", "text": "Costs are full."},
    ]
    (run / "messages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"st')
    record = read_run(run)
    assert record.warnings == ("At step 5: Collapsed.",)
    assert record.notes == ("At step 6: Costs are full.",)
    assert record.problems == ("1 line is damaged in messages.jsonl and left out.",)


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(DataError, match="holds no run: none of config.yaml, .* is in it"):
        read_run(tmp_path)
    with pytest.raises(DataError, match=r"cannot be read \(No such file or directory\)"):
        read_run(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot be read \(Not a directory\)"):
        read_run(tmp_path / "file")
