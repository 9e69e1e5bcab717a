"""A collapse is told in the user's words."""

import pytest

from quantail.experiment.collapse import action_words
from quantail.experiment.config import RunConfig
from tests.experiment.small_runs import MARKET, small

DISCRETE = "environment.simulator.actions={kind: discrete, levels: [0.0, 0.5, 1.0]}"
LONG_ONLY = "environment.simulator.actions={kind: continuous, long_only: true}"


@pytest.mark.parametrize(
    ("settings", "action", "words"),
    [
        ((DISCRETE,), 1.0, "target position +0.5"),
        ((DISCRETE,), 0.0, "target position +0"),
        ((DISCRETE,), 3.0, "hold what is there"),
        ((), -0.98765, "target position -0.988"),
        ((LONG_ONLY,), -1.0, "target position +0"),
        ((LONG_ONLY,), 0.5, "target position +0.75"),
    ],
)
def test_an_action_of_a_market_is_named_by_its_position(
    settings: tuple[str, ...], action: float, words: str
) -> None:
    assert action_words(action, small(*settings, of=MARKET).environment) == words


def test_an_action_of_a_problem_is_named_by_its_number() -> None:
    assert action_words(2.0, RunConfig().environment) == "action 2"
