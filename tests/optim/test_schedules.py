"""Schedules over the progress that remains, and how they are read from a file."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantail.errors import ConfigError
from quantail.optim.schedules import ConstantSchedule, CosineSchedule, LinearSchedule, as_schedule


def test_linear_values() -> None:
    schedule = LinearSchedule(start=1.0, end=0.2)
    assert [schedule(left) for left in (1.0, 0.75, 0.5, 0.0)] == pytest.approx([1, 0.8, 0.6, 0.2])
    short = LinearSchedule(start=1.0, end=0.2, duration=0.5)
    assert [short(left) for left in (1.0, 0.75, 0.5, 0.1)] == pytest.approx([1, 0.6, 0.2, 0.2])


def test_cosine_values() -> None:
    schedule = CosineSchedule(start=2.0, end=1.0)
    expected = [2, 1.5 + math.cos(math.pi / 4) / 2, 1.5, 1]
    assert [schedule(left) for left in (1.0, 0.75, 0.5, 0.0)] == pytest.approx(expected)
    assert CosineSchedule(start=2.0, end=1.0, duration=0.25)(0.7) == 1


@given(left=st.floats(0, 1), duration=st.floats(0.01, 1))
def test_values_stay_between_the_ends(left: float, duration: float) -> None:
    for kind in (LinearSchedule, CosineSchedule):
        value = kind(start=3.0, end=-1.0, duration=duration)(left)
        assert -1 - 1e-12 <= value <= 3 + 1e-12


def test_numbers_and_callables_become_schedules() -> None:
    assert as_schedule(3e-4)(0.3) == 3e-4
    assert as_schedule(lambda left: 2 * left)(0.3) == 0.6
    linear = LinearSchedule(start=1.0)
    assert as_schedule(linear) is linear
    assert ConstantSchedule(value=0.1)(0.0) == 0.1


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"duration: must be greater than 0; was 0"):
        LinearSchedule(start=1.0, duration=0.0)
    with pytest.raises(ConfigError, match=r"start and end must differ; both were 0\.1"):
        CosineSchedule(start=0.1, end=0.1)
    with pytest.raises(ConfigError, match="value: must be finite; was nan"):
        ConstantSchedule(value=math.nan)
