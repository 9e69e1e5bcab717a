"""From the result of a cycle to its declared metrics."""

import dataclasses
import math
import statistics
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from quantail.diagnostics.monitors import CriticWatch
from quantail.diagnostics.risk_schema import CostMetrics, RiskMetrics
from quantail.diagnostics.schema import (
    EXPLAINED_GROUP,
    NON_FINITE,
    ControlMetrics,
    UpdateMetrics,
    tagged,
)
from quantail.flow import StepInfo, UpdateResult
from quantail.losses.imitation import DOMINATES, imitation_share
from quantail.losses.policy import LOG_RATIO_EXTREME


def critic_norms(result: UpdateResult) -> list[float]:
    """Return each critic's gradient norm before clipping, mean over the cycle's steps."""
    steps = zip(*(step.critic_grad_norms for step in result.steps), strict=True)
    return [float(torch.stack(norms).mean()) for norms in steps]


def risk_metrics(result: UpdateResult) -> dict[str, float]:
    """Return the metrics of tail risk by tag; none without it."""
    if result.risk is None:
        return {}
    info = result.risk
    fields = {field.name: getattr(info, field.name) for field in dataclasses.fields(info)}
    return tagged(RiskMetrics(**fields))


def cost_metrics(result: UpdateResult) -> dict[str, float]:
    """Return the metrics of a limit on a mean cost by tag; none without it."""
    if result.cost is None:
        return {}
    info = result.cost
    fields = {field.name: getattr(info, field.name) for field in dataclasses.fields(info)}
    losses = [step.losses.cost for step in result.steps if step.losses.cost is not None]
    return tagged(CostMetrics(**fields, value_loss=_mean(losses)))


def update_metrics(result: UpdateResult, watch: CriticWatch) -> UpdateMetrics:
    """Aggregate one cycle: means over its steps, the largest of extremes, sums of counts."""

    def over_steps(read: Callable[[StepInfo], Tensor]) -> Tensor:
        return torch.stack([read(step).detach().float() for step in result.steps])

    # A smaller last minibatch counts by its rows; where no step used any row, all count alike.
    shares = torch.tensor([step.weight for step in result.steps])
    shares = shares / shares.sum() if bool(shares.sum() > 0) else shares + 1 / len(shares)

    def mean(read: Callable[[StepInfo], Tensor]) -> float:
        return float(torch.where(shares > 0, shares * over_steps(read), 0.0).sum())

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
        advantages_degenerate=float(result.advantages.degenerate),
        explained_variance=float(result.explained_variance),
        learning_rate=now.learning_rate,
        clip_range=now.clip_range,
        entropy_coefficient=now.entropy,
        value_coefficient=now.value,
        epochs=result.epochs,
        stopped_early=result.stopped_early,
    )


def control_metrics(result: UpdateResult) -> ControlMetrics:
    """Return what the controllers did in one cycle."""
    now, info = result.coefficients, result.control
    has_kl, has_penalty = now.kl_target is not None, info.penalty_terms is not None
    terms = info.penalty_terms or (None, None, None, None)
    imitation = _imitation(result)
    defined = [v for v in result.explained_variance_grouped.values() if not math.isnan(v)]
    drift = info.normalizer_drift or (None, None)
    late = result.explained_variance_after
    actor = [step for step in result.steps if step.actor]
    return ControlMetrics(
        critic_learning_rate=now.critic_learning_rate,
        entropy_raw=info.entropy_raw if info.has_entropy_control else None,
        entropy_nominal=info.entropy_nominal if info.has_entropy_control else None,
        policy_entropy=info.policy_entropy,
        entropy_slope=info.entropy_slope,
        entropy_decay_start=info.decay_start,
        sampled_kl=_mean([step.losses.ratio.sampled_kl for step in actor]),
        kl_target=now.kl_target,
        kl_exceeded=info.kl_exceeded if has_kl else None,
        kl_epoch_factor=info.epoch_factor if has_kl else None,
        kl_rate_factor=info.rate_factor if has_kl else None,
        kl_penalty=now.kl_penalty if has_penalty else None,
        kl_penalty_loss=_mean([s.losses.penalty for s in actor]) if has_penalty else None,
        kl_penalty_error=terms[0],
        kl_penalty_p=terms[1],
        kl_penalty_i=terms[2],
        kl_penalty_d=terms[3],
        imitation_coefficient=imitation[0],
        imitation_loss=imitation[1],
        imitation_weighted=imitation[2],
        imitation_share=imitation[3],
        imitation_dominates=None if imitation[3] is None else imitation[3] > DOMINATES,
        severe_log_ratio=any(
            bool(step.losses.ratio.log_ratio_max_abs > LOG_RATIO_EXTREME) for step in actor
        ),
        explained_variance_after=None if late is None else float(late),
        explained_variance_mean=statistics.mean(defined) if defined else None,
        explained_variance_median=statistics.median(defined) if defined else None,
        rolled_back=info.rolled_back,
        normalizer_mean_drift=drift[0],
        normalizer_std_drift=drift[1],
    )


def group_metrics(result: UpdateResult) -> dict[str, float]:
    """Return tag -> value: explained variance of each group, counts of each place."""
    grouped, faults = result.explained_variance_grouped, result.control.faults
    return {
        **{EXPLAINED_GROUP.tag(group=name): value for name, value in grouped.items()},
        **{NON_FINITE.tag(place=place): float(count) for place, count in faults.items()},
    }


def _imitation(
    result: UpdateResult,
) -> tuple[float | None, float | None, float | None, float | None]:
    """Return coefficient, loss, weighted loss and share of the imitation term, if there is one."""
    steps = [step for step in result.steps if step.actor and step.taken]
    coefficient = result.coefficients.imitation
    if coefficient == 0 or not steps:
        return (None, None, None, None)
    shares = [imitation_share(coefficient * s.losses.imitation, s.losses.policy) for s in steps]
    loss = _mean([step.losses.imitation for step in steps])
    return coefficient, loss, coefficient * loss, _mean(shares)


def _mean(values: Sequence[Tensor]) -> float:
    return float(torch.stack([value.detach().float() for value in values]).mean())
