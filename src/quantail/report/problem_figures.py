"""Figures of a problem with a known answer."""

from typing import Any

from quantail.evaluation.record import Evaluation
from quantail.report.canvas import axis, pens, sheet
from quantail.report.figures import equity_finding, equity_line, lower_line
from quantail.report.page import Plot
from quantail.report.words import period


def rewards_and_gap(evaluation: Evaluation) -> Plot:
    """Sums of rewards over time, and how far each policy lies behind the optimum below."""
    pen = pens(evaluation.tracks)
    drawn = [track for track in evaluation.tracks if track.name != "flat"]
    best = next((track.portfolio.equity for track in drawn if track.name == "optimal"), None)
    traces = [equity_line(track, pen[track.name]) for track in drawn]
    layout: dict[str, Any] = {
        "xaxis": axis("Step", anchor="y" if best is None else "y2"),
        "yaxis": axis("Sum of rewards", domain=[0.0 if best is None else 0.42, 1.0]),
    }
    if best is not None:
        behind = [track for track in drawn if track.name not in {"optimal", "agent_sampled"}]
        traces += [
            lower_line(track, track.portfolio.equity - best, pen[track.name]) for track in behind
        ]
        layout["yaxis2"] = axis("Minus the optimum", domain=[0.0, 0.35])
    return Plot(
        name="equity",
        finding=equity_finding(evaluation),
        caption=f"{period(evaluation.track('agent').portfolio)}, net of all costs, mean of all "
        "instances. All policies meet the same random numbers.",
        sheets=(sheet(traces, layout, height=400 if best is None else 520),),
    )
