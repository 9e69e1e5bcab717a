"""Small things that tables and figures say alike: units, names, periods."""

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import numpy as np

from quantail.evaluation.record import Comparison, Estimate, Evaluation, Series, Unit
from quantail.report.numbers import ABSENT, Kind, interval, number

Finding: TypeAlias = Literal["better", "worse", "no evidence", "not judged"]

_JUDGMENTS: Final[Mapping[Finding, str]] = {
    "better": "is in favor of the agent beyond chance",
    "worse": "is against the agent beyond chance",
    "no evidence": "is no evidence either way, as the interval includes zero",
    "not judged": "cannot be judged, as there are too few bars",
}
ROLE_NAMES: Final = {"test": "test", "validation": "validation"}


def result_kind(unit: Unit, *, signed: bool = True) -> Kind:
    """Return how a result is written: percent of a market's equity, plain for rewards."""
    if unit == "reward":
        return "ratio"
    return "signed_percent" if signed else "percent"


def range_of(estimate: Estimate, kind: Kind) -> str:
    """Return the interval of an estimate as text; empty where there is none."""
    if estimate.low is None or estimate.high is None:
        return ""
    shown = interval(estimate.low, estimate.high, kind)
    return "" if shown == ABSENT else shown


def with_range(estimate: Estimate, kind: Kind) -> str:
    """Return a number with its interval behind it, where there is one."""
    shown = range_of(estimate, kind)
    return f"{number(estimate.value, kind)} {shown}" if shown else number(estimate.value, kind)


def period(series: Series) -> str:
    """Return the stretch of time of a series in words."""
    if not len(series):
        return "no bars"
    if series.time.dtype.kind != "M":
        return f"{number(len(series), 'count')} steps"
    first, last = (np.datetime_as_string(t, unit="D") for t in (series.time[0], series.time[-1]))
    return f"{first} to {last}, {number(len(series), 'count')} bars"


def confidence_words(evaluation: Evaluation) -> str:
    """Return the level of the intervals in words."""
    return f"{number(100.0 * evaluation.confidence, 'count')}% intervals"


def baselines(evaluation: Evaluation) -> tuple[Comparison, ...]:
    """Return the comparisons with others; the agent's own drawn actions are no baseline."""
    return tuple(row for row in evaluation.comparisons if row.baseline != "agent_sampled")


def rivals(evaluation: Evaluation) -> tuple[Comparison, ...]:
    """Return the comparisons with baselines that an agent could beat.

    One that knew the future and the optimum are bounds.
    """
    return tuple(
        row
        for row in baselines(evaluation)
        if row.baseline != "optimal" and not evaluation.track(row.baseline).hindsight
    )


def finding(row: Comparison) -> Finding:
    """Return what a difference shows, in a word."""
    if row.is_better:
        return "better"
    if row.is_worse:
        return "worse"
    known = row.mean_difference.low is not None and row.mean_difference.high is not None
    return "no evidence" if known else "not judged"


def judgment(row: Comparison) -> str:
    """Return what a difference shows, to stand behind it."""
    return _JUDGMENTS[finding(row)]


def typeset(sentence: str) -> str:
    """Return a sentence with true minus signs and figures that no line break divides."""
    signed = re.sub(r"(?<![\w.])-(?=[\d.])", "\u2212", sentence)
    signed = re.sub(r"(?<=\d) %", "\u00a0%", signed)
    return re.sub(r"\[[^\]]*\]", lambda found: found[0].replace(" ", "\u00a0"), signed)


def p_value(value: float) -> str:
    """Return a p-value with three decimals, which is what resampling can tell."""
    return f"{value:.3f}" if value >= 0.001 else "<0.001"


def steps(unit: Unit) -> str:
    """Return what time is counted in: bars of a market, steps of a problem."""
    return "bars" if unit == "return" else "steps"


def lower_first(words: str) -> str:
    """Return ``words`` with a small first letter, to stand within a sentence."""
    return words[:1].lower() + words[1:]
