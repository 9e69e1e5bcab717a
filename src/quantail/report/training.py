"""How training went: curves, and what the warning metrics say in words."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go

from quantail.diagnostics.risk_schema import CostMetrics, RiskMetrics
from quantail.diagnostics.schema import (
    EPISODE_REWARD,
    ControlMetrics,
    Metric,
    NormalizerMetrics,
    RunMetrics,
    SkinMetrics,
    UpdateMetrics,
    ValidationMetrics,
    declared,
    tag_of,
)
from quantail.report.canvas import AGENT_PEN, axis, line, sheet
from quantail.report.numbers import interval, number
from quantail.report.page import Plot, Sheet
from quantail.report.run_folder import Curve

GLANCE: Final[Mapping[str, str]] = {
    tag_of(RunMetrics, "reward_mean"): "Mean reward per step",
    EPISODE_REWARD: "Mean reward of an episode",
    tag_of(RiskMetrics, "cvar"): "CVaR of recent episodes",
    tag_of(RiskMetrics, "weight"): "Weight of the tail",
    tag_of(CostMetrics, "mean"): "Mean cost of recent episodes",
    tag_of(RunMetrics, "predicted_cvar"): "CVaR that the critic predicts",
    tag_of(UpdateMetrics, "explained_variance"): "Explained variance of the critic",
    tag_of(UpdateMetrics, "approx_kl"): "Change of the policy per update (KL)",
    tag_of(UpdateMetrics, "entropy_loss"): "Minus the policy's entropy",
    tag_of(UpdateMetrics, "value_loss"): "Loss of the critics",
}
"""The curves that tell most, in this order."""
_N_GLANCE: Final = 6
_COLUMNS: Final = 150
GROUPS: Final = (
    UpdateMetrics, ControlMetrics, NormalizerMetrics, SkinMetrics, RiskMetrics, CostMetrics,
    RunMetrics, ValidationMetrics,
)  # fmt: skip
_OFTEN: Final = 0.1
"""Share of the records from which on leaving the healthy range deserves a word."""
_MAY_BE_UNDEFINED: Final = (tag_of(UpdateMetrics, "explained_variance"),)
"""NaN without being a fault: returns that do not vary have no variance to explain."""
_ALARM_PREFIXES: Final = ("warn/", "error/", "health/")


def glance_tags(curves: Mapping[str, Curve]) -> dict[str, str]:
    """Return tag -> title of the few curves that tell most: validation first, then the usual."""
    validation = [tag for tag in curves if tag.startswith("validation/")][:2]
    titles = {tag: f"Validation: {tag.split('/', 1)[1].replace('_', ' ')}" for tag in validation}
    titles |= {tag: title for tag, title in GLANCE.items() if tag in curves}
    return dict(list(titles.items())[:_N_GLANCE])


def glance_plots(curves: Mapping[str, Curve]) -> tuple[Plot, ...]:
    """Return small figures of the curves that tell most."""
    known = declared(*GROUPS)
    return tuple(
        Plot(
            name=f"glance-{'abcdef'[index]}",
            finding=f"{title}: {_course(curves[tag])}",
            caption=tag,
            sheets=(_curve_sheet(tag, curves[tag], known.get(tag), height=210),),
        )
        for index, (tag, title) in enumerate(glance_tags(curves).items())
    )


def _course(curve: Curve) -> str:
    finite = curve.values[np.isfinite(curve.values)]
    if not len(finite):
        return "never a number"
    return f"{number(float(finite[0]))} to {number(float(finite[-1]))}"


def all_curves(curves: Mapping[str, Curve]) -> Plot:
    """Return every recorded metric, one at a time."""
    known = declared(*GROUPS)
    first = glance_tags(curves)
    tags = (*first, *sorted(set(curves) - set(first)))
    sheets = tuple(_curve_sheet(tag, curves[tag], known.get(tag), height=320) for tag in tags)
    last = max(int(curve.steps[-1]) for curve in curves.values())
    return Plot(
        name="curves-plot",
        finding=f"{number(len(sheets), 'count')} metrics recorded over "
        f"{number(last, 'count')} steps",
        caption="The shaded band, where there is one, is the range that is healthy for the metric.",
        sheets=sheets,
        choice="Metric",
    )


def _curve_sheet(tag: str, curve: Curve, metric: Metric | None, *, height: int) -> Sheet:
    finite = np.where(np.isfinite(curve.values), curve.values, np.nan)
    trace = line(curve.steps, finite, name=tag, pen=AGENT_PEN, columns=_COLUMNS, showlegend=False)
    if len(curve.steps) == 1:
        trace = trace.update(mode="markers", marker={"color": AGENT_PEN.color, "size": 8})
    unit = "" if metric is None or metric.unit == "1" else metric.unit
    layout: dict[str, Any] = {
        "xaxis": axis("Step", nticks=5, exponentformat="SI"),
        "yaxis": axis(unit, nticks=5),
        "shapes": [] if metric is None else _healthy_band(metric, finite),
    }
    return sheet([trace, *_gap_marks(curve)], layout, height=height, label=tag)


def _healthy_band(metric: Metric, values: Any) -> list[dict[str, Any]]:
    # A band far wider than the data would squeeze the curve flat, so it is cut to what is near.
    finite = values[np.isfinite(values)]
    if metric.healthy is None or not len(finite):
        return []
    low, high = float(finite.min()), float(finite.max())
    slack = 0.25 * (high - low) or max(abs(high), 1e-9)
    bottom, top = max(metric.healthy[0], low - slack), min(metric.healthy[1], high + slack)
    if bottom >= top:
        return []
    return [
        {
            "type": "rect",
            "xref": "paper",
            "x0": 0,
            "x1": 1,
            "y0": bottom,
            "y1": top,
            "fillcolor": "var(--good-soft)",
            "line": {"width": 0},
            "layer": "below",
        }
    ]


def _gap_marks(curve: Curve) -> list[Any]:
    """Return marks on the axis where the metric was not a finite number."""
    steps = curve.steps[~np.isfinite(curve.values)]
    if not len(steps):
        return []
    finite = curve.values[np.isfinite(curve.values)]
    height = float(finite.min()) if len(finite) else 0.0
    return [
        go.Scatter(
            x=steps,
            y=np.full(len(steps), height),
            mode="markers",
            name="not a finite number",
            marker={"symbol": "x", "size": 8, "color": "var(--warn)"},
        )
    ]


def alarms(curves: Mapping[str, Curve]) -> tuple[str, ...]:
    """Return a sentence for each warning raised, loss not finite and range often left."""
    known = declared(*GROUPS)
    found = [_alarm(tag, curves[tag], known.get(tag)) for tag in sorted(curves)]
    return tuple(sentence for sentence in found if sentence)


def _alarm(tag: str, curve: Curve, metric: Metric | None) -> str:
    values = curve.values
    broken = ~np.isfinite(values)
    meaning = f" ({metric.sentence.rstrip('.')})" if metric is not None else ""
    if tag.startswith(_ALARM_PREFIXES):
        flags, what = ~broken & (values != 0.0), f"{tag}{meaning} was raised"
    elif tag.startswith("train/") and tag not in _MAY_BE_UNDEFINED and broken.any():
        flags, what = broken, f"{tag} was not a finite number"
    elif metric is not None and metric.healthy is not None:
        low, high = metric.healthy
        flags = ~broken & ((values < low) | (values > high))
        if flags.mean() < _OFTEN:
            return ""
        what = f"{tag}{meaning} was outside its healthy range {interval(low, high)}"
    else:
        return ""
    if not flags.any():
        return ""
    first = number(int(curve.steps[flags][0]), "count")
    return f"{what} in {_times(flags)}, first at step {first}."


def _times(flags: Any) -> str:
    return f"{int(flags.sum()):,} of {len(flags):,} records"
