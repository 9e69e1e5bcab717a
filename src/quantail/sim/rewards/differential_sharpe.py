"""Differential Sharpe ratio: what one return adds to an exponentially weighted Sharpe ratio."""

from typing import Annotated, ClassVar, Literal

from annotated_types import Gt, Lt

from quantail.config_class import config
from quantail.sim.compiled import helper
from quantail.sim.rewards.outcome import Outcome
from quantail.sim.rewards.simple_return import growth_nb


@config
class DifferentialSharpe:
    """D = (B ΔA - A ΔB / 2) / (B - A²)^(3/2), with ΔA = R - A and ΔB = R² - B.

    Then A += η ΔA, B += η ΔB. A and B start at 0 in every episode; the reward is 0 while the
    variance B - A² is below ``minimum_variance``. Unchanged when all returns and √minimum_variance
    are scaled together.

    References:
        Moody and Saffell, "Learning to trade via direct reinforcement", IEEE TNN 12(4), 2001.
    """

    kind: Literal["differential_sharpe"] = "differential_sharpe"
    eta: Annotated[float, Gt(0), Lt(1)] = 0.01
    """Weight of the latest return in the moving averages."""
    minimum_variance: Annotated[float, Gt(0)] = 1e-6
    """No reward while the variance is below: at the start it is near 0, and D without bounds."""
    code: ClassVar[int] = 2

    def parameters(self) -> tuple[float, float, float]:
        """Return the numbers that the kernel needs."""
        return (self.eta, self.minimum_variance, 0.0)


@helper
def differential_sharpe_nb(
    o: Outcome, memory_0: float, memory_1: float, p0: float, p1: float, p2: float
) -> tuple[float, float, float]:
    """Return the reward and the moving averages A and B."""
    r = growth_nb(o)
    mean, square = memory_0, memory_1
    delta_mean, delta_square = r - mean, r * r - square
    variance = square - mean * mean
    reward = 0.0
    if variance > p1:
        reward = (square * delta_mean - 0.5 * mean * delta_square) / variance**1.5
    return reward, mean + p0 * delta_mean, square + p0 * delta_square
