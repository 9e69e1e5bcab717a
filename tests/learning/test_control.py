"""Does it learn? Five seeds a problem, deterministic evaluation; run by ``make verify``.

Each test writes its scores to ``docs/learning/``; ``make verify`` then writes ``docs/learning.md``.
"""

import numpy as np
import pytest

from tests.learning.control import PROBLEMS, score
from tests.learning.table import write_scores

SEEDS = range(5)


def scores(name: str) -> list[float]:
    found = [score(name, seed) for seed in SEEDS]
    write_scores(name, found)
    return found


@pytest.mark.verify
@pytest.mark.parametrize("name", ["cartpole", "cartpole_positions", "pendulum", "t_maze_lru"])
def test_reaches_the_bar(name: str) -> None:
    found = scores(name)
    assert PROBLEMS[name].holds(found), found


@pytest.mark.verify
def test_without_memory_the_maze_is_a_coin_toss() -> None:
    found = scores("t_maze_memoryless")
    assert all(abs(value - 0.5) < 0.05 for value in found), found


@pytest.mark.verify
def test_lunar_lander_is_not_worse_than_ppo() -> None:
    ours, theirs = scores("lunar_lander"), scores("lunar_lander_sb3")
    error = np.sqrt((np.var(ours, ddof=1) + np.var(theirs, ddof=1)) / len(ours))
    assert np.mean(ours) >= np.mean(theirs) - 2 * error, (ours, theirs)
