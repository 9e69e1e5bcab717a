"""The clipped surrogate, row by row, and how far the policy has moved."""

import torch
from torch import Tensor

from quantail.errors import ConfigError
from quantail.flow import RatioInfo
from quantail.losses.kl import k3
from quantail.losses.reduction import check_rows, weighted_means

LOG_RATIO_GUARD = 20.0
"""|log-ratio| beyond which the ratio is held; exp(20) is far from overflow and from any use."""

LOG_RATIO_EXTREME = 10.0
"""|log-ratio| beyond which a row is counted as a sign of instability."""


def policy_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    clip_range: float,
    dual_clip: float | None = None,
) -> Tensor:
    """Return the loss of each row.

    l_t = log π_new(a_t) - log π_old(a_t),   r_t = exp(clamp(l_t, -20, 20))
    loss_t = -min(r_t A_t, clip(r_t, 1 - ε, 1 + ε) A_t)

    With ``dual_clip`` c the loss of a row with A_t < 0 is at most -c A_t.

    The clamp only guards against overflow. A clamped row gets no gradient, so it must be rare:
    :func:`ratio_info` counts such rows. A log-ratio that is not finite gives a loss that is not
    finite, never a clamped one.

    Args:
        log_probs: [...], under the new policy.
        old_log_probs: [...], under the acting policy.
        advantages: [...].
        clip_range: ε, at least 0, where a schedule may end.
        dual_clip: c, greater than 1, or None.

    Returns:
        [...].

    Raises:
        ConfigError: ``clip_range`` or ``dual_clip`` is out of range.
        DataError: shapes differ.

    References:
        Schulman et al. 2017, Proximal policy optimization algorithms, eq. 7.
        Ye et al. 2020, Mastering complex control in MOBA games, eq. 5 (dual clip).
    """
    if not clip_range >= 0:
        raise ConfigError(f"clip_range must be at least 0; was {clip_range}. Try 0.2.")
    if dual_clip is not None and not dual_clip > 1:
        raise ConfigError(f"dual_clip must be greater than 1 or None; was {dual_clip}. Try 3.")
    check_rows("advantages", advantages, log_probs)
    ratio = guarded_ratio(log_ratio(log_probs, old_log_probs))
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
    surrogate = torch.minimum(ratio * advantages, clipped * advantages)
    if dual_clip is not None:
        floor = torch.maximum(surrogate, dual_clip * advantages)
        surrogate = torch.where(advantages < 0, floor, surrogate)
    return -surrogate


def log_ratio(log_probs: Tensor, old_log_probs: Tensor) -> Tensor:
    """Return log π_new - log π_old, [...]."""
    check_rows("old_log_probs", old_log_probs, log_probs)
    return log_probs - old_log_probs.detach()


def guarded_ratio(log_ratio: Tensor) -> Tensor:
    """Return exp of the log-ratio held within the guard; NaN where it is not finite, [...]."""
    held = log_ratio.clamp(-LOG_RATIO_GUARD, LOG_RATIO_GUARD)
    return torch.where(torch.isfinite(log_ratio), held, torch.nan).exp()


@torch.no_grad()
def ratio_info(log_ratio: Tensor, kl: Tensor, weights: Tensor, clip_range: float) -> RatioInfo:
    """Summarize how far the policy has moved, from log-ratios before the guard.

    Args:
        log_ratio: [...].
        kl: [...], analytic KL(old || new) of each row.
        weights: [...]; rows with weight 0 are left out.
        clip_range: ε.

    Returns:
        Scalars outside the graph. Rows whose log-ratio is not finite are counted, and left out of
        the other numbers.
    """
    rows, dtype = log_ratio.detach(), log_ratio.dtype
    finite = torch.isfinite(rows)
    bad = ~finite & (weights > 0)
    shares = weights * finite
    rows = torch.where(finite, rows, 0.0)
    size = rows.abs() * (weights > 0)
    ratio = guarded_ratio(rows)
    kl = torch.where(finite & torch.isfinite(kl), kl, 0.0)
    sampled = k3(rows.clamp(-LOG_RATIO_GUARD, LOG_RATIO_GUARD))
    means = weighted_means(
        [
            kl,
            ((ratio - 1).abs() > clip_range).to(dtype),
            ratio,
            rows,
            rows.square(),
            (size > LOG_RATIO_EXTREME).to(dtype),
            (size > LOG_RATIO_GUARD).to(dtype),
            sampled,
        ],
        shares,
    )
    mean, square = means[3], means[4]
    nan_count = (bad & log_ratio.isnan()).sum()
    return RatioInfo(
        approx_kl=means[0],
        sampled_kl=means[7],
        clip_fraction=means[1],
        ratio_mean=means[2],
        log_ratio_mean=mean,
        log_ratio_std=(square - mean.square()).clamp(min=0.0).sqrt(),
        log_ratio_max_abs=size.max() if size.numel() else size.sum(),
        log_ratio_extreme_fraction=means[5],
        log_ratio_clamp_fraction=means[6],
        log_ratio_nan_count=nan_count,
        log_ratio_inf_count=bad.sum() - nan_count,
    )
