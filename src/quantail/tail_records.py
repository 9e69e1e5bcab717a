"""What tail risk adds to the records that travel between the stages of one update."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class BudgetCarry:
    """Budgets of the running episodes, in float64; see :mod:`quantail.risk.budget`."""

    budget: Tensor
    """[N], before the next action."""
    target: Tensor
    """[N], with which the episode started."""
    explored: Tensor
    """[N] bool: the episode started from a drawn target, not from the policy's own."""
    returns: Tensor
    """[N], discounted raw rewards of the episode so far."""
    discount: Tensor
    """[N], weight of the next reward."""


@dataclass(frozen=True, slots=True)
class BudgetRows:
    """Budgets of a rollout."""

    budgets: Tensor
    """[T, N] float64, before the action of the row."""
    inputs: Tensor
    """[T, N, K], what the policy saw of them."""
    ended_returns: Tensor
    """[E] float64, discounted raw returns of the episodes that ended, in order of their end."""
    ended_targets: Tensor
    """[E] float64, with which they had started."""
    ended_explored: Tensor
    """[E] bool: the episode had started from a drawn target."""
    ended_cut: Tensor
    """[E] bool: the episode was cut (truncated), so the critics value what would follow."""


@dataclass(frozen=True, slots=True)
class TailTargets:
    """The part of the advantages that is due to the tail."""

    advantages: Tensor
    """[T, N] float64, of the risk value, before it is mixed with that of the mean."""
    probability: Tensor
    """[T, N] float64, of a return below the budget, by the critics."""
    tail_share: Tensor
    """Scalar: share of rows whose action can still change the shortfall."""


@dataclass(frozen=True, slots=True)
class RiskInfo:
    """What tail risk did in one cycle; None where nothing could be said."""

    alpha: float
    weight: float
    """Of CVaR beside the mean: fixed, or the multiplier of a limit; sharpened until the target
    settles."""
    target: float
    """Budget with which episodes started."""
    scale: float
    """Spread of episode returns, those from drawn targets included."""
    cvar: float | None
    """Of recent episodes' discounted raw returns."""
    cvar_error: float | None
    """Its standard error."""
    tail_episodes: float | None
    """Episodes in the tail behind it."""
    predicted_cvar: float | None
    """By the critics, at the start of an episode."""
    coverage: float | None
    """Share of episodes at or below the predicted quantile at alpha."""
    violation: float | None
    """How far CVaR is below the limit; 0 when it is met, None without a limit."""
    constraint_term: float | None
    """Multiplier times violation, in return scales."""
    infeasible: bool
    explore_share: float
    tail_share: float | None
    """Share of rows whose action could still change the shortfall."""
    advantage_std: float | None
    """Spread of the tail advantages."""
