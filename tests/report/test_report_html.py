import base64
import dataclasses
import html
import json
import re

import numpy as np
import pytest

from quantail.errors import DataError
from quantail.evaluation.record import Track, Verdict, Window
from quantail.evaluation.record_file import save_evaluation
from quantail.report import write_report
from tests.evaluation.example_records import example_evaluation, example_series

SENTENCE = "Evidence of <skill> & more: +3.0% a year."


def write_run(folder, evaluation=None, rows=({"step": 10, "train/loss": 1.0},)):
    folder.mkdir()
    (folder / "config.yaml").write_text("seed: 1  # <b>mine</b>\n")
    (folder / "provenance.json").write_text('{"seed": 1}')
    (folder / "status.json").write_text('{"state": "finished", "step": 20}')
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if evaluation is not None:
        save_evaluation(evaluation, folder / "evaluation" / evaluation.role)
    return folder


def words(path) -> str:
    """Return the page's text without scripts and tags, spaces joined."""
    content = path.read_text(encoding="utf-8")
    content = re.sub(r"<(script|style).*?</\1>", " ", content, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", content)).split())


def figures(path) -> dict:
    blocks = re.findall(
        r'<script type="application/json" id="([a-z-]+)-data">(.*?)</script>',
        path.read_text(encoding="utf-8"),
    )
    return {name: json.loads(data) for name, data in blocks}


def test_the_verdict_stands_on_top_word_for_word(tmp_path):
    evaluation = dataclasses.replace(
        example_evaluation(), verdict=Verdict(SENTENCE, "skill", True, {})
    )
    path = write_report(write_run(tmp_path / "run", evaluation))
    text = words(path)
    assert path == tmp_path / "run" / "report.html"
    assert SENTENCE in text
    assert text.index(SENTENCE) < 300
    assert 'class="verdict good"' in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("level", "tone"), [("no_evidence", "calm"), ("worse", "warn"), ("skill", "good")]
)
def test_the_tone_follows_the_verdict(tmp_path, level, tone):
    verdict = Verdict("A sentence.", level, level == "skill", {})
    evaluation = dataclasses.replace(example_evaluation(), verdict=verdict)
    path = write_report(write_run(tmp_path / "run", evaluation))
    assert f'class="verdict {tone}"' in path.read_text(encoding="utf-8")


def test_a_full_evaluation_shows_every_part(tmp_path):
    path = write_report(write_run(tmp_path / "run", example_evaluation()))
    text = words(path)
    for part in (
        "Fraction of the optimum",
        "VaR 95%",
        "CVaR 99%",
        "Buy and hold",
        "Best constant (hindsight)",
        "Additional delay",
        "In the worst 5% of cases the critic expected −2.00 on average; it came to −2.50",
        "deflated Sharpe ratio",
        "3 trials were made",
        "BBB: the account was ruined on 2024-01-20.",
        "seed: 1 # <b>mine</b>",
        "No difference to any of 1 baseline goes beyond chance",
    ):
        assert part in text
    drawn = set(figures(path))
    assert {
        "equity", "baselines-plot", "cost-plot", "law-plot", "transform-plot", "positions-plot",
        "curves-plot",
    } <= drawn  # fmt: skip
    assert "http://" not in words(path)


def test_a_run_without_a_test_says_so_and_flatters_nobody(tmp_path):
    evaluation = dataclasses.replace(
        example_evaluation(), role="validation", verdict=Verdict(SENTENCE, "skill", True, {})
    )
    path = write_report(write_run(tmp_path / "run", evaluation))
    text = words(path)
    assert "Not tested, so nothing can be said about skill." in text
    assert "which also served to choose the agent and therefore flatter it" in text
    assert "The run was not tested: there is no test evaluation." in text
    assert 'class="verdict good"' not in path.read_text(encoding="utf-8")


def test_a_run_killed_in_training_still_reports_its_curves(tmp_path):
    folder = write_run(tmp_path / "run")
    (folder / "status.json").write_text('{"state": "running", "step": 10}')
    path = write_report(folder)
    text = words(path)
    assert "Not tested, so nothing can be said about skill." in text
    assert "last sign of life at step 10" in text
    assert set(figures(path)) == {"curves-plot"}


def test_a_run_killed_at_its_start_reports_in_words_alone(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text("seed: 1\n")
    path = write_report(folder)
    assert "Training curves are missing: metrics.jsonl is missing." in words(path)
    assert path.stat().st_size < 30_000


def test_validation_stands_beside_test(tmp_path):
    folder = write_run(tmp_path / "run", example_evaluation())
    validation = dataclasses.replace(example_evaluation(), role="validation")
    save_evaluation(validation, folder / "evaluation" / "validation")
    text = words(write_report(folder))
    assert "The agent was chosen on validation, so its result there flatters it." in text
    assert "Agent Test Validation" in text


def test_warnings_of_training_are_said_in_words(tmp_path):
    rows = [
        {"step": 100 * i, "warn/critic1_vanishing_gradients": float(i == 3), "train/loss": 1.0}
        for i in range(1, 5)
    ]
    rows[3]["train/loss"] = None
    folder = write_run(tmp_path / "run", rows=rows)
    (folder / "messages.jsonl").write_text(
        '{"step": 300, "level": "warning", "text": "The policy has collapsed to one action."}\n'
    )
    text = words(write_report(folder))
    assert "At step 300: The policy has collapsed to one action." in text
    assert "warn/critic1_vanishing_gradients" in text
    assert "was raised in 1 of 4 records, first at step 300." in text
    assert "train/loss was not a finite number in 1 of 4 records, first at step 400." in text


def test_quiet_training_raises_nothing(tmp_path):
    rows = [{"step": 1, "warn/critic1_vanishing_gradients": 0.0, "train/loss": 1.0}]
    assert "Training raised warnings" not in words(
        write_report(write_run(tmp_path / "run", rows=rows))
    )


def test_a_second_report_replaces_the_first_and_leaves_nothing_else(tmp_path):
    folder = write_run(tmp_path / "run", example_evaluation())
    before = {path.name for path in folder.iterdir()}
    write_report(folder)
    (folder / "metrics.jsonl").write_text('{"step": 99, "train/loss": 1.0}\n')
    assert "over 99 steps" in words(write_report(folder))
    assert {path.name for path in folder.iterdir()} == before | {"report.html"}


def test_a_report_in_the_way_is_named(tmp_path):
    folder = write_run(tmp_path / "run")
    (folder / "report.html").mkdir()
    with pytest.raises(DataError, match="report.html cannot be written"):
        write_report(folder)
    assert not [path for path in folder.iterdir() if path.name.endswith(".tmp")]


def test_a_long_evaluation_stays_small_and_keeps_its_extremes(tmp_path):
    n_windows, n_bars = 14, 20_000
    bars = example_series(n_windows * n_bars, 1)
    bars.position[7_777] = 9.0
    portfolio = example_series(n_bars, 2)
    portfolio.equity[12_345] = 55.0
    windows = tuple(Window(f"S{i}", i * n_bars, (i + 1) * n_bars) for i in range(n_windows))
    names = ("agent", "flat", "buy_and_hold", "best_constant", "momentum", "other", "another")
    tracks = (
        Track("agent", "agent", "return", False, windows, bars, portfolio),
        *(Track(n, n, "return", False, (), example_series(0, 1), portfolio) for n in names[1:]),
    )
    short = example_evaluation()
    evaluation = dataclasses.replace(
        short,
        tracks=tracks,
        measures=dict.fromkeys(names, short.measures["agent"]),
        comparisons=tuple(dataclasses.replace(short.comparisons[0], baseline=n) for n in names[1:]),
    )
    rows = [{"step": i, **{f"train/m{k}": i % 7 for k in range(50)}} for i in range(2000)]
    path = write_report(write_run(tmp_path / "run", evaluation, rows))
    assert path.stat().st_size < 7_000_000
    drawn = figures(path)
    assert len(drawn["positions-plot"]) == 12
    assert "The first 12 of 14 windows are drawn." in words(path)
    assert _decoded(drawn["positions-plot"][0]["data"][0]["y"]).max() == pytest.approx(9.0)
    assert _decoded(drawn["equity"][0]["data"][0]["y"]).max() == pytest.approx(55.0)


def _decoded(array) -> np.ndarray:
    return np.frombuffer(base64.b64decode(array["bdata"]), np.dtype(array["dtype"]))


def test_labels_of_the_user_reach_figures_escaped(tmp_path):
    nasty = "<b>X</b>&"
    evaluation = example_evaluation()
    tracks = tuple(dataclasses.replace(track, label=nasty) for track in evaluation.tracks)
    path = write_report(write_run(tmp_path / "run", dataclasses.replace(evaluation, tracks=tracks)))
    names = {trace["name"] for trace in figures(path)["equity"][0]["data"]}
    assert "&lt;b&gt;X&lt;/b&gt;&amp;" in names
    assert nasty not in path.read_text(encoding="utf-8")


def test_a_walk_forward_run_shows_every_split(tmp_path):
    folder = write_run(tmp_path / "run", example_evaluation())
    for name in ("2019", "2020"):
        save_evaluation(example_evaluation(), folder / "folds" / name / "test")
    text = words(write_report(folder))
    assert "Split by split" in text
    for name in ("2019", "2020"):
        assert f"{name} 2024-01-01 to 2024-01-30, 30 bars" in text
        assert f"{name} 40 5.0% −2.00 −2.50" in text
    assert "Split costs × 0 costs × 1 costs × 2" in text
    assert "Agent minus flat, per year" in text


def test_splits_of_a_run_that_was_killed_are_shown_without_a_verdict(tmp_path):
    folder = write_run(tmp_path / "run")
    save_evaluation(example_evaluation(), folder / "folds" / "2019" / "test")
    (folder / "folds" / "2020").mkdir()
    text = words(write_report(folder))
    assert "Not tested, so nothing can be said about skill." in text
    assert "2019 2024-01-01 to 2024-01-30, 30 bars" in text


def test_a_damaged_split_is_named(tmp_path):
    folder = write_run(tmp_path / "run", example_evaluation())
    save_evaluation(example_evaluation(), folder / "folds" / "2019" / "test")
    (folder / "folds" / "2019" / "test" / "evaluation.json").write_text("{")
    text = words(write_report(folder))
    assert "The 2019 split's test evaluation cannot be used" in text
    assert "Split by split" not in text
