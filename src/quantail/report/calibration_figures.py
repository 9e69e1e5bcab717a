"""What the critic foretold against what came."""

import math
from typing import Any

import numpy as np
import plotly.graph_objects as go

from quantail.evaluation.record import Calibration
from quantail.report.canvas import AGENT_PEN, axis, sheet
from quantail.report.numbers import number
from quantail.report.page import Plot


def predicted_and_realized(calibration: Calibration) -> Plot:
    """The predicted law of the return and the realized one, as distribution functions."""
    levels = np.array(calibration.levels)
    traces: list[Any] = [
        go.Scatter(
            x=np.array(calibration.predicted_quantiles),
            y=levels,
            mode="lines+markers",
            name="Predicted by the critic",
            line={"color": AGENT_PEN.color, "width": 2.2},
            marker={"size": 5},
        ),
        go.Scatter(
            x=np.array(calibration.realized_quantiles),
            y=levels,
            mode="lines+markers",
            name="Realized",
            line={"color": "var(--series-a)", "width": 2.2, "dash": "dash"},
            marker={"size": 6, "symbol": "square"},
        ),
    ]
    layout = {
        "xaxis": axis("Discounted return (reward units)"),
        "yaxis": axis("Share of returns below", tickformat=".0%", range=[0, 1]),
        "hovermode": "closest",
    }
    return Plot(
        name="law-plot",
        finding=_tail_finding(calibration),
        caption=(
            f"{number(calibration.n, 'count')} starts, spaced so that their returns over "
            f"{number(calibration.horizon, 'count')} steps do not overlap; the critic's mean "
            "stands for what follows. Means: predicted "
            f"{number(calibration.predicted_mean)}, realized {number(calibration.realized_mean)}."
        ),
        sheets=(sheet(traces, layout, height=360),),
    )


def _tail_finding(calibration: Calibration) -> str:
    share = number(calibration.cvar_level, "percent").replace(".0%", "%")
    return (
        f"In the worst {share} of cases the critic expected "
        f"{number(calibration.predicted_cvar)} on average; it came to "
        f"{number(calibration.realized_cvar)}"
    )


def transform_histogram(calibration: Calibration) -> Plot:
    """The histogram of the probability integral transform; flat when the law is right."""
    shares = np.array(calibration.pit)
    n_bins = len(shares)
    even = 1.0 / n_bins
    slack = 1.96 * math.sqrt(even * (1.0 - even) / max(calibration.n, 1))
    outside = int((np.abs(shares - even) > slack).sum())
    bars = go.Bar(
        x=(np.arange(n_bins) + 0.5) / n_bins,
        y=shares,
        width=0.94 / n_bins,
        marker={"color": AGENT_PEN.color},
        name="Realized returns",
        showlegend=False,
    )
    band = {
        "type": "rect",
        "xref": "paper",
        "x0": 0,
        "x1": 1,
        "y0": max(even - slack, 0.0),
        "y1": even + slack,
        "fillcolor": "var(--rule)",
        "opacity": 0.55,
        "line": {"width": 0},
    }
    layout = {
        "xaxis": axis("Predicted probability of less than the realized return", range=[0, 1]),
        "yaxis": axis("Share of realized returns", tickformat=".0%", rangemode="tozero"),
        "shapes": [band],
        "bargap": 0,
    }
    return Plot(
        name="transform-plot",
        finding=f"Predicted probabilities are off by {number(calibration.error, 'percent')} on "
        f"average; {outside} of {n_bins} bars leave the band of chance",
        caption="A right prediction gives equal bars. Bars high at both ends: the predicted law is "
        "too narrow; high in the middle: too wide; high on one side: shifted. The band holds "
        "95% of the bars of a right one.",
        sheets=(sheet([bars], layout, height=360),),
    )
