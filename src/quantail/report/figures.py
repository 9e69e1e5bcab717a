"""Figures of one evaluation; each carries the finding that its data show."""

from collections.abc import Sequence
from textwrap import wrap
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go

from quantail.evaluation.measures import drawdowns
from quantail.evaluation.record import CostCurve, Evaluation, Series, Track
from quantail.report.canvas import (
    AGENT_PEN,
    PERCENT_TICKS,
    SCREEN_COLUMNS,
    Pen,
    axis,
    line,
    pens,
    sheet,
    shown_label,
    zero_line,
)
from quantail.report.numbers import Kind, number
from quantail.report.page import Plot, Sheet, plot_label
from quantail.report.words import (
    baselines,
    confidence_words,
    lower_first,
    period,
    result_kind,
    rivals,
    steps,
)
from quantail.types import FloatArray

MAX_WINDOWS: Final = 12
"""Windows whose positions are drawn; more would make the page heavy."""
_POSITION_COLUMNS: Final = 6000
"""Columns shared by all windows: a single one can be zoomed far in."""
_SHADED: Final = "var(--agent-soft)"


def equity_and_drawdown(evaluation: Evaluation) -> Plot:
    """Equity of agent and baselines over time, and the losses from the peak below."""
    agent, tracks = evaluation.track("agent"), evaluation.tracks
    pen = pens(tracks)
    held = [track for track in tracks if track.name not in {"flat", "agent_sampled"}]
    log_ticks = _log_ticks(tracks)
    traces = [equity_line(track, pen[track.name]) for track in tracks]
    traces += [
        lower_line(track, drawdowns(track.portfolio.net_return), pen[track.name]) for track in held
    ]
    layout: dict[str, Any] = {
        "xaxis": axis(anchor="y2"),
        "yaxis": axis(
            "Equity (start = 1" + (", log scale)" if log_ticks is not None else ")"),
            domain=[0.36, 1.0],
            **({} if log_ticks is None else {"type": "log", "tickvals": log_ticks}),
        ),
        "yaxis2": axis("Drawdown", domain=[0.0, 0.29], tickformat=PERCENT_TICKS),
    }
    return Plot(
        name="equity",
        finding=equity_finding(evaluation),
        caption=(
            f"{period(agent.portfolio)}, net of all costs. Equal-weight mean of "
            f"{len(agent.windows)} account{'s' if len(agent.windows) != 1 else ''}; drawdown is "
            "the loss from the highest equity so far."
        ),
        sheets=(sheet(traces, layout, height=520),),
    )


def equity_line(track: Track, pen: Pen) -> Any:
    """Return the equity of a track; the agent's drawn actions wait in the legend."""
    return line(
        track.portfolio.time,
        track.portfolio.equity,
        name=shown_label(track),
        pen=pen,
        columns=SCREEN_COLUMNS,
        legendgroup=track.name,
        visible="legendonly" if track.name == "agent_sampled" else True,
    )


def lower_line(track: Track, values: FloatArray, pen: Pen) -> Any:
    """Return a line [T] of a track for the panel below its equity."""
    return line(
        track.portfolio.time,
        values,
        name=shown_label(track),
        pen=pen,
        columns=SCREEN_COLUMNS // 2,
        legendgroup=track.name,
        showlegend=False,
        yaxis="y2",
        **({"fill": "tozeroy", "fillcolor": _SHADED} if track.name == "agent" else {}),
    )


def _log_ticks(tracks: Sequence[Track]) -> FloatArray | None:
    """Return ticks for a log axis, or None when equity stays within a factor of four."""
    low = min(float(track.portfolio.equity.min(initial=1.0)) for track in tracks)
    high = max(float(track.portfolio.equity.max(initial=1.0)) for track in tracks)
    if low <= 0.0 or high / low <= 4.0:
        return None
    decades = np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    ticks: FloatArray = np.multiply.outer(10.0**decades, [1.0, 2.0, 5.0]).ravel()
    return ticks


def equity_finding(evaluation: Evaluation) -> str:
    """Return in words where the agent and those it is measured by ended."""
    kind = result_kind(evaluation.unit)
    shown = (evaluation.main_baseline, "buy_and_hold", "optimal")
    names = [track.name for track in evaluation.tracks if track.name in shown]
    ends = {name: _end(evaluation.track(name), kind) for name in ("agent", *names)}
    at, ended = ("at ", "ended at ") if evaluation.unit == "return" else ("", "earned ")
    others = [f"{lower_first(evaluation.track(name).label)} {at}{ends[name]}" for name in names]
    beside = f"; {' and '.join(others)}" if others else ""
    return f"The agent {ended}{ends['agent']}{beside}"


def _end(track: Track, kind: Kind) -> str:
    if not len(track.portfolio):
        return "nothing, as it had no bars"
    start = 1.0 if track.unit == "return" else 0.0
    return number(float(track.portfolio.equity[-1]) - start, kind)


def against_baselines(evaluation: Evaluation) -> Plot:
    """Paired differences with their intervals, one row per baseline."""
    rows = baselines(evaluation)[::-1]
    # Long names take two lines, which leaves a narrow screen room for the intervals.
    labels = [
        "<br>".join(wrap(plot_label(shown_label(evaluation.track(row.baseline))), 16))
        for row in rows
    ]
    values = np.array([row.annual_difference.value for row in rows])
    low, high = (
        np.array([getattr(row.annual_difference, end) for row in rows], dtype=np.float64)
        for end in ("low", "high")
    )
    market = evaluation.unit == "return"
    dots = go.Scatter(
        x=values,
        y=labels,
        mode="markers",
        marker={"color": "var(--agent)", "size": 10},
        error_x={
            "type": "data",
            "symmetric": False,
            "array": high - values,
            "arrayminus": values - low,
            "color": "var(--agent)",
            "thickness": 2,
            "width": 6,
        },
        showlegend=False,
    )
    layout = {
        "xaxis": axis(
            "Difference per year" if market else "Difference per step",
            tickformat=PERCENT_TICKS if market else "",
            nticks=6,
            tickangle=0,
        ),
        "yaxis": axis(type="category"),
        "shapes": [zero_line(vertical=True)],
        "hovermode": "closest",
    }
    return Plot(
        name="baselines-plot",
        finding=_baselines_finding(evaluation),
        caption=(
            f"Dots are differences of the mean {'net return' if market else 'reward'}, agent minus "
            f"baseline over the same {steps(evaluation.unit)}; lines are their "
            f"{confidence_words(evaluation)}"
            f"{' from a stationary block bootstrap' if market else ' over the instances'}. A line "
            "that crosses zero is no evidence."
        ),
        sheets=(sheet([dots], layout, height=110 + 44 * len(rows)),),
    )


def _baselines_finding(evaluation: Evaluation) -> str:
    rows = rivals(evaluation)
    if not rows:
        return "Differences to bounds that no agent can beat"
    better = sum(row.is_better for row in rows)
    worse = sum(row.is_worse for row in rows)
    of = f"{len(rows)} baseline{'s' if len(rows) != 1 else ''}"
    if better:
        return f"Beyond chance, the agent did better than {better} of {of}" + (
            f" and worse than {worse}" if worse else ""
        )
    if worse:
        return f"Beyond chance, the agent did worse than {worse} of {of} and better than none"
    return f"No difference to any of {of} goes beyond chance"


def cost_figure(curve: CostCurve, evaluation: Evaluation) -> Plot:
    """The agent's mean result at several multiples of the costs."""
    factors = [point.factor for point in curve.points]
    means = [point.annual_mean for point in curve.points]
    market = evaluation.unit == "return"
    traces: list[Any] = []
    if all(mean.low is not None and mean.high is not None for mean in means):
        traces.append(
            go.Scatter(
                x=factors + factors[::-1],
                y=[mean.high for mean in means] + [mean.low for mean in means[::-1]],
                fill="toself",
                fillcolor=_SHADED,
                line={"width": 0},
                mode="lines",
                hoverinfo="skip",
                name=plot_label(confidence_words(evaluation)[:-1]),
            )
        )
    traces.append(
        go.Scatter(
            x=factors,
            y=[mean.value for mean in means],
            mode="lines+markers",
            line={"color": AGENT_PEN.color, "width": AGENT_PEN.width},
            marker={"size": 8},
            name="Agent",
        )
    )
    layout = {
        "xaxis": axis("Multiple of the costs (1 = full cost)", tickvals=factors),
        "yaxis": axis(
            "Mean net return per year" if market else "Mean reward per step",
            tickformat=PERCENT_TICKS if market else "",
        ),
        "shapes": [zero_line()],
    }
    return Plot(
        name="cost-plot",
        finding=_cost_finding(curve, evaluation),
        caption="The same policy, not trained again, at other costs.",
        sheets=(sheet(traces, layout, height=340),),
    )


def _cost_finding(curve: CostCurve, evaluation: Evaluation) -> str:
    top = max(point.factor for point in curve.points)
    if curve.break_even is not None:
        return f"The mean result reaches zero at {number(curve.break_even)} times the costs"
    signs = {point.annual_mean.value > 0.0 for point in curve.points}
    span = f"from no costs to {number(top, 'count')} times the costs"
    if signs == {True}:
        return f"The mean result stays above zero {span}"
    if signs == {False}:
        return f"The mean result is not above zero at any cost, {span}"
    return f"The mean {'return' if evaluation.unit == 'return' else 'reward'} {span}"


def positions(evaluation: Evaluation) -> Plot:
    """Price and position of the agent, window by window, to zoom into."""
    agent = evaluation.track("agent")
    shown = range(min(len(agent.windows), MAX_WINDOWS))
    columns = max(_POSITION_COLUMNS // max(len(shown), 1), SCREEN_COLUMNS // 2)
    left_out = len(agent.windows) - len(shown)
    more = f" The first {len(shown)} of {len(agent.windows)} windows are drawn." if left_out else ""
    meaning = (
        " The position is the signed notional over the account's equity after the bar."
        if evaluation.unit == "return"
        else ""
    )
    longest = max((window.stop - window.start for window in agent.windows), default=0)
    thinned = (
        " Of long stretches the first, lowest, highest and last bar of each column are drawn."
        if longest > 2 * columns
        else ""
    )
    return Plot(
        name="positions-plot",
        finding=_positions_finding(agent),
        caption=f"Drag with a mouse to zoom, double-click to see all.{meaning}{more}{thinned}",
        sheets=tuple(_position_sheet(evaluation, index, columns) for index in shown),
        choice="Window" if evaluation.unit == "return" else "Instance",
    )


def _positions_finding(agent: Track) -> str:
    position, counted = agent.bars.position, steps(agent.unit)
    if not len(position):
        return f"The agent had no {counted} to trade"
    long, short = float((position > 1e-9).mean()), float((position < -1e-9).mean())
    return (
        f"The agent was long in {number(long, 'percent')} of the {counted}, short in "
        f"{number(short, 'percent')} and flat in {number(1.0 - long - short, 'percent')}"
    )


def _position_sheet(evaluation: Evaluation, index: int, columns: int) -> Sheet:
    agent = evaluation.track("agent")
    series = agent.window(index)
    has_price = bool(np.isfinite(series.price).any())
    traces = [_position_line(series, "Agent's position", AGENT_PEN, columns, filled=True)]
    layout: dict[str, Any] = {
        "xaxis": axis("" if series.time.dtype.kind == "M" else "Step"),
        "yaxis": axis("Position", domain=[0.0, 0.34] if has_price else [0.0, 1.0]),
        "shapes": [],
    }
    if has_price:
        price = Pen("var(--reference)", width=1.4)
        traces.append(
            line(series.time, series.price, name="Price", pen=price, columns=columns, yaxis="y2")
        )
        layout["yaxis2"] = axis("Price", domain=[0.42, 1.0])
    for track in evaluation.tracks:
        if track.name == "optimal" and track.windows == agent.windows:
            best = pens(evaluation.tracks)[track.name]
            traces.append(_position_line(track.window(index), track.label, best, columns))
    window = agent.windows[index]
    ended = f", ended {window.ended}" if window.ended else ""
    label = f"{window.symbol} ({period(series)}{ended})"
    return sheet(traces, layout, height=460 if has_price else 320, label=label)


def _position_line(
    series: Series, name: str, pen: Pen, columns: int, *, filled: bool = False
) -> Any:
    shade = {"fill": "tozeroy", "fillcolor": _SHADED} if filled else {}
    trace = line(series.time, series.position, name=name, pen=pen, columns=columns, **shade)
    return trace.update(line={"shape": "hv", "width": 1.4})
