"""Log change of equity, net of costs: the default."""

from typing import ClassVar, Literal

from quantail.config_class import config
from quantail.sim.compiled import helper
from quantail.sim.rewards.outcome import Outcome, log_growth_nb


@config
class LogReturn:
    """reward = log(E' / E). Rewards of an episode add up to its log growth; scale-free in money."""

    kind: Literal["log_return"] = "log_return"
    code: ClassVar[int] = 0

    def parameters(self) -> tuple[float, float, float]:
        """Return the numbers that the kernel needs."""
        return (0.0, 0.0, 0.0)


@helper
def log_return_nb(
    o: Outcome, memory_0: float, memory_1: float, p0: float, p1: float, p2: float
) -> tuple[float, float, float]:
    """Return the reward and the unchanged memory."""
    return log_growth_nb(o), memory_0, memory_1
