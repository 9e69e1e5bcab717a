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
        marker={"color": AGENT_PEN.color, "opacity": 0.55},
        name="Realized returns",
        showlegend=False,
    )
    edges = [
        go.Scatter(
            x=[0.0, 1.0],
            y=[edge, edge],
            mode="lines",
            line={"color": "var(--text)", "dash": "dash", "width": 1.3},
            hoverinfo="skip",
            name="95% of a right prediction's bars lie between",
            showlegend=index == 0,
        )
        for index, edge in enumerate((even + slack, max(even - slack, 0.0)))
    ]
    layout = {
        "xaxis": axis("Predicted probability of less", range=[0, 1]),
        "yaxis": axis("Share of realized returns", tickformat=".0%", rangemode="tozero"),
        "bargap": 0,
    }
    return Plot(
        name="transform-plot",
        finding=f"Predicted probabilities are off by {number(calibration.error, 'percent')} on "
        f"average; {outside} of {n_bins} bars lie beyond chance",
        caption="A right prediction gives equal bars. Bars high at both ends: the predicted law is "
        "too narrow; high in the middle: too wide; high on one side: shifted.",
        sheets=(sheet([bars, *edges], layout, height=360),),
    )
