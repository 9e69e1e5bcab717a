"""The top of the page: the verdict in one sentence, and the few numbers behind it."""

from collections.abc import Sequence
from typing import Final

from quantail.evaluation.record import Estimate, Evaluation
from quantail.report.numbers import Kind, number
from quantail.report.page import Markup, join, note, text
from quantail.report.run_folder import RunRecord
from quantail.report.words import (
    confidence_words,
    judgment,
    period,
    range_of,
    result_kind,
    typeset,
    with_range,
)

_TONES: Final = {"skill": "good", "no_evidence": "calm", "worse": "warn"}
_UNTESTED: Final = "Not tested, so nothing can be said about skill."
_SELECTED_ON: Final = (
    "On validation, which also served to choose the agent and therefore flatter it: "
)


def main_evaluation(record: RunRecord) -> Evaluation | None:
    """Return the test evaluation, else the one on validation, else None."""
    return record.evaluations.get("test") or record.evaluations.get("validation")


def headline(record: RunRecord, alarms: Sequence[str]) -> Markup:
    """Return verdict, key figures and everything the reader must know first.

    Args:
        record: The run.
        alarms: What the metrics of training warn of, a sentence each.
    """
    evaluation = main_evaluation(record)
    parts = [
        Markup(f"<h1>Quantail report: {text(record.folder.resolve().name)}</h1>"),
        Markup(f'<p class="meta">{text(_subject(evaluation))}</p>'),
        _verdict(record),
    ]
    if evaluation is not None:
        parts.append(_key_figures(evaluation))
    warnings = (*record.warnings, *alarms)
    if warnings:
        parts.append(note("Training raised warnings", [typeset(words) for words in warnings]))
    if record.problems:
        parts.append(note("This record is not complete", record.problems))
    notes = (*(evaluation.notes if evaluation is not None else ()), *record.notes)
    if notes:
        parts.append(note("To know", [typeset(words) for words in notes], calm=True))
    return join(parts)


def _subject(evaluation: Evaluation | None) -> str:
    if evaluation is None:
        return "No evaluation on record"
    symbols = evaluation.symbols
    shown = ", ".join(symbols[:6]) + (f" and {len(symbols) - 6} more" if len(symbols) > 6 else "")
    span = next((period(t.portfolio) for t in evaluation.tracks if t.name == "agent"), "")
    parts = (evaluation.split, shown, f"{evaluation.role}: {span}")
    return " · ".join(part for part in parts if part)


def _verdict(record: RunRecord) -> Markup:
    test = record.evaluations.get("test")
    if test is not None:
        beside = _beside_holding(test)
        return _box(_TONES[test.verdict.level], "Verdict", test.verdict.sentence, beside)
    validation = record.evaluations.get("validation")
    more = "" if validation is None else f" {_SELECTED_ON}{validation.verdict.sentence}"
    return _box("warn", "Not tested", f"{_UNTESTED}{more}")


def _box(kind: str, label: str, sentence: str, more: str = "") -> Markup:
    below = f'<p class="more">{text(more)}</p>' if more else ""
    return Markup(
        f'<div class="verdict {kind}"><div class="label">{text(label)}</div>'
        f"<p>{text(typeset(sentence))}</p>{below}</div>"
    )


def _beside_holding(evaluation: Evaluation) -> str:
    """Return the agent's result beside buy and hold in words; empty where nobody held."""
    against = {row.baseline: row for row in evaluation.comparisons}
    if evaluation.unit != "return" or "buy_and_hold" not in against:
        return ""
    kind = result_kind(evaluation.unit)
    held, agent = (
        number(evaluation.measures[name].total_return.value, kind)
        for name in ("buy_and_hold", "agent")
    )
    row = against["buy_and_hold"]
    return typeset(
        f"Buy and hold returned {held} over the same bars, the agent {agent}. The difference of "
        f"the mean, {with_range(row.annual_difference, kind)} a year, {judgment(row)}."
    )


def _key_figures(evaluation: Evaluation) -> Markup:
    figures = _problem_figures(evaluation) or _market_figures(evaluation)
    cells = "".join(
        f"<div><dt>{text(title)}</dt><dd>{text(number(estimate.value, kind))}</dd>"
        f'<dd class="range">{text(range_of(estimate, kind))}</dd></div>'
        for title, estimate, kind in figures
    )
    below = f"In brackets: {confidence_words(evaluation)}."
    ranged = any(range_of(estimate, kind) for _, estimate, kind in figures)
    return Markup(
        f'<dl class="figures">{cells}</dl>'
        + (f'<p class="small muted">{text(below)}</p>' if ranged else "")
    )


_Figures = list[tuple[str, Estimate, Kind]]


def _problem_figures(evaluation: Evaluation) -> _Figures:
    optimum = evaluation.optimum
    if optimum is None:
        return []
    return [
        ("Fraction of the optimum", optimum.fraction, "ratio"),
        ("Agent, per step", Estimate(optimum.agent_value), "ratio"),
        ("Optimum, per step", Estimate(optimum.optimal_value), "ratio"),
        (
            f"{optimum.base.replace('_', ' ').capitalize()} rule, per step",
            Estimate(optimum.base_value),
            "ratio",
        ),
    ]


def _market_figures(evaluation: Evaluation) -> _Figures:
    measures = evaluation.measures.get("agent")
    if measures is None:
        return []
    in_market: Kind = "percent" if evaluation.unit == "return" else "ratio"
    signed: Kind = "signed_percent" if evaluation.unit == "return" else "ratio"
    return [
        ("Total return", measures.total_return, signed),
        ("Annual return", measures.annual_return, signed),
        ("Sharpe ratio", measures.sharpe, "ratio"),
        ("Largest drawdown", measures.max_drawdown, in_market),
        ("CVaR 95%, per bar", measures.cvar_95, in_market),
    ]
