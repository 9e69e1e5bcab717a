"""The signature of static CVaR: an agent's bets by time and total, beside the exact optimum.

``python -m tests.learning.signature AGENT.zip`` draws a saved agent of the betting game with a
fixed ``cvar_weight``, ``python -m tests.learning.signature SEED`` trains one. It writes
``docs/signature.svg``, or the file named behind.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np

from quantail import DistributionalPPO
from quantail.sim.problems import BettingGame
from quantail.sim.problems.lottery_solver import Lotteries, evaluate_plan
from quantail.types import FloatArray, IntArray
from tests.catalogue import ROOT
from tests.learning.risk import signature, train

COLORS = ("#1b1e23", "#74a9cf", "#f2c14e")
"""Of the bets 0, 1 and 2; their lightness rises, so that they differ in gray too."""
SHOWN = 16
"""Totals from -16 to 16 are drawn; hardly any game leaves them."""
_CELL, _LEFT, _TOP, _GAP = 15, 56, 74, 48


@dataclass(frozen=True)
class Panel:
    """A rule and how often it meets each time and total."""

    title: str
    choices: IntArray
    """[T, W], over all totals of the game."""
    reached: FloatArray
    """[T, W], chance of standing there under this rule."""
    mean: float
    cvar: float


def reach(lotteries: Lotteries, choices: IntArray) -> FloatArray:
    """Return the chance of each total before each step under a rule, [T, W]."""
    chances = np.zeros(choices.shape)
    chances[0, -lotteries.lowest] = 1.0
    for step in range(len(choices) - 1):
        for place in np.flatnonzero(chances[step]):
            choice = choices[step, place]
            for prize, chance in zip(
                lotteries.prizes[choice], lotteries.probabilities[choice], strict=True
            ):
                chances[step + 1, place + prize] += chances[step, place] * chance
    return chances


def panel(title: str, game: BettingGame, choices: IntArray) -> Panel:
    plan = evaluate_plan(game.lotteries, choices, game.alpha)
    return Panel(title, choices, reach(game.lotteries, choices), plan.mean, plan.cvar)


def panels(model: DistributionalPPO) -> tuple[Panel, Panel]:
    """Return what the agent does at every time and total, and what is best."""
    risk = model.learner_config.tail_risk
    if risk is None or risk.weight is None:
        raise SystemExit("the agent must have a fixed cvar_weight, to know what is best for it")
    game = BettingGame(risk_weight=risk.weight, alpha=risk.alpha)
    totals = game.lotteries.totals
    bets = np.stack([signature(model, totals, step) for step in range(game.n_bets)])
    best = game.solve().plans["optimal"]
    target = float(model.train_state.risk.search.target)
    return (
        panel(f"Agent, target {target:.2f}", game, bets.astype(np.int64)),
        panel(f"Exact optimum, target {best.target:.0f}", game, best.choices),
    )


def agreement(agent: Panel, best: Panel) -> float:
    """Return the share of the agent's bets, as often as it makes them, that are the best ones."""
    same = agent.choices == best.choices
    return float((agent.reached * same).sum() / agent.reached.sum())


def drawing(agent: Panel, best: Panel, weight: float) -> str:
    """Return the figure as SVG: a cell for each time and total, faint where a rule never comes."""
    n_steps = len(agent.choices)
    width = 2 * (_LEFT + n_steps * _CELL) + _GAP + 12
    height = _TOP + (2 * SHOWN + 1) * _CELL + 96
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="#1b1e23">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        _text(width / 2, 22, f"Bets by time and total, cvar_weight = {weight:g}", size=15),
        *_panel(agent, _LEFT),
        *_panel(best, 2 * _LEFT + n_steps * _CELL + _GAP),
        *_legend(width, height - 26, agreement(agent, best)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _panel(shown: Panel, left: float) -> list[str]:
    n_steps = len(shown.choices)
    middle = (shown.choices.shape[1] - 1) // 2  # total 0
    figures = f"mean {shown.mean:.2f}, CVaR {shown.cvar:.2f}"
    center, bottom = left + n_steps * _CELL / 2, _TOP + (2 * SHOWN + 1) * _CELL
    parts = [_text(center, 46, shown.title, size=13), _text(center, 64, figures)]
    for total in range(-SHOWN, SHOWN + 1):
        top = _TOP + (SHOWN - total) * _CELL
        if total % 4 == 0:
            parts.append(_text(left - 6, top + 11, f"{total:d}", "end"))
        for step in range(n_steps):
            if abs(total) > 2 * step:
                continue
            opacity = 1.0 if shown.reached[step, middle + total] > 1e-4 else 0.2
            color = COLORS[shown.choices[step, middle + total]]
            parts.append(
                f'<rect x="{left + step * _CELL}" y="{top}" width="{_CELL - 1}" '
                f'height="{_CELL - 1}" fill="{color}" fill-opacity="{opacity}"/>'
            )
    parts += [
        _text(left + (step + 0.5) * _CELL, bottom + 14, f"{step:d}")
        for step in range(0, n_steps, 5)
    ]
    parts.append(_text(center, bottom + 32, "bets made"))
    side, half = left - 40, _TOP + (SHOWN + 0.5) * _CELL
    parts.append(
        f'<text x="{side}" y="{half}" text-anchor="middle" '
        f'transform="rotate(-90 {side} {half})">total so far</text>'
    )
    return parts


def _legend(width: float, top: float, same: float) -> list[str]:
    parts = []
    for bet, color in enumerate(COLORS):
        x = _LEFT + bet * 74
        parts.append(f'<rect x="{x}" y="{top - 11}" width="13" height="13" fill="{color}"/>')
        parts.append(_text(x + 20, top, f"bet {bet}", "start"))
    said = f"faint: never reached; {100 * same:.0f} % of the agent's bets are the best ones"
    parts.append(_text(width - 12, top, said, "end"))
    return parts


def _text(x: float, y: float, said: str, anchor: str = "middle", size: int = 12) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-size="{size}">{escape(said)}</text>'


def main(given: str, out: Path) -> None:
    """Draw a saved agent, or one trained with a seed."""
    if given.isdigit():
        model = train("bets_03", int(given))
    else:
        model = DistributionalPPO.load(given, device="cpu", learning_rate=0.0)
    risk = model.learner_config.tail_risk
    agent, best = panels(model)
    assert risk is not None, "panels() has refused an agent without tail risk"
    assert risk.weight is not None, "panels() has refused an agent with a limit"
    out.write_text(drawing(agent, best, risk.weight))
    print(  # noqa: T201
        f"agent {agent.mean:.3f} / {agent.cvar:.3f}, optimum {best.mean:.3f} / {best.cvar:.3f}, "
        f"{100 * agreement(agent, best):.1f} % of the agent's bets are best; see {out}"
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / "docs" / "signature.svg")
