"""Numbers that change with the progress of training: that they are followed to the very end."""

import pytest

from quantail.errors import ConfigError
from quantail.sb3.errors import SettingError
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
