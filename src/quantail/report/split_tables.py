"""Tables of a walk-forward run: one row per split."""

from collections.abc import Mapping, Sequence

from quantail.evaluation.record import Evaluation, SensitivityPoint
from quantail.report.numbers import number
from quantail.report.page import Markup, text
from quantail.report.tables import estimate_cell, table
from quantail.report.words import baselines, lower_first, period, result_kind

Splits = Mapping[str, Evaluation]


def results(splits: Splits) -> Markup:
    """Return what each split's agent earned, beside buy and hold and the main baseline."""
    rows = []
    for name, evaluation in splits.items():
        kind = result_kind(evaluation.unit)
        agent, held = (evaluation.measures.get(each) for each in ("agent", "buy_and_hold"))
        against = {row.baseline: row for row in baselines(evaluation)}
        main = against.get(evaluation.main_baseline)
        rows.append(
            [
                text(name),
                text(period(evaluation.track("agent").portfolio)),
                text(number(None if agent is None else agent.total_return.value, kind)),
                text(number(None if held is None else held.total_return.value, kind)),
                text(number(None if agent is None else agent.sharpe.value)),
                estimate_cell(main.annual_difference, kind) if main is not None else text("–"),
            ]
        )
    some = next(iter(splits.values()))
    rival = some.track(some.main_baseline).label
    per = "year" if some.unit == "return" else "step"
    difference = f"Agent minus {lower_first(rival)}, per {per}"
    head = ["Split", "Test bars", "Agent", "Buy and hold", "Sharpe ratio", difference]
    return table(head, rows, "The agent's result in each split")


def sensitivities(splits: Splits) -> list[Markup]:
    """Return the mean result of each split by multiple of the costs, and by delay."""
    costs = {
        name: each.cost_curve.points for name, each in splits.items() if each.cost_curve is not None
    }
    delays = {
        name: each.delay_curve.points
        for name, each in splits.items()
        if each.delay_curve is not None
    }
    some = next(iter(splits.values()))
    return [
        *_by_factor(costs, some, "costs ×", "Mean result per year at other costs"),
        *_by_factor(delays, some, "bars later:", "Mean result per year when orders fill later"),
    ]


def _by_factor(
    points: Mapping[str, Sequence[SensitivityPoint]], some: Evaluation, unit: str, title: str
) -> list[Markup]:
    if not points:
        return []
    kind = result_kind(some.unit)
    factors = sorted({point.factor for row in points.values() for point in row})
    rows = []
    for name, row in points.items():
        by_factor = {point.factor: point.annual_mean for point in row}
        cells = [
            estimate_cell(by_factor[factor], kind) if factor in by_factor else text("–")
            for factor in factors
        ]
        rows.append([text(name), *cells])
    head = ["Split", *(f"{unit} {factor:g}" for factor in factors)]
    return [Markup(f"<h3>{text(title)}</h3>"), table(head, rows, title)]


def calibrations(splits: Splits) -> list[Markup]:
    """Return how well each split's critic foresaw the tail."""
    rows = [
        [
            text(name),
            text(number(each.calibration.n, "count")),
            text(number(each.calibration.error, "percent")),
            text(number(each.calibration.predicted_cvar)),
            text(number(each.calibration.realized_cvar)),
        ]
        for name, each in splits.items()
        if each.calibration is not None
    ]
    if not rows:
        return []
    title = "What the critics foretold"
    head = ["Split", "Starts", "Mean error of probability", "CVaR predicted", "CVaR realized"]
    return [Markup(f"<h3>{text(title)}</h3>"), table(head, rows, title)]
