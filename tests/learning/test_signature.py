"""The figure shows what the agent does, and the optimum that it stands beside."""

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from quantail.sim.problems import BettingGame
from quantail.sim.problems.lottery_solver import total_law
from tests.learning import signature as figure
from tests.learning.risk import signature, train

SVG = "{http://www.w3.org/2000/svg}"


def test_chances_of_totals_add_up_and_end_in_the_law_of_the_rule() -> None:
    game = BettingGame(n_bets=6)
    choices = game.solve().plans["optimal"].choices
    chances = figure.reach(game.lotteries, choices)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    # One more step, in which nothing is bet, leaves the totals as they were.
    longer = np.vstack([choices, np.zeros_like(choices[:1])])
    after = figure.reach(game.lotteries, longer)[-1]
    np.testing.assert_allclose(after, total_law(game.lotteries, choices), atol=1e-12)


@pytest.mark.filterwarnings("ignore:the target of tail risk")  # one update compares none
def test_the_figure_shows_an_agent_beside_the_optimum(tmp_path: Path) -> None:
    model = train("bets_03", 0, updates=1)
    model.save(tmp_path / "agent.zip", exclude=["learning_rate"])
    figure.main(str(tmp_path / "agent.zip"), tmp_path / "figure.svg")
    agent, best = figure.panels(model)
    late = signature(model, np.arange(-38.0, 39.0), 19)
    np.testing.assert_array_equal(agent.choices[19, 2:-2], late)  # totals reach from -40 to 40
    # Late in the game: nothing at the edge of the tail, full size far above it.
    assert best.choices[19, 40 - 5] == 0
    assert best.choices[19, 40 + 5] == 2
    assert best.mean == pytest.approx(3.039, abs=1e-3)
    assert best.cvar == pytest.approx(-5.264, abs=1e-3)
    assert figure.agreement(best, best) == 1.0
    assert 0.0 <= figure.agreement(agent, best) < 1.0

    drawn = ElementTree.parse(tmp_path / "figure.svg").getroot()
    cells = [part for part in drawn.iter(f"{SVG}rect") if part.get("fill-opacity")]
    # Before bet t the total is within ±2t, and ±16 is drawn: Σ min(4t + 1, 33) in each panel.
    count = sum(min(4 * step + 1, 33) for step in range(20))
    assert len(cells) == 2 * count
    half = {"agent": cells[:count], "best": cells[count:]}
    for name, panel in (("agent", agent), ("best", best)):
        shown = [figure.COLORS.index(str(part.get("fill"))) for part in half[name]]
        expected = [
            panel.choices[step, 40 + total]
            for total in range(-16, 17)
            for step in range(20)
            if abs(total) <= 2 * step
        ]
        assert shown == expected
