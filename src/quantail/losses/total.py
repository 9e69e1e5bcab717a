"""The loss of one micro-batch from its terms."""

from typing import Annotated

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


def total_loss(
    policy_rows: Tensor,
    entropy_rows: Tensor,
    value_rows: tuple[Tensor, ...],
    weights: Tensor,
    *,
    coefficients: LossWeights,
    ratio: RatioInfo,
) -> LossTerms:
    """Return every term and their sum.

    total = policy + c_H (-mean H) + c_V mean_k(value_k)

    Each term is the weighted mean over rows, so a row with weight ½ counts half. Critics are
    averaged after their rows were reduced, so each keeps its own per-row clipping.

    Args:
        policy_rows: [...], from :func:`~quantail.losses.policy.policy_loss`.
        entropy_rows: [...], entropy of the policy.
        value_rows: For each critic [...].
        weights: [...].
        coefficients: Of entropy and critics.
        ratio: Passed through.

    Raises:
        DataError: a term does not hold one number per row, or there is no critic.
    """
    if not value_rows:
        raise DataError("value_rows must hold the rows of at least one critic; it was empty.")
    check_rows("policy_rows", policy_rows, weights)
    for index, rows in enumerate(value_rows):
        check_rows(f"value_rows[{index}]", rows, weights)
    check_rows("entropy", entropy_rows, weights)
    means = weighted_means([policy_rows, -entropy_rows, *value_rows], weights)
    policy, entropy, *values = means.unbind()
    total = policy + coefficients.entropy * entropy + coefficients.value * means[2:].mean()
    return LossTerms(total=total, policy=policy, entropy=entropy, values=tuple(values), ratio=ratio)
