"""Writes the report of a run: one HTML file that needs nothing else."""

import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from quantail import __version__
from quantail.errors import DataError
from quantail.evaluation.record import Evaluation
from quantail.report import (
    calibration_figures,
    figures,
    problem_figures,
    split_tables,
    tables,
    training,
)
from quantail.report.headline import headline, main_evaluation
from quantail.report.page import Markup, fold, join, page, paragraph, plot, section, text
from quantail.report.run_folder import RunRecord, read_run
from quantail.report.words import baselines, confidence_words, steps

REPORT: Final = "report.html"


def write_report(run_folder: Path) -> Path:
    """Write ``report.html`` into a run folder and return its path.

    Works at any moment of a run: what is not there yet is said in the report. An earlier report of
    the same run is replaced as a whole.

    Raises:
        DataError: The folder holds no run, or the report cannot be written.
    """
    content = report_page(read_run(run_folder))
    path = run_folder / REPORT
    temporary = path.with_name(f".{REPORT}.{secrets.token_hex(8)}.tmp")
    try:
        temporary.write_text(content, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise DataError(f"report {path} cannot be written ({error.strerror}).") from error
    finally:
        temporary.unlink(missing_ok=True)
    return path


def report_page(record: RunRecord) -> str:
    """Return the report as text."""
    evaluation = main_evaluation(record)
    sections: dict[str, tuple[str, list[Markup]]] = {}
    if evaluation is not None:
        sections |= _evaluation_sections(record, evaluation)
    if record.splits:
        sections["splits"] = ("Split by split", _splits(record.splits))
    if record.curves:
        sections["training"] = ("Training", _training(record))
    sections["provenance"] = ("Settings and provenance", _provenance(record))
    links = "".join(f'<a href="#{name}">{text(title)}</a>' for name, (title, _) in sections.items())
    header = join([headline(record, training.alarms(record.curves)), Markup(f"<nav>{links}</nav>")])
    body = join([section(name, title, parts) for name, (title, parts) in sections.items()])
    return page(
        title=f"{record.folder.resolve().name}: Quantail report",
        header=header,
        body=body,
        footer=text(f"Written by Quantail {__version__}. Not investment advice."),
        with_figures='class="plot"' in body,
    )


def _evaluation_sections(
    record: RunRecord, evaluation: Evaluation
) -> dict[str, tuple[str, list[Markup]]]:
    found = {
        "result": ("Result", _result(record, evaluation)),
        "baselines": ("Against the baselines", _baselines(evaluation)),
        "tail": ("The left tail", _tail(evaluation)),
        "sensitivity": (_sensitivity_title(evaluation), _sensitivity(evaluation)),
        "positions": ("Positions", [plot(figures.positions(evaluation))]),
    }
    return {name: entry for name, entry in found.items() if entry[1]}


def _result(record: RunRecord, evaluation: Evaluation) -> list[Markup]:
    market = evaluation.unit == "return"
    parts = [
        plot(
            figures.equity_and_drawdown(evaluation)
            if market
            else problem_figures.rewards_and_gap(evaluation)
        ),
        paragraph(
            f"Measures of the {evaluation.role} {steps(evaluation.unit)}; below the agent's "
            f"numbers their {confidence_words(evaluation)}.",
            "small muted",
        ),
        tables.measures_table(evaluation),
        fold("What the policies and measures are", tables.definitions(evaluation)),
    ]
    if len(record.evaluations) > 1:
        parts += [
            Markup("<h3>The agent on validation and on test</h3>"),
            paragraph(
                "The agent was chosen on validation, so its result there flatters it.",
                "small muted",
            ),
            tables.roles_table(record.evaluations),
        ]
    return parts


def _baselines(evaluation: Evaluation) -> list[Markup]:
    parts = []
    if baselines(evaluation):
        parts = [plot(figures.against_baselines(evaluation)), tables.comparison_table(evaluation)]
    if evaluation.overfitting is not None:
        parts.append(paragraph(tables.overfitting_words(evaluation.overfitting)))
    return parts


def _tail(evaluation: Evaluation) -> list[Markup]:
    per = "bar; a loss is negative" if evaluation.unit == "return" else "step, in rewards"
    parts = [
        paragraph(
            f"Value at risk and its mean beyond (CVaR) per {per}, with "
            f"{confidence_words(evaluation)}.",
            "small muted",
        ),
        tables.tail_table(evaluation),
    ]
    if evaluation.calibration is not None:
        pair = (
            calibration_figures.predicted_and_realized(evaluation.calibration),
            calibration_figures.transform_histogram(evaluation.calibration),
        )
        parts.append(Markup(f'<div class="row">{join([plot(item) for item in pair])}</div>'))
    return parts


def _sensitivity_title(evaluation: Evaluation) -> str:
    return "If costs differ" if evaluation.delay_curve is None else "If costs or delays differ"


def _sensitivity(evaluation: Evaluation) -> list[Markup]:
    parts = []
    if evaluation.cost_curve is not None:
        parts.append(plot(figures.cost_figure(evaluation.cost_curve, evaluation)))
    if evaluation.delay_curve is not None:
        parts += [
            Markup("<h3>Orders that fill later</h3>"),
            tables.delay_table(evaluation.delay_curve, evaluation),
        ]
    return parts


def _splits(splits: Mapping[str, Evaluation]) -> list[Markup]:
    return [
        paragraph(
            "Each split has an agent of its own, judged on bars after those it was trained and "
            "chosen on.",
            "small muted",
        ),
        split_tables.results(splits),
        *split_tables.sensitivities(splits),
        *split_tables.calibrations(splits),
    ]


def _training(record: RunRecord) -> list[Markup]:
    glance = join([plot(item) for item in training.glance_plots(record.curves)])
    return [
        Markup(f'<div class="row small-plots">{glance}</div>'),
        plot(training.all_curves(record.curves)),
    ]


def _provenance(record: RunRecord) -> list[Markup]:
    parts = []
    evaluation = main_evaluation(record)
    if evaluation is not None:
        seeds = ", ".join(map(str, evaluation.seeds)) or "none on record"
        parts.append(paragraph(f"Seeds: {seeds}. Trials: {evaluation.n_trials}."))
    if record.config is not None:
        parts.append(fold("Settings", record.config))
    if record.provenance is not None:
        parts.append(fold("Provenance", _readable(record.provenance)))
    if not parts:
        parts.append(paragraph("Neither settings nor provenance are on record."))
    return parts


def _readable(values: Mapping[str, Any]) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False, default=str)
