import dataclasses
import html
import math
import re

from quantail.evaluation.measures import MEASURES
from quantail.evaluation.record import Estimate
from quantail.report.tables import (
    comparison_table,
    delay_table,
    measure_title,
    measures_table,
    overfitting_words,
    roles_table,
    tail_table,
)
from tests.evaluation.example_records import example_evaluation


def cells(markup: str) -> list[list[str]]:
    """Return a table's rows as text, the head first."""
    rows = re.findall(r"<tr>(.*?)</tr>", markup)
    found = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]
    spaced = [[re.sub(r"<[^>]*>", " ", cell) for cell in row] for row in found]
    return [[" ".join(html.unescape(cell).split()) for cell in row] for row in spaced]


def with_measure(evaluation, track: str, **values: Estimate):
    measures = dict(evaluation.measures)
    measures[track] = dataclasses.replace(measures[track], **values)
    return dataclasses.replace(evaluation, measures=measures)


def test_measures_stand_by_policy_with_the_agents_intervals():
    evaluation = example_evaluation()
    evaluation = with_measure(
        evaluation,
        "agent",
        total_return=Estimate(0.123, 0.05, 0.2),
        volatility=Estimate(0.2),
        sharpe=Estimate(1.5, 1.0, 2.0),
    )
    evaluation = with_measure(
        evaluation,
        "flat",
        total_return=Estimate(-0.01, -0.02, 0.0),
        volatility=Estimate(0.0),
        sharpe=Estimate(math.nan),
    )
    head, *rows = cells(measures_table(evaluation))
    table = {row[0]: row[1:] for row in rows}
    assert head == ["", "Agent", "Flat", "Buy and hold", "Best constant (hindsight)"]
    assert table["Total return"][:2] == ["+12.3% [+5.0%, +20.0%]", "−1.0%"]
    assert table["Volatility, per year"][:2] == ["20.0%", "0.0%"]
    assert table["Sharpe ratio"][:2] == ["1.50 [1.00, 2.00]", "–"]
    tail = {"var_95", "cvar_95", "var_99", "cvar_99"}
    assert len(rows) == len(MEASURES) - len(tail)


def test_rewards_are_not_percentages():
    evaluation = dataclasses.replace(example_evaluation(), unit="reward")
    evaluation = with_measure(
        evaluation, "agent", total_return=Estimate(12.5), hit_rate=Estimate(0.5)
    )
    table = {row[0]: row[1] for row in cells(measures_table(evaluation))}
    assert table["Sum of rewards"] == "12.5"
    assert table["Hit rate"] == "50.0%"
    assert measure_title("volatility", "reward") == "Volatility, per step"


def test_the_tail_has_an_interval_for_everyone():
    evaluation = with_measure(example_evaluation(), "flat", cvar_99=Estimate(-0.041, -0.05, -0.03))
    head, *rows = cells(tail_table(evaluation))
    assert head == ["", "VaR 95%", "CVaR 95%", "VaR 99%", "CVaR 99%"]
    assert {row[0]: row[4] for row in rows}["Flat"] == "−4.1% [−5.0%, −3.0%]"


def test_comparisons_say_what_goes_beyond_chance():
    evaluation = example_evaluation()
    first = evaluation.comparisons[0]
    rows = tuple(
        dataclasses.replace(first, baseline=name, mean_difference=Estimate(0.0, *ends))
        for name, ends in (
            ("flat", (0.01, 0.02)),
            ("buy_and_hold", (-0.02, -0.01)),
            ("best_constant", (-0.1, 0.1)),
            ("best_constant", (None, None)),
        )
    )
    _, *table = cells(comparison_table(dataclasses.replace(evaluation, comparisons=rows)))
    assert [row[-1] for row in table] == ["better", "worse", "no evidence", "not judged"]
    assert table[0][:2] == ["Flat", "+2.0% [−1.0%, +5.0%]"]
    assert table[0][2:4] == ["0.0200 [−0.0100, 0.0500]", "0.200"]


def test_the_agents_own_drawn_actions_are_no_baseline():
    evaluation = example_evaluation()
    row = evaluation.comparisons[0]
    rows = (dataclasses.replace(row, baseline="agent_sampled"), row)
    _, *table = cells(comparison_table(dataclasses.replace(evaluation, comparisons=rows)))
    assert [row[0] for row in table] == ["Flat"]


def test_delays_are_counted_in_bars():
    evaluation = example_evaluation()
    _, *rows = cells(delay_table(evaluation.delay_curve, evaluation))
    assert [row[0] for row in rows] == ["0 bars", "1 bar", "2 bars"]
    assert [row[1] for row in rows] == ["+10.0%", "−90.0%", "−190.0%"]


def test_validation_and_test_stand_side_by_side():
    test = with_measure(example_evaluation(), "agent", annual_return=Estimate(0.01))
    validation = with_measure(example_evaluation(), "agent", annual_return=Estimate(0.3))
    head, first, *_ = cells(roles_table({"test": test, "validation": validation}))
    assert head == ["Agent", "Test", "Validation"]
    assert first == ["Annual return", "+1.0%", "+30.0%"]


def test_trials_are_said_in_words():
    found = example_evaluation().overfitting
    assert overfitting_words(dataclasses.replace(found, n_trials=1)).startswith("1 trial was made")
    assert "(deflated Sharpe ratio) is 40.0%." in overfitting_words(found)
    assert "backtest overfitting" not in overfitting_words(found)
    assert "is 46.0%." in overfitting_words(dataclasses.replace(found, probability=0.46))
