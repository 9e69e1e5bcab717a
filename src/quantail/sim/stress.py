"""Stress for domain randomization: costlier, wilder and more broken markets than the recorded one.

Stress changes what happens to the account, not the features: those stay the recorded ones.
"""

from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Lt

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem
from quantail.sim.compiled import helper
from quantail.sim.random import uniform_nb


@config
class GapStress:
    """Sudden jumps between the close of one bar and the next fill."""

    probability: Annotated[float, Gt(0), Lt(1)] = 0.001
    """Chance of a gap in each bar."""
    size: Annotated[float, Gt(0), Lt(1)] = 0.1
    """Largest gap; the jump is uniform in [-size, size]."""


@config
class StressConfig:
    """Multipliers drawn once per episode, and accidents drawn in every bar."""

    cost_multiplier: tuple[float, float] = (1.0, 1.0)
    """Range from which fee, spread and slippage are multiplied, uniform."""
    volatility_multiplier: tuple[float, float] = (1.0, 1.0)
    """Range of the factor on log returns, uniform."""
    gap: GapStress | None = None
    missing_probability: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Chance that a bar is missing: the step then goes over it, and orders fill in the next one."""

    def check(self) -> None:
        """Refuse ranges that are none, or that could eat the whole account."""
        for name, highest in (("cost_multiplier", 100.0), ("volatility_multiplier", 10.0)):
            low, high = getattr(self, name)
            if not 0.0 <= low <= high <= highest:
                problem = f"must be a range low, high inside [0, {highest:g}]; was {(low, high)!r}"
                raise ConfigError([ConfigProblem(name, problem)])

    @property
    def is_on(self) -> bool:
        """Whether anything differs from the recorded market."""
        return self != StressConfig()


@helper
def draw_between_nb(stream: np.uint64, low: float, high: float) -> tuple[np.uint64, float]:
    """Draw uniformly from [low, high); no draw is spent on a range of one value."""
    if low == high:
        return stream, low
    stream, u = uniform_nb(stream)
    return stream, low + (high - low) * u


@helper
def gap_factor_nb(stream: np.uint64, probability: float, size: float) -> tuple[np.uint64, float]:
    """Return the factor by which the price jumps in this bar, mostly 1."""
    if probability <= 0.0:
        return stream, 1.0
    stream, u = uniform_nb(stream)
    if u >= probability:
        return stream, 1.0
    stream, u = uniform_nb(stream)
    return stream, 1.0 + size * (2.0 * u - 1.0)


@helper
def next_row_nb(
    stream: np.uint64, row: int, last_row: int, probability: float
) -> tuple[np.uint64, int]:
    """Return the next bar that is not missing; the last bar never is."""
    following = row + 1
    if probability > 0.0:
        while following < last_row:
            stream, u = uniform_nb(stream)
            if u >= probability:
                break
            following += 1
    return stream, following
