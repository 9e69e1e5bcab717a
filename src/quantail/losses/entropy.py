"""The entropy bonus, as a loss."""

from torch import Tensor

from quantail.losses.reduction import check_rows, weighted_mean


def entropy_loss(entropy: Tensor, weights: Tensor) -> Tensor:
    """Return -Σ w H / Σ w, which falls as the policy becomes more random.

    Args:
        entropy: [...], one number per row: summed over action dimensions once, by the policy.
        weights: [...].

    Returns:
        Scalar.

    Raises:
        DataError: ``entropy`` does not hold one number per row.
    """
    check_rows("entropy", entropy, weights)
    return -weighted_mean(entropy, weights)
