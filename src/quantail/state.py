"""All that a learner must remember from cycle to cycle, beside weights and optimizer.

What is here is saved with an agent and restored with it; nothing else about learning is kept.
"""

from quantail.config_class import config
from quantail.optim.entropy_control import EntropyState
from quantail.optim.guard import GuardState
from quantail.optim.kl_control import KlState
from quantail.risk.control import RiskState
from quantail.risk.cost import CostState


@config
class TrainState:
    """Where training stands; never changed, but replaced by what ``learner.update`` returns."""

    env_steps: int = 0
    """Steps of all environments learned from so far; schedules read it."""
    updates: int = 0
    """Cycles so far."""
    kl: KlState = KlState()
    entropy: EntropyState = EntropyState()
    guard: GuardState = GuardState()
    risk: RiskState = RiskState()
    cost: CostState = CostState()
    cycles_imbalanced: int = 0
    """In a row, in which the gradient norms of the critics differed too much."""
    alerts: tuple[str, ...] = ()
    """Metrics of which it has been said that they left their healthy range."""
