"""What all figures share: axes, colors by role, lines that keep their extremes.

Colors are names of CSS variables; the page puts the values of the reader's theme in their place.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from quantail.evaluation.record import Track
from quantail.report.downsample import kept_rows
from quantail.report.page import Sheet, plot_label
from quantail.types import FloatArray

SCREEN_COLUMNS: Final = 600
"""Columns of a figure in pixels; more points than this cannot be told apart."""

PERCENT_TICKS: Final = ".2~%"
"""Percent with up to two decimals, without trailing zeros."""


@dataclass(frozen=True, slots=True)
class Pen:
    """How a series is drawn; the dash tells series apart without color."""

    color: str
    dash: str = "solid"
    width: float = 1.6


AGENT_PEN: Final = Pen("var(--agent)", width=2.4)
_PENS: Final[Mapping[str, Pen]] = {
    "agent": AGENT_PEN,
    "agent_sampled": Pen("var(--agent)", "dot", 1.3),
    "buy_and_hold": Pen("var(--series-a)", "dash"),
    "memoryless": Pen("var(--series-a)", "dash"),
    "momentum": Pen("var(--series-b)", "dashdot"),
    "best_constant": Pen("var(--series-c)", "longdash"),
    "average_position": Pen("var(--series-d)", "longdashdot"),
    "optimal": Pen("var(--reference)", "dot"),
    "flat": Pen("var(--flat)", "dot", 1.2),
}
_OTHER_PENS: Final = (Pen("var(--series-e)", "dash"), Pen("var(--series-e)", "dot"))


def pens(tracks: tuple[Track, ...]) -> dict[str, Pen]:
    """Return a pen for each track by its name; unknown names take the remaining colors in turn."""
    others = [track.name for track in tracks if track.name not in _PENS]
    chosen = {name: _OTHER_PENS[i % len(_OTHER_PENS)] for i, name in enumerate(others)}
    return {track.name: _PENS.get(track.name) or chosen[track.name] for track in tracks}


def shown_label(track: Track) -> str:
    """Return a short label of a track to stand alone; one that knew the future says so.

    What a label says in parentheses or behind a colon is left to the list of all policies.
    """
    short = re.split(r"\s*[(:]", track.label)[0] or track.label
    label = short[:1].upper() + short[1:]
    return f"{label} (hindsight)" if track.hindsight else label


def axis(title: str = "", **more: Any) -> dict[str, Any]:
    """Return an axis with a quiet grid."""
    return {
        "title": {"text": plot_label(title), "font": {"color": "var(--muted)"}, "standoff": 8},
        "gridcolor": "var(--grid)",
        "linecolor": "var(--rule)",
        "zerolinecolor": "var(--rule)",
        "automargin": True,
        "ticks": "outside",
        "ticklen": 4,
        "tickcolor": "var(--rule)",
        "separatethousands": True,
        "exponentformat": "power",
        **more,
    }


def sheet(traces: list[Any], layout: Mapping[str, Any], *, height: int, label: str = "") -> Sheet:
    """Return a drawing with the house layout."""
    house: dict[str, Any] = {
        "height": height,
        "margin": {"l": 12, "r": 12, "t": 12, "b": 12},
        "paper_bgcolor": "rgba(0, 0, 0, 0)",
        "plot_bgcolor": "rgba(0, 0, 0, 0)",
        "font": {"family": "system-ui, sans-serif", "size": 12, "color": "var(--text)"},
        "hoverlabel": {
            "bgcolor": "var(--card)",
            "bordercolor": "var(--rule)",
            "font": {"color": "var(--text)"},
        },
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "xanchor": "left"},
        "hovermode": "x",
        "uirevision": "kept",
        "separators": ".,",
    }
    # An empty template: the usual one would repeat seven kilobytes of defaults in every figure.
    figure = go.Figure(traces, layout={**house, **layout, "template": go.layout.Template()})
    return Sheet(figure=figure.to_json(), label=label)


def line(
    time: NDArray[Any], values: FloatArray, *, name: str, pen: Pen, columns: int, **more: Any
) -> Any:
    """Return a line of at most four points per column of the screen, extremes kept."""
    rows = kept_rows(values, columns)
    return go.Scatter(
        x=shown_time(time[rows]),
        y=values[rows].astype(np.float32),
        name=plot_label(name),
        mode="lines",
        line={"color": pen.color, "dash": pen.dash, "width": pen.width},
        **more,
    )


def shown_time(time: NDArray[Any]) -> NDArray[Any]:
    """Return instants as short text, and step numbers as they are.

    Plotly reads text without a zone as it stands, so the axis shows UTC to every reader.
    """
    if time.dtype.kind != "M":
        return time.astype(np.int32)
    units = ("D", "m", "s", "ms")
    fits = (unit for unit in units if bool((time.astype(f"datetime64[{unit}]") == time).all()))
    instants: NDArray[np.datetime64] = time.astype(f"datetime64[{next(fits, 'us')}]")
    return np.datetime_as_string(instants)


def zero_line(value: float = 0.0, *, vertical: bool = False) -> dict[str, Any]:
    """Return the line of no effect across a figure."""
    along, across = ("x", "y") if vertical else ("y", "x")
    return {
        "type": "line",
        f"{along}0": value,
        f"{along}1": value,
        f"{across}0": 0,
        f"{across}1": 1,
        f"{across}ref": "paper",
        "line": {"color": "var(--muted)", "width": 1},
        "layer": "below",
    }
