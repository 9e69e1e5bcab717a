"""Relative change of equity, net of costs."""

from typing import ClassVar, Literal

from quantail.config_class import config
from quantail.sim.compiled import helper
from quantail.sim.rewards.outcome import EQUITY_FLOOR, Outcome


@config
class SimpleReturn:
    """reward = E' / E - 1; scale-free in money."""

    kind: Literal["simple_return"] = "simple_return"
    code: ClassVar[int] = 1

    def parameters(self) -> tuple[float, float, float]:
        """Return the numbers that the kernel needs."""
        return (0.0, 0.0, 0.0)


@helper
def growth_nb(o: Outcome) -> float:
    """Return (E' - E) / E, with E no smaller than the floor."""
    return (o.equity - o.equity_before) / max(o.equity_before, EQUITY_FLOOR * o.initial_equity)


@helper
def simple_return_nb(
    o: Outcome, memory_0: float, memory_1: float, p0: float, p1: float, p2: float
) -> tuple[float, float, float]:
    """Return the reward and the unchanged memory."""
    return growth_nb(o), memory_0, memory_1
