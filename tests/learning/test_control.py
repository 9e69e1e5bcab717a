"""Does it learn? Five seeds a problem, deterministic evaluation; run by ``make verify``.

Each run adds a line to ``docs/learning/runs.jsonl``, of which ``make verify`` then writes
``docs/learning.md``.
"""

import pytest

from tests.learning.control import PROBLEMS
from tests.learning.table import SEEDS, difference, make_run


def scores(name: str) -> list[float]:
    return [make_run(name, seed).score for seed in SEEDS]


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
    _, _, high = difference(ours, theirs)
    assert high >= 0, (ours, theirs)
