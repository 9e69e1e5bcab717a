"""Numbers that change with the progress of training: followed to the end, saved and loaded."""

import math
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quantail import DistributionalPPO
from quantail.checkpoint.archive import CheckpointError
from quantail.errors import ConfigError, QuantailWarning
from quantail.sb3.errors import SettingError
from quantail.sb3.schedules import CELLS, TabulatedSchedule, tabulated
from tests.checkpoint.agents import SMALL, agent

ROWS = 2 * SMALL["n_steps"]


def falling(progress: float) -> float:
    return 0.2 * progress


@pytest.mark.parametrize("total", [2 * ROWS, 2 * ROWS - 5])
@pytest.mark.parametrize("name", ["learning_rate", "clip_range", "clip_range_vf"])
def test_schedules_that_fall_to_zero_end_there_also_when_the_total_is_passed(
    name: str, total: int
) -> None:
    told: list[float] = []

    def recorded(progress: float) -> float:
        told.append(progress)
        return falling(progress)

    model = agent(**{name: recorded})
    model.learn(total)
    assert model.num_timesteps == 2 * ROWS
    assert told[-1] == 0.0
    assert min(told) == 0.0
    if name == "learning_rate":
        assert model.policy.optimizer.param_groups[0]["lr"] == 0.0


def test_a_schedule_below_zero_is_refused() -> None:
    model = agent(clip_range=lambda progress: progress - 0.9)
    with pytest.raises(ConfigError, match="clip_range must be at least 0; was -0.9"):
        model.learn(ROWS)


@pytest.mark.parametrize("name", ["clip_range", "clip_range_vf"])
def test_a_range_of_zero_throughout_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match=f"{name} must be positive; was 0"):
        agent(**{name: 0.0})


# --- functions in files ---------------------------------------------------------------------------


class Linear:
    """A schedule as another package might have it."""

    def __init__(self, start: float) -> None:
        self.start = start

    def __call__(self, progress: float) -> float:
        return self.start * progress


DRAWN = random.Random(0)
PROGRESS = np.random.default_rng(0).random(200)


@pytest.mark.parametrize(
    ("function", "share"),
    [
        (lambda progress: 1e-3 * progress, 1e-12),
        (lambda progress: 3e-4, 0.0),
        (Linear(0.5), 1e-12),
        (lambda progress: np.float32(0.25) * progress, 1e-6),
        (lambda progress: 0.1 * (1 + math.cos(math.pi * (1 - progress))), 2e-6),
        (lambda progress: 1e-3 * max(progress - 0.3, 0.1), 1e-3),
    ],
)
@pytest.mark.parametrize("name", ["learning_rate", "clip_range", "clip_range_vf"])
def test_functions_are_saved_by_their_values(
    name: str, function: Callable[[float], Any], share: float, tmp_path: Path
) -> None:
    model = agent(**{name: function})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.save(tmp_path / "agent")
        loaded = DistributionalPPO.load(tmp_path / "agent")
        loaded.save(tmp_path / "again")
    assert (tmp_path / "again.zip").read_bytes() == (tmp_path / "agent.zip").read_bytes()
    schedule = loaded.lr_schedule if name == "learning_rate" else getattr(loaded, name)
    largest = max(abs(function(progress)) for progress in (0.0, 1.0))
    for progress in [*np.linspace(0, 1, 9), *PROGRESS]:
        exact = float(function(progress))
        assert abs(schedule(progress) - exact) <= share * largest, progress


def test_the_name_of_a_function_is_kept() -> None:
    def falling_by_half(progress: float) -> float:
        return 0.5 + progress / 2

    schedule = tabulated(falling_by_half, "learning_rate")
    assert schedule.__name__ == schedule.name == "falling_by_half"
    assert tabulated(Linear(1.0), "learning_rate").name == "Linear"
    assert len(schedule.values) == CELLS + 1


def test_a_table_holds_its_ends_beyond_them() -> None:
    schedule = TabulatedSchedule("f", np.array([1.0, 2.0]))
    assert (schedule(-0.5), schedule(0.25), schedule(1.5)) == (1.0, 1.25, 2.0)


def test_a_step_between_the_values_of_the_table_is_told(tmp_path: Path) -> None:
    model = agent(learning_rate=lambda progress: 1e-3 if progress > 0.5 else 1e-4)
    with pytest.warns(
        QuantailWarning,
        match=r"learning_rate is <lambda>, .* off by up to 0.00045, near progress remaining 0.5005",
    ) as told:
        model.save(tmp_path / "agent")
    assert told[0].filename == __file__


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda progress: 1e-3 / progress, "fails at progress remaining 0.0000 .*by zero"),
        (lambda progress: "fast", "fails at progress remaining 0.0000 .could not"),
        (lambda progress: math.inf if progress == 0.5 else 1.0, "returns inf at .* 0.5000"),
        (lambda progress: DRAWN.random(), "does not always return the same"),
    ],
)
def test_functions_without_a_table_are_refused_and_nothing_is_written(
    function: Callable[..., Any], message: str, tmp_path: Path
) -> None:
    model = agent()
    model.learning_rate = function
    remedy = r"exclude=\['learning_rate'\], and load with learning_rate="
    with pytest.raises(CheckpointError, match=f"learning_rate is .*{message}.*{remedy}"):
        model.save(tmp_path / "agent")
    assert not list(tmp_path.iterdir())


def test_a_setting_that_is_no_schedule_may_not_be_a_function(tmp_path: Path) -> None:
    model = agent()
    model.ent_coef = lambda progress: 0.1
    with pytest.raises(CheckpointError, match=r"ent_coef is .*<lambda>, a function.*'ent_coef'"):
        model.save(tmp_path / "agent")


@pytest.mark.parametrize(
    "values",
    [
        np.array([1.0]),
        np.array([1.0, math.nan]),
        np.ones((2, 2)),
        np.array([1, 2]),
        [1.0, 2.0],
    ],
)
def test_a_table_from_a_file_must_be_one(values: Any) -> None:
    with pytest.raises(ConfigError, match="values must be an array of at least 2 finite numbers"):
        TabulatedSchedule("f", values)
