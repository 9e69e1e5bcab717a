"""One gradient step: the loss of a minibatch, its gradient, and a step that can be undone."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.optim import Optimizer

from quantail.config import LearnerConfig
from quantail.flow import (
    Coefficients,
    LossTerms,
    Minibatch,
    Place,
    PolicyOutput,
    RatioInfo,
    StepInfo,
)
from quantail.losses.average import average_terms
from quantail.losses.imitation import AdvantageWeighted, advantage_weights, imitation_loss
from quantail.losses.kl import analytic_kl, k3
from quantail.losses.policy import log_ratio, policy_loss, ratio_info
from quantail.losses.reduction import weighted_mean
from quantail.losses.total import LossWeights, total_loss
from quantail.losses.value_clip import value_loss
from quantail.nets.actor_critic import ActorCritic
from quantail.optim.accumulation import GRADIENT_NORM, AccumulationInfo, accumulate
from quantail.optim.gradients import clip_gradients, gradient_norm
from quantail.optim.kl_control import StopReason
from quantail.optim.safety import first_bad, guarded_step
from quantail.rollout.demonstrations import DemonstrationRows, raw_action
from quantail.rollout.sequences import microbatches

StopRule = Callable[[RatioInfo], StopReason]
"""Reads how far the policy has moved on a minibatch; says why the actor must stop, if it must."""


def gradient_step(
    policy: ActorCritic,
    optimizer: Optimizer,
    batch: Minibatch,
    settings: LearnerConfig,
    now: Coefficients,
    *,
    actor: bool = True,
    stop: StopRule | None = None,
    shown: DemonstrationRows | None = None,
) -> StepInfo:
    """Take one optimizer step on a minibatch, unless it says that the policy has moved too far.

    Args:
        policy: Changed in place.
        optimizer: Of its parameters.
        batch: Whole chunks.
        settings: How to learn.
        now: The numbers of this cycle.
        actor: Whether the actor learns; else the critics alone.
        stop: When the actor must stop; the minibatch that says so is not learned from.
        shown: Demonstrations for this step.
    """
    terms: list[LossTerms] = []
    shares: list[float] = []

    def losses() -> Iterator[tuple[Tensor, float]]:
        for micro in microbatches(batch, settings.microbatch_size):
            shares.append(float(micro.weights.sum()))
            terms.append(loss_terms(policy, micro, settings, now, actor=actor, shown=shown))
            yield terms[-1].total, shares[-1]

    parameters = dict(policy.named_parameters())
    gradient = accumulate(parameters, losses())
    averaged = _averaged(terms, shares, gradient)
    critic_norms = tuple(gradient_norm(critic.parameters()) for critic in policy.critics)
    clipped = clip_gradients(policy.parameters(), settings.max_grad_norm)
    reason = stop(averaged.ratio) if actor and stop is not None else ""
    taken, undone = gradient.weight > 0 and not reason, ""
    if taken:
        undone = guarded_step(optimizer, parameters)
    return StepInfo(
        losses=averaged,
        weight=gradient.weight,
        grad_norm=clipped.before,
        grad_norm_clipped=clipped.after,
        critic_grad_norms=critic_norms,
        skipped=gradient.non_finite,
        outcomes=_outcomes(terms, gradient, undone),
        first_bad=_first_bad(terms, gradient) or undone,
        taken=taken and not undone,
        actor=actor,
        stop=reason,
    )


@torch.no_grad()
def distance(
    policy: ActorCritic, batch: Minibatch, settings: LearnerConfig, now: Coefficients
) -> RatioInfo:
    """Return how far the policy is now from the one that acted, on the rows of a minibatch."""
    parts = list(microbatches(batch, settings.microbatch_size))
    shares = [float(micro.weights.sum()) for micro in parts]
    terms = [loss_terms(policy, micro, settings, now) for micro in parts]
    return average_terms(terms, shares if any(shares) else [1.0] * len(shares)).ratio


def loss_terms(
    policy: ActorCritic,
    batch: Minibatch,
    settings: LearnerConfig,
    now: Coefficients,
    *,
    actor: bool = True,
    shown: DemonstrationRows | None = None,
) -> LossTerms:
    """Return the loss of a micro-batch, from one forward pass over its chunks."""
    output = policy(
        batch.observations,
        batch.state,
        batch.episode_starts,
        batch.action_masks,
        batch.budget_inputs,
    )
    log_probs = output.actions.log_prob(batch.actions)
    policy_rows = policy_loss(
        log_probs, batch.log_probs, batch.advantages, now.clip_range, settings.dual_clip
    )
    value_rows = tuple(
        value_loss(
            new,
            old,
            batch.atoms,
            batch.atom_weights,
            settings.value_clip_at(now.value_clip_range),
        ).rows
        for new, old in zip(output.values, batch.values, strict=True)
    )
    moved = log_ratio(log_probs, batch.log_probs)
    divergence = analytic_kl(batch.policy, output.actions)
    by_law = settings.kl_control is None or settings.kl_control.estimator == "analytic"
    return total_loss(
        policy_rows,
        output.actions.entropy(),
        value_rows,
        batch.weights,
        coefficients=LossWeights(
            entropy=now.entropy, value=now.value, kl=now.kl_penalty, imitation=now.imitation
        ),
        ratio=ratio_info(moved, divergence, batch.weights, now.clip_range),
        kl_rows=divergence if by_law else k3(moved),
        imitation=_imitation(policy, batch, settings, output, log_probs, shown),
        cost_rows=_cost_rows(batch, output),
        actor=actor,
    )


def _cost_rows(batch: Minibatch, output: PolicyOutput) -> Tensor | None:
    """Return the loss of the cost critic at each row, or None when there is no such critic."""
    assert (output.cost is None) == (batch.cost_returns is None), "costs are learned or are not"
    if output.cost is None or batch.cost_returns is None:
        return None
    return output.cost.loss(batch.cost_returns.unsqueeze(-1), batch.cost_returns.new_ones(1))


def _imitation(
    policy: ActorCritic,
    batch: Minibatch,
    settings: LearnerConfig,
    output: PolicyOutput,
    log_probs: Tensor,
    shown: DemonstrationRows | None,
) -> Tensor | None:
    """Return the mean imitation loss of a micro-batch, or None when there is no such term."""
    if isinstance(settings.imitation, AdvantageWeighted):
        config = settings.imitation
        weights = advantage_weights(batch.advantages, config.beta, config.max_weight)
        return weighted_mean(imitation_loss(log_probs, weights), batch.weights)
    if shown is None:
        return None
    law = policy(shown.observations, shown.state, shown.episode_starts).actions
    return imitation_loss(law.log_prob(raw_action(law, shown.actions))).mean()


def _averaged(terms: list[LossTerms], shares: list[float], gradient: AccumulationInfo) -> LossTerms:
    """Return the terms over the micro-batches used; over all of them when none was."""
    used = [term for term, ok in zip(terms, gradient.used, strict=True) if ok]
    weights = [share for share, ok in zip(shares, gradient.used, strict=True) if ok]
    return average_terms(used or terms, weights or [1.0] * len(terms), terms)


def _outcomes(
    terms: list[LossTerms], gradient: AccumulationInfo, undone: str
) -> tuple[Place | None, ...]:
    """Say of each micro-batch with weight where it was bad first."""
    found: list[Place | None] = []
    for term, ok, bad in zip(terms, gradient.used, gradient.bad, strict=True):
        if bad == "loss":
            found.append("log_ratio" if _has_bad_ratio(term) else "loss")
        elif bad:
            found.append("gradient")
        elif ok and not undone:
            found.append(None)
    return (*found, "parameter") if undone else tuple(found)


def _first_bad(terms: list[LossTerms], gradient: AccumulationInfo) -> str:
    """Name the first tensor of the micro-batches that was not finite; empty when all were."""
    for term, bad in zip(terms, gradient.bad, strict=True):
        if bad:
            if bad == "loss":
                return _bad_term(term)
            return bad if bad == GRADIENT_NORM else f"gradient of {bad}"
    return ""


def _bad_term(term: LossTerms) -> str:
    if _has_bad_ratio(term):
        return "log-ratio"
    named = {"policy loss": term.policy, "entropy": term.entropy}
    named |= {f"loss of critic {number}": loss for number, loss in enumerate(term.values, start=1)}
    named |= {"KL penalty": term.penalty, "imitation loss": term.imitation}
    named |= {} if term.cost is None else {"loss of the cost critic": term.cost}
    return first_bad(named) or "sum of the loss terms"


def _has_bad_ratio(term: LossTerms) -> bool:
    return bool(term.ratio.log_ratio_nan_count + term.ratio.log_ratio_inf_count > 0)
