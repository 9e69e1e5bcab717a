import dataclasses

import pytest

from quantail.evaluation.record import Comparison, Estimate
from quantail.report import write_report
from quantail.report.tables import delay_table
from quantail.report.words import p_value, typeset
from tests.evaluation.example_records import example_evaluation, example_track
from tests.report.test_report_html import words, write_run


def test_no_line_breaks_inside_a_figure():
    written = "net return +0.8% [-20.6%, +24.4%] a year, of which -0.6 % [-7.6, +9.4] by timing"
    assert typeset(written) == (
        "net return +0.8% [−20.6%,\u00a0+24.4%] a year, of which −0.6\u00a0% [−7.6,\u00a0+9.4] "
        "by timing"
    )


@pytest.mark.parametrize(
    "plain", ["walk-forward", "2017-08-04 to 2017-12-22", "a - b", "walk_forward_0-1", "1e-5"]
)
def test_hyphens_that_are_no_minus_stay(plain):
    assert typeset(plain) == plain


@pytest.mark.parametrize(
    ("value", "shown"), [(0.474, "0.474"), (1.0, "1.000"), (0.000999, "<0.001"), (0.001, "0.001")]
)
def test_p_values_show_what_resampling_can_tell(value, shown):
    assert p_value(value) == shown


def test_delays_are_counted_in_bars_or_steps():
    evaluation = example_evaluation()
    points = tuple(
        dataclasses.replace(evaluation.delay_curve.points[0], factor=factor) for factor in (0, 1, 2)
    )
    curve = dataclasses.replace(evaluation.delay_curve, points=points)
    market = dataclasses.replace(evaluation, unit="return")
    problem = dataclasses.replace(evaluation, unit="reward")
    assert all(f">{words}<" in delay_table(curve, market) for words in ("0 bars", "1 bar"))
    assert all(f">{words}<" in delay_table(curve, problem) for words in ("1 step", "2 steps"))


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (-0.2, 0.4, "is no evidence either way, as the interval includes zero"),
        (0.1, 0.4, "is in favor of the agent beyond chance"),
        (-0.4, -0.2, "is against the agent beyond chance"),
        (None, None, "cannot be judged, as there are too few bars"),
    ],
)
def test_the_result_stands_beside_buy_and_hold_in_words(tmp_path, low, high, says):
    estimate = Estimate(0.1 if low is None else (low + high) / 2, low, high)
    evaluation = example_evaluation()
    held = dataclasses.replace(example_track("buy_and_hold"), name="buy_and_hold")
    measures = dict(evaluation.measures)
    measures["buy_and_hold"] = dataclasses.replace(
        measures["agent"], total_return=Estimate(1.427, 1.0, 2.0)
    )
    measures["agent"] = dataclasses.replace(measures["agent"], total_return=Estimate(0.091))
    row = Comparison("buy_and_hold", estimate, estimate, estimate, 0.2, 3.5, 0.95)
    evaluation = dataclasses.replace(
        evaluation,
        unit="return",
        tracks=(*(t for t in evaluation.tracks if t.name != "buy_and_hold"), held),
        measures=measures,
        comparisons=(*evaluation.comparisons, row),
    )
    text = words(write_report(write_run(tmp_path / "run", evaluation)))
    assert "Buy and hold returned +142.7% over the same bars, the agent +9.1%." in text
    assert says in text
