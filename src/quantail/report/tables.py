"""Tables of one evaluation."""

from collections.abc import Mapping, Sequence
from typing import Final

from quantail.evaluation.measures import MEASURES
from quantail.evaluation.record import (
    DelayCurve,
    Estimate,
    Evaluation,
    Measures,
    Overfitting,
    Unit,
)
from quantail.report.canvas import shown_label
from quantail.report.numbers import Kind, number
from quantail.report.page import Markup, text
from quantail.report.run_folder import Role
from quantail.report.words import baselines, finding, p_value, range_of, result_kind, steps

_TAIL: Final = ("var_95", "cvar_95", "var_99", "cvar_99")
_SIGNED: Final = ("total_return", "annual_return")
_SHARES: Final = ("hit_rate", "time_in_market")
_PER_STEP: Final = {
    "total_return": "Sum of rewards",
    "annual_return": "Mean reward per step",
}


def table(head: Sequence[str], rows: Sequence[Sequence[Markup]], caption: str) -> Markup:
    """Return a table that scrolls on its own when the screen is narrow.

    Args:
        head: Titles of the columns; the first may be empty.
        rows: Cells as HTML; the first cell of a row names it.
        caption: What the table holds, for readers who hear the page.
    """
    top = "".join(f'<th scope="col">{text(title)}</th>' for title in head)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>' + "".join(f"<td>{c}</td>" for c in row[1:]) + "</tr>"
        for row in rows
    )
    return Markup(
        f'<div class="table" role="region" tabindex="0" aria-label="{text(caption)}"><table>'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def estimate_cell(estimate: Estimate, kind: Kind, *, with_interval: bool = True) -> Markup:
    """Return a number, its interval below in small print."""
    shown = range_of(estimate, kind) if with_interval else ""
    below = f'<span class="range">{text(shown)}</span>' if shown else ""
    return Markup(f"{text(number(estimate.value, kind))}{below}")


def measure_kind(name: str, unit: Unit) -> Kind:
    """Return how a measure is written; of rewards only shares of bars are percentages."""
    match MEASURES[name].unit:
        case "bars":
            return "count"
        case "ratio" | "per year":
            return "ratio"
        case "fraction":
            if unit == "reward" and name not in _SHARES:
                return "ratio"
            return "signed_percent" if name in _SIGNED else "percent"


def measure_title(name: str, unit: Unit) -> str:
    """Return the name of a measure with its unit."""
    if unit == "reward" and name in _PER_STEP:
        return _PER_STEP[name]
    info = MEASURES[name]
    year = "per year" if unit == "return" else "per step"
    suffix = {"bars": f", {steps(unit)}", "per year": f", {year}"}.get(info.unit, "")
    return info.label + (f", {year}" if name == "volatility" else suffix)


def definitions(evaluation: Evaluation) -> str:
    """Return the policies' full names and what each measure means, one per line."""
    policies = "\n".join(track.label for track in evaluation.tracks)
    measures = "\n".join(f"{info.label}: {info.meaning}" for info in MEASURES.values())
    return f"{policies}\n\n{measures}"


def measures_table(evaluation: Evaluation) -> Markup:
    """Return all measures but the tail, agent first, one column per policy."""
    tracks = [track for track in evaluation.tracks if track.name in evaluation.measures]
    rows = []
    for name in MEASURES:
        if name in _TAIL:
            continue
        kind = measure_kind(name, evaluation.unit)
        cells = [
            estimate_cell(
                getattr(evaluation.measures[track.name], name),
                kind,
                with_interval=track.name == "agent",
            )
            for track in tracks
        ]
        rows.append([text(measure_title(name, evaluation.unit)), *cells])
    return table(["", *map(shown_label, tracks)], rows, "Measures of the agent and the baselines")


def tail_table(evaluation: Evaluation) -> Markup:
    """Return VaR and CVaR with intervals, one row per policy."""
    kind = measure_kind("cvar_95", evaluation.unit)
    rows = []
    for track in evaluation.tracks:
        measures = evaluation.measures.get(track.name)
        if measures is not None:
            cells = [estimate_cell(getattr(measures, name), kind) for name in _TAIL]
            rows.append([text(shown_label(track)), *cells])
    head = ["", *(MEASURES[name].label for name in _TAIL)]
    return table(head, rows, "Tail risk of the agent and the baselines")


def comparison_table(evaluation: Evaluation) -> Markup:
    """Return the paired differences to every baseline."""
    kind = result_kind(evaluation.unit)
    market = evaluation.unit == "return"
    rows = [
        [
            text(shown_label(evaluation.track(row.baseline))),
            estimate_cell(row.annual_difference, kind),
            estimate_cell(row.sharpe_difference, "ratio"),
            text(p_value(row.p_value)),
            text(finding(row)),
        ]
        for row in baselines(evaluation)
    ]
    mean = "Mean return, per year" if market else "Mean reward, per step"
    head = ["Agent minus", mean, "Sharpe ratio", "p, one-sided", "Beyond chance"]
    return table(head, rows, "Paired differences between the agent and the baselines")


def delay_table(curve: DelayCurve, evaluation: Evaluation) -> Markup:
    """Return the agent's result when its orders fill later."""
    kind = result_kind(evaluation.unit)
    market = evaluation.unit == "return"
    rows = [
        [
            text(_delay_words(point.factor, evaluation.unit)),
            text(number(point.total_return, kind)),
            estimate_cell(point.annual_mean, kind),
            estimate_cell(point.sharpe, "ratio"),
        ]
        for point in curve.points
    ]
    mean = "Mean return, per year" if market else "Mean reward, per step"
    total = "Total return" if market else "Sum of rewards"
    head = ["Additional delay", total, mean, "Sharpe ratio"]
    return table(head, rows, "The agent's result by delay of its orders")


def _delay_words(delay: float, unit: Unit) -> str:
    words = steps(unit) if delay != 1 else steps(unit).removesuffix("s")
    return f"{number(delay, 'count')} {words}"


def roles_table(evaluations: Mapping[Role, Evaluation]) -> Markup:
    """Return the agent's main measures on validation beside those on test."""
    names = ("annual_return", "sharpe", "max_drawdown", "cvar_95")
    found: dict[str, tuple[Evaluation, Measures]] = {
        role: (evaluation, evaluation.measures["agent"])
        for role, evaluation in evaluations.items()
        if "agent" in evaluation.measures
    }
    unit = next(iter(found.values()))[0].unit
    rows = [
        [
            text(measure_title(name, unit)),
            *(
                estimate_cell(getattr(measures, name), measure_kind(name, unit))
                for _, measures in found.values()
            ),
        ]
        for name in names
    ]
    head = ["Agent", *(role.capitalize() for role in found)]
    return table(head, rows, "The agent on validation and on test")


def overfitting_words(overfitting: Overfitting) -> str:
    """Return in words what the number of trials does to the result."""
    trials = number(overfitting.n_trials, "count")
    tried = "1 trial was" if overfitting.n_trials == 1 else f"{trials} trials were"
    words = (
        f"{tried} made before this agent was chosen, itself included. The probability that its "
        "true Sharpe ratio exceeds what the luckiest of as many trials without skill would show "
        f"(deflated Sharpe ratio) is {number(overfitting.deflated_sharpe, 'percent')}."
    )
    if overfitting.probability is None:
        return words
    return (
        f"{words} The probability of backtest overfitting, that the best trial in one half of the "
        "bars falls below the median in the other, is "
        f"{number(overfitting.probability, 'percent')}."
    )
