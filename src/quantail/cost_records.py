"""What a limit on a mean cost adds to the records that travel between the stages of one update."""

from dataclasses import dataclass

from torch import Tensor

from quantail.laws import ValueDistribution


@dataclass(frozen=True, slots=True)
class CostCarry:
    """Costs of the running episodes, in float64."""

    costs: Tensor
    """[N], discounted costs of the episode so far."""
    discount: Tensor
    """[N], weight of the next cost."""


@dataclass(frozen=True, slots=True)
class CostRows:
    """Costs of a rollout, and what the cost critic said when acting."""

    costs: Tensor
    """[T, N], raw."""
    values: ValueDistribution
    """Rows [T, N]."""
    last_values: ValueDistribution
    """Rows [N]: the observation after the last step."""
    truncated_values: ValueDistribution
    """One row for each truncated step in row-major order: its final observation."""
    ended_costs: Tensor
    """[E] float64, discounted costs of the episodes that ended, in order of their end; without
    those that had started from a drawn target of tail risk."""


@dataclass(frozen=True, slots=True)
class CostTargets:
    """What actor and cost critic learn from the costs of a rollout."""

    advantages: Tensor
    """[T, N], of the cost: positive where an action costs more than expected."""
    returns: Tensor
    """[T, N], scalar lambda-returns of the cost."""
    advantage_std: float
    """Spread of the advantages."""
    mean_std: float
    """Spread of the advantages of the mean return, before anything is mixed in."""


@dataclass(frozen=True, slots=True)
class CostInfo:
    """What the limit on a mean cost did in one cycle; None where nothing could be said."""

    mean: float | None
    """Of recent episodes' discounted costs."""
    standard_error: float | None
    episodes: int
    """Behind them."""
    violation: float | None
    """How far the mean is above the limit; 0 when it is met."""
    multiplier: float
    """w: weight of the cost beside the mean in the cycle, both in their own spreads."""
    price: float
    """The same in return per cost: μ."""
    predicted: float | None
    """By the cost critic when acting, at the start of an episode."""
    infeasible: bool
    advantage_std: float
    """Spread of the cost's advantages."""
    explained_variance: float | None
    """Of the returns of the cost, by the cost critic's values of the acting pass."""
