"""Pull toward given actions: those of the rollout that turned out well, or demonstrated ones.

loss_t = -w_t log π(a_t | s_t), where the weight is no part of the graph.
"""

import math
from typing import Annotated, Final, Literal, TypeAlias

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from quantail.config_class import BY_KIND, config
from quantail.losses.reduction import check_rows

DOMINATES: Final = 0.8
"""Share of the term in the actor's loss above which it is no longer a help but the objective."""


@config
class AdvantageWeighted:
    """Regress on the rollout's own actions, by how much better than expected they were.

    w = exp(min(A / beta, log max_weight)). With normalized advantages and beta = 5, an action two
    deviations above the mean has weight 1.49.
    """

    kind: Literal["rollout"] = "rollout"
    coefficient: Annotated[float, Gt(0)] | None = None
    """Of the term; None takes it from ``schedules.imitation``."""
    beta: Annotated[float, Gt(0)] = 5.0
    max_weight: Annotated[float, Gt(1)] = 100.0


@config
class Cloning:
    """Make demonstrated actions likely; every step draws some of them."""

    kind: Literal["demonstrations"] = "demonstrations"
    coefficient: Annotated[float, Gt(0)] | None = None
    """Of the term; None takes it from ``schedules.imitation``."""
    batch_size: Annotated[int, Ge(1)] = 64
    """Rows drawn for each step of the optimizer; rounded up to whole chunks."""


ImitationConfig: TypeAlias = Annotated[AdvantageWeighted | Cloning, BY_KIND]


def advantage_weights(advantages: Tensor, beta: float, max_weight: float) -> Tensor:
    """Return exp(min(A / beta, log max_weight)), [...], outside the graph.

    The exponent is held, not the result, so that nothing overflows on the way.

    References:
        Peng et al. 2019, Advantage-weighted regression, eq. 11 and section 5.2.
    """
    return (advantages.detach() / beta).clamp(max=math.log(max_weight)).exp()


def imitation_loss(log_probs: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return -w log π of each row, [...]; w is 1 without ``weights``.

    Raises:
        DataError: shapes differ.
    """
    if weights is None:
        return -log_probs
    check_rows("weights", weights, log_probs)
    return -log_probs * weights.detach()


def imitation_share(weighted: Tensor, policy: Tensor) -> Tensor:
    """Return |c L_imitation| / (|c L_imitation| + |L_policy|), 0 when both are 0; scalars."""
    term, other = weighted.detach().abs(), policy.detach().abs()
    total = term + other
    return torch.where(total > 0, term / total, 0.0)
