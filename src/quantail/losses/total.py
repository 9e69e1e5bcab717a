"""The loss of one micro-batch from its terms."""

from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from quantail.config_class import config
from quantail.errors import DataError
from quantail.flow import LossTerms, RatioInfo
from quantail.losses.reduction import check_rows, weighted_means


@config
class LossWeights:
    """Coefficients of the terms beside the policy's."""

    entropy: Annotated[float, Ge(0)] = 0.0
    """Of the entropy bonus."""
    value: Annotated[float, Ge(0)] = 0.5
    """Of the mean loss of the critics."""
    kl: Annotated[float, Ge(0)] = 0.0
    """Of KL(acting || new)."""
    imitation: Annotated[float, Ge(0)] = 0.0


def total_loss(
    policy_rows: Tensor,
    entropy_rows: Tensor,
    value_rows: tuple[Tensor, ...],
    weights: Tensor,
    *,
    coefficients: LossWeights,
    ratio: RatioInfo,
    kl_rows: Tensor | None = None,
    imitation: Tensor | None = None,
    cost_rows: Tensor | None = None,
    actor: bool = True,
) -> LossTerms:
    """Return every term and their sum.

    total = policy + c_H (-mean H) + c_V (mean_k(value_k) + cost) + β mean KL + c_I imitation

    Each term is the weighted mean over rows, so a row with weight ½ counts half. Critics are
    averaged after their rows were reduced, so each keeps its own per-row clipping.

    Args:
        policy_rows: [...], from :func:`~quantail.losses.policy.policy_loss`.
        entropy_rows: [...], entropy of the policy.
        value_rows: For each critic [...].
        weights: [...].
        coefficients: Of the terms beside the policy's.
        ratio: Passed through.
        kl_rows: [...], KL(acting || new); needed when its coefficient is not 0.
        imitation: Scalar, if there is such a term.
        cost_rows: [...], of the cost critic, if there is one; it takes nothing from the others.
        actor: Whether the actor's terms count; else the sum has those of the critics alone, and
            the actor's parameters are not in its graph.

    Raises:
        DataError: a term does not hold one number per row, or there is no critic.
    """
    if not value_rows:
        raise DataError("value_rows must hold the rows of at least one critic; it was empty.")
    check_rows("policy_rows", policy_rows, weights)
    for index, rows in enumerate(value_rows):
        check_rows(f"value_rows[{index}]", rows, weights)
    check_rows("entropy", entropy_rows, weights)
    if cost_rows is not None:
        check_rows("cost_rows", cost_rows, weights)
    means = weighted_means([policy_rows, -entropy_rows], weights)
    policy, entropy = means.unbind()
    values = weighted_means(value_rows, weights)
    total = coefficients.value * values.mean()
    cost: Tensor | None = None
    if cost_rows is not None:
        cost = weighted_means([cost_rows], weights)[0]
        total = total + coefficients.value * cost
    penalty = torch.zeros_like(policy)
    if coefficients.kl and kl_rows is not None:
        penalty = coefficients.kl * weighted_means([kl_rows], weights)[0]
    if actor:
        total = policy + coefficients.entropy * entropy + total + penalty
        if imitation is not None:
            total = total + coefficients.imitation * imitation
    return LossTerms(
        total=total,
        policy=policy,
        entropy=entropy,
        values=tuple(values.unbind()),
        penalty=penalty,
        imitation=torch.zeros_like(policy) if imitation is None else imitation,
        ratio=ratio,
        cost=cost,
    )
