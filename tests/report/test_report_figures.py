import base64
import dataclasses
import json

import numpy as np
import pytest

from quantail.diagnostics.schema import declared
from quantail.evaluation.record import CostCurve, Estimate, SensitivityPoint, Series, Window
from quantail.report.calibration_figures import transform_histogram
from quantail.report.canvas import pens, shown_time
from quantail.report.figures import against_baselines, cost_figure, equity_and_drawdown, positions
from quantail.report.problem_figures import rewards_and_gap
from quantail.report.run_folder import Curve
from quantail.report.training import GLANCE, GROUPS, alarms, all_curves, glance_plots
from tests.evaluation.example_records import example_evaluation


def decoded(array) -> np.ndarray:
    if isinstance(array, list):
        return np.array(array)
    return np.frombuffer(base64.b64decode(array["bdata"]), np.dtype(array["dtype"]))


def drawing(plot, index: int = 0) -> dict:
    return json.loads(plot.sheets[index].figure)


def with_returns(evaluation, returns: dict[str, list[float]]):
    tracks = []
    for track in evaluation.tracks:
        net = np.array(returns.get(track.name, [0.0] * 3))
        columns = {f.name: np.zeros(3) for f in dataclasses.fields(Series)}
        columns |= {
            "time": track.portfolio.time[:3],
            "net_return": net,
            "equity": np.cumprod(1.0 + net),
        }
        tracks.append(dataclasses.replace(track, portfolio=Series(**columns)))
    return dataclasses.replace(evaluation, tracks=tuple(tracks))


def test_equity_and_drawdown_are_those_of_the_track():
    # 1.1, 0.55, 0.66: half is lost from the peak 1.1, then two fifths are missing
    evaluation = with_returns(
        example_evaluation(), {"agent": [0.1, -0.5, 0.2], "buy_and_hold": [0.0, 0.0, 0.25]}
    )
    plot = equity_and_drawdown(evaluation)
    assert plot.finding == "The agent ended at −34.0%; flat at 0.0% and buy and hold at +25.0%"
    traces = drawing(plot)["data"]
    assert decoded(traces[0]["y"]) == pytest.approx([1.1, 0.55, 0.66])
    below = [trace for trace in traces if trace.get("yaxis") == "y2"]
    assert decoded(below[0]["y"]) == pytest.approx([0.0, -0.5, -0.4])
    assert {trace["name"] for trace in below}.isdisjoint({"Flat"})
    assert drawing(plot)["layout"]["yaxis"].get("type") is None


def test_equity_over_decades_is_drawn_on_a_log_axis():
    evaluation = with_returns(example_evaluation(), {"agent": [1.0, 4.0, 9.0]})
    layout = drawing(equity_and_drawdown(evaluation))["layout"]
    assert layout["yaxis"]["type"] == "log"
    assert "log scale" in layout["yaxis"]["title"]["text"]
    assert {1.0, 10.0, 100.0} <= set(decoded(layout["yaxis"]["tickvals"]).tolist())


def test_a_ruined_account_is_never_put_on_a_log_axis():
    evaluation = with_returns(
        example_evaluation(), {"agent": [0.0, -1.0, 0.0], "buy_and_hold": [9.0, 0.0, 0.0]}
    )
    assert drawing(equity_and_drawdown(evaluation))["layout"]["yaxis"].get("type") is None


@pytest.mark.parametrize(
    ("intervals", "finding"),
    [
        (
            [(0.01, 0.03), (-0.01, 0.03)],
            "Beyond chance, the agent did better than 1 of 2 baselines",
        ),
        (
            [(0.01, 0.03), (-0.03, -0.01)],
            "Beyond chance, the agent did better than 1 of 2 baselines and worse than 1",
        ),
        (
            [(-0.03, -0.01), (-0.01, 0.03)],
            "Beyond chance, the agent did worse than 1 of 2 baselines and better than none",
        ),
        ([(None, None), (-0.1, 0.1)], "No difference to any of 2 baselines goes beyond chance"),
    ],
)
def test_the_finding_counts_baselines_whose_interval_excludes_zero(intervals, finding):
    evaluation = example_evaluation()
    first = evaluation.comparisons[0]
    rows = [
        dataclasses.replace(
            first,
            baseline=name,
            mean_difference=Estimate(0.0, *ends),
            annual_difference=Estimate(0.0, *ends),
        )
        for name, ends in zip(("flat", "buy_and_hold"), intervals, strict=True)
    ]
    # The best constant knew the future: it is shown, and counts for nothing.
    sure = Estimate(-1.0, -1.1, -0.9)
    rows.append(
        dataclasses.replace(
            first, baseline="best_constant", mean_difference=sure, annual_difference=sure
        )
    )
    plot = against_baselines(dataclasses.replace(evaluation, comparisons=tuple(rows)))
    assert plot.finding == finding
    assert len(decoded(drawing(plot)["data"][0]["x"])) == 3


def curve(values, break_even=None) -> CostCurve:
    factors = (0.0, 1.0, 4.0)
    return CostCurve(
        tuple(
            SensitivityPoint(factor, value, Estimate(value), Estimate(value))
            for factor, value in zip(factors, values, strict=True)
        ),
        break_even,
    )


@pytest.mark.parametrize(
    ("points", "finding"),
    [
        (curve((0.3, 0.1, -0.2), 1.86), "The mean result reaches zero at 1.86 times the costs"),
        (curve((0.3, 0.2, 0.1)), "stays above zero from no costs to 4 times the costs"),
        (curve((-0.1, -0.2, -0.3)), "is not above zero at any cost, from no costs to 4 times"),
    ],
)
def test_the_cost_figure_says_how_much_the_agent_can_pay(points, finding):
    plot = cost_figure(points, example_evaluation())
    assert finding in plot.finding
    assert len(drawing(plot)["data"]) == 1  # no band without intervals


def test_positions_are_counted_and_drawn_over_the_price():
    evaluation = example_evaluation()
    agent = evaluation.tracks[0]
    position = np.zeros(60)
    position[:15], position[15:21] = 1.0, -0.5
    agent = dataclasses.replace(agent, bars=dataclasses.replace(agent.bars, position=position))
    plot = positions(dataclasses.replace(evaluation, tracks=(agent, *evaluation.tracks[1:])))
    assert plot.finding == (
        "The agent was long in 25.0% of the bars, short in 10.0% and flat in 65.0%"
    )
    assert [sheet.label for sheet in plot.sheets] == [
        "AAA (2024-01-01 to 2024-01-30, 30 bars)",
        "BBB (2024-01-31 to 2024-02-29, 30 bars, ended bankrupt)",
    ]
    traces = drawing(plot)["data"]
    assert decoded(traces[0]["y"]).tolist() == position[:30].tolist()
    assert decoded(traces[1]["y"]) == pytest.approx(agent.bars.price[:30], rel=1e-6)


def test_a_problem_shows_steps_rewards_and_the_optimum():
    evaluation = example_evaluation()
    tracks = []
    for name, original in zip(("agent", "optimal"), evaluation.tracks, strict=False):
        series = dataclasses.replace(
            original.bars.rows(slice(0, 30)), time=np.arange(30), price=np.full(30, np.nan)
        )
        tracks.append(
            dataclasses.replace(
                original,
                name=name, label=name, unit="reward", windows=(Window("instance 1", 0, 30),),
                bars=series, portfolio=series,
            )
        )  # fmt: skip
    problem = dataclasses.replace(
        evaluation, unit="reward", tracks=tuple(tracks), main_baseline="optimal"
    )
    agent, optimal = problem.tracks
    optimal.portfolio.equity[:] = agent.portfolio.equity + np.arange(30) / 10
    plot = rewards_and_gap(problem)
    assert "%" not in plot.finding
    assert drawing(plot)["layout"]["xaxis"]["title"]["text"] == "Step"
    (behind,) = [trace for trace in drawing(plot)["data"] if trace.get("yaxis") == "y2"]
    assert decoded(behind["y"]) == pytest.approx(-np.arange(30) / 10)
    alone = rewards_and_gap(dataclasses.replace(problem, tracks=(agent,)))
    assert "yaxis2" not in drawing(alone)["layout"]
    sure = Estimate(-1.0, -1.1, -0.9)
    bound = dataclasses.replace(
        evaluation.comparisons[0], baseline="optimal", mean_difference=sure, annual_difference=sure
    )
    with_bound = dataclasses.replace(problem, comparisons=(bound,))
    assert against_baselines(with_bound).finding == "Differences to bounds that no agent can beat"
    traces = drawing(positions(problem))["data"]
    assert [trace["name"] for trace in traces] == ["Agent's position", "optimal"]


def test_the_histogram_counts_bars_beyond_chance():
    calibration = dataclasses.replace(example_evaluation().calibration, n=100, error=0.034)
    # three even bars of 1/3 with 100 starts vary by 1.96·√(1/3·2/3/100) = 0.092
    plot = transform_histogram(dataclasses.replace(calibration, pit=(0.22, 0.33, 0.45)))
    assert plot.finding == (
        "Predicted probabilities are off by 3.4% on average; 2 of 3 bars lie beyond chance"
    )
    none = transform_histogram(dataclasses.replace(calibration, pit=(0.26, 0.32, 0.42)))
    assert "0 of 3" in none.finding


@pytest.mark.parametrize(
    ("unit", "shown"),
    [("D", "2024-01-05"), ("m", "2024-01-05T00:00"), ("s", "2024-01-05T00:00:00")],
)
def test_times_are_written_as_short_as_they_are_exact(unit, shown):
    time = np.array(["2024-01-05"], dtype="datetime64[ns]")
    later = time + np.timedelta64(1, unit)
    assert shown_time(np.concatenate([time, later]))[0] == shown


def test_steps_stay_numbers():
    assert shown_time(np.arange(3)).tolist() == [0, 1, 2]


def test_every_track_gets_its_own_look():
    tracks = tuple(
        dataclasses.replace(example_evaluation().tracks[0], name=name)
        for name in ("agent", "flat", "buy_and_hold", "best_constant", "momentum", "a", "b")
    )
    looks = [(pen.color, pen.dash) for pen in pens(tracks).values()]
    assert len(set(looks)) == len(tracks)


def test_curves_show_gaps_where_a_metric_was_not_finite():
    curves = {
        "train/loss": Curve(np.array([1, 2, 3]), np.array([1.0, np.nan, np.inf])),
        "train/approx_kl": Curve(np.array([1]), np.array([0.02])),
    }
    plot = all_curves(curves)
    assert plot.finding == "2 metrics recorded over 3 steps"
    kl, loss = (drawing(plot, i) for i in (0, 1))
    assert decoded(loss["data"][1]["x"]).tolist() == [2, 3]
    assert kl["data"][0]["mode"] == "markers"
    assert kl["layout"]["shapes"], "the healthy range of the KL is declared"
    assert [item.caption for item in glance_plots(curves)] == ["train/approx_kl"]


def test_undefined_explained_variance_is_no_alarm():
    values = Curve(np.array([1, 2]), np.array([np.nan, 0.5]))
    assert alarms({"train/explained_variance": values}) == ()
    assert alarms({"train/loss": values}) == (
        "train/loss was not a finite number in 1 of 2 records, first at step 1.",
    )


def test_a_range_left_often_is_an_alarm_and_left_once_is_none():
    steps, values = np.arange(1, 21), np.full(20, 0.02)
    values[4] = 0.5
    assert alarms({"train/approx_kl": Curve(steps, values)}) == ()
    values[5] = 0.5
    (sentence,) = alarms({"train/approx_kl": Curve(steps, values)})
    assert (
        "was outside its healthy range [0, 0.100] in 2 of 20 records, first at step 5" in sentence
    )


def test_the_curves_that_tell_most_are_metrics_that_exist():
    assert set(GLANCE) - set(declared(*GROUPS)) <= {"rollout/ep_rew_mean"}  # SB3's own
