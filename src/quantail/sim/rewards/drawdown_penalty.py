"""Log change of equity less a price on every new drawdown."""

from typing import Annotated, ClassVar, Literal

from annotated_types import Gt

from quantail.config_class import config
from quantail.sim.compiled import helper
from quantail.sim.rewards.outcome import Outcome, log_growth_nb


@config
class DrawdownPenalty:
    """reward = log(E' / E) - coefficient · max(0, d' - d), with drawdown d = 1 - E / peak.

    Recovery is not paid, so a round trip through a drawdown costs. Scale-free in money.
    """

    kind: Literal["drawdown_penalty"] = "drawdown_penalty"
    coefficient: Annotated[float, Gt(0)] = 1.0
    code: ClassVar[int] = 3

    def parameters(self) -> tuple[float, float, float]:
        """Return the numbers that the kernel needs."""
        return (self.coefficient, 0.0, 0.0)


@helper
def drawdown_penalty_nb(
    o: Outcome, memory_0: float, memory_1: float, p0: float, p1: float, p2: float
) -> tuple[float, float, float]:
    """Return the reward and the unchanged memory."""
    deeper = max(0.0, o.drawdown - o.drawdown_before)
    return log_growth_nb(o) - p0 * deeper, memory_0, memory_1
