"""Log change of equity plus potential shaping, which leaves the best policy unchanged."""

import math
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem
from quantail.sim.compiled import helper
from quantail.sim.rewards.outcome import Outcome, log_growth_nb


@config
class PotentialShaped:
    """reward = log(E' / E) + γ Φ(s') - Φ(s), Φ = -tanh(a · |position| + b · drawdown).

    Φ is 0 at the start of an episode (flat, no drawdown) and after a termination; over an episode
    the shaping telescopes, so only the timing of rewards changes. Scale-free in money.

    References:
        Ng, Harada and Russell, "Policy invariance under reward transformations", ICML 1999.
    """

    kind: Literal["potential"] = "potential"
    gamma: Annotated[float, Gt(0), Le(1)] = 0.99
    """Must equal the agent's discount, else the best policy changes; see :func:`check_gamma`."""
    position_weight: Annotated[float, Ge(0)] = 0.01
    drawdown_weight: Annotated[float, Ge(0)] = 0.1
    code: ClassVar[int] = 4

    def check(self) -> None:
        """Refuse a potential that is zero everywhere."""
        if self.position_weight == 0.0 and self.drawdown_weight == 0.0:
            problem = (
                "must not both be 0 with drawdown_weight; use reward.kind 'log_return' instead"
            )
            raise ConfigError([ConfigProblem("position_weight", problem)])

    def parameters(self) -> tuple[float, float, float]:
        """Return the numbers that the kernel needs."""
        return (self.gamma, self.position_weight, self.drawdown_weight)


@helper
def potential_nb(
    o: Outcome, memory_0: float, memory_1: float, p0: float, p1: float, p2: float
) -> tuple[float, float, float]:
    """Return the reward and the potential of the new state."""
    after = 0.0 if o.terminated else -math.tanh(p1 * abs(o.position) + p2 * o.drawdown)
    return log_growth_nb(o) + p0 * after - memory_0, after, memory_1
