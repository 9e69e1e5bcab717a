"""From the result of a cycle to its declared metrics."""

from collections.abc import Callable

import torch
from torch import Tensor

from quantail.diagnostics.monitors import CriticWatch
from quantail.diagnostics.schema import UpdateMetrics
from quantail.flow import StepInfo, UpdateResult


def critic_norms(result: UpdateResult) -> list[float]:
    """Return each critic's gradient norm before clipping, mean over the cycle's steps."""
    steps = zip(*(step.critic_grad_norms for step in result.steps), strict=True)
    return [float(torch.stack(norms).mean()) for norms in steps]


def update_metrics(result: UpdateResult, watch: CriticWatch) -> UpdateMetrics:
    """Aggregate one cycle: means over its steps, the largest of extremes, sums of counts."""

    def over_steps(read: Callable[[StepInfo], Tensor]) -> Tensor:
        return torch.stack([read(step).detach().float() for step in result.steps])

    # A smaller last minibatch counts by its rows; where no step used any row, all count alike.
    shares = torch.tensor([step.weight for step in result.steps])
    shares = shares / shares.sum() if bool(shares.sum() > 0) else shares + 1 / len(shares)

    def mean(read: Callable[[StepInfo], Tensor]) -> float:
        return float((shares * over_steps(read)).sum())

    def ratio(name: str) -> Tensor:
        return over_steps(lambda step: getattr(step.losses.ratio, name))

    n_critics = len(result.steps[0].critic_grad_norms)
    losses = [mean(lambda step, k=k: step.losses.values[k]) for k in range(n_critics)]  # type: ignore[misc]
    norms = critic_norms(result)
    now, has_twin = result.coefficients, n_critics > 1
    return UpdateMetrics(
        loss=mean(lambda step: step.losses.total),
        policy_loss=mean(lambda step: step.losses.policy),
        entropy_loss=mean(lambda step: step.losses.entropy),
        value_loss=sum(losses) / n_critics,
        critic1_loss=losses[0],
        critic2_loss=losses[1] if has_twin else None,
        approx_kl=mean(lambda step: step.losses.ratio.approx_kl),
        clip_fraction=mean(lambda step: step.losses.ratio.clip_fraction),
        ratio_mean=mean(lambda step: step.losses.ratio.ratio_mean),
        log_ratio_mean=mean(lambda step: step.losses.ratio.log_ratio_mean),
        log_ratio_std=mean(lambda step: step.losses.ratio.log_ratio_std),
        log_ratio_max_abs=float(ratio("log_ratio_max_abs").max()),
        log_ratio_extreme_fraction=mean(lambda step: step.losses.ratio.log_ratio_extreme_fraction),
        log_ratio_clamp_fraction=mean(lambda step: step.losses.ratio.log_ratio_clamp_fraction),
        log_ratio_nan_count=float(ratio("log_ratio_nan_count").sum()),
        log_ratio_inf_count=float(ratio("log_ratio_inf_count").sum()),
        skipped_microbatches=sum(step.skipped for step in result.steps),
        grad_norm=mean(lambda step: step.grad_norm),
        grad_norm_clipped=mean(lambda step: step.grad_norm_clipped),
        critic1_grad_norm=norms[0],
        critic2_grad_norm=norms[1] if has_twin else None,
        critics_grad_ratio=watch.ratio,
        critics_imbalanced=watch.imbalanced if has_twin else None,
        critic1_vanishing=watch.vanishing[0],
        critic2_vanishing=watch.vanishing[1] if has_twin else None,
        advantages_mean=float(result.advantages.mean),
        advantages_std=float(result.advantages.std),
        advantages_max_abs=float(result.advantages.max_abs),
        explained_variance=float(result.explained_variance),
        learning_rate=now.learning_rate,
        clip_range=now.clip_range,
        entropy_coefficient=now.entropy,
        value_coefficient=now.value,
        epochs=result.epochs,
        stopped_early=result.stopped_early,
    )
