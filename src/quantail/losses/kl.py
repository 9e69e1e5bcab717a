"""How far one policy is from another: KL(old || new), row by row.

The sampled estimators read l = log π_new(a) - log π_old(a) for actions drawn from the old policy.
Decisions take the analytic divergence, which every action law of ours gives and which has no
sampling noise; k3 stands in where only log-probabilities are at hand.
"""

import torch
from torch import Tensor

from quantail.flow import ActionDistribution


def analytic_kl(old: ActionDistribution, new: ActionDistribution) -> Tensor:
    """Return KL(old || new), [...], with the old law outside the graph."""
    return old.detach().kl(new)


def k1(log_ratio: Tensor) -> Tensor:
    """Return -l: unbiased, noisy, of either sign."""
    return -log_ratio


def k2(log_ratio: Tensor) -> Tensor:
    """Return l² / 2: low noise, biased when the policies are far apart."""
    return log_ratio.square() / 2


def k3(log_ratio: Tensor) -> Tensor:
    """Return (exp l - 1) - l: unbiased, low noise, never negative.

    References:
        Schulman 2020, Approximating KL divergence.
    """
    return torch.expm1(log_ratio) - log_ratio
