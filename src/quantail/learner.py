"""One update: what a rollout teaches, from targets to gradient steps.

The whole algorithm is :func:`update`; everything it calls is a pure function of what it is given,
except the optimizer step and the two moves of statistics that belong to the policy (value scale,
observation scale), which happen once per cycle, here.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Generator, Tensor
from torch.optim import Optimizer

from quantail.config import LearnerConfig
from quantail.diagnostics.value_quality import explained_variance
from quantail.flow import Coefficients, LossTerms, Minibatch, Rollout, StepInfo, UpdateResult
from quantail.losses.average import average_terms
from quantail.losses.kl import analytic_kl
from quantail.losses.policy import log_ratio, policy_loss, ratio_info
from quantail.losses.total import LossWeights, total_loss
from quantail.losses.value_clip import value_loss
from quantail.nets.actor_critic import ActorCritic
from quantail.nets.observations import map_observation
from quantail.optim.accumulation import accumulate
from quantail.optim.gradients import clip_gradients, gradient_norm
from quantail.rollout.sequences import chunk_length, microbatches, minibatches
from quantail.rollout.states import chunk_states
from quantail.state import TrainState
from quantail.targets.compute import compute_targets
from quantail.targets.twin import twin_mean


def update(
    policy: ActorCritic,
    optimizer: Optimizer,
    rollout: Rollout,
    settings: LearnerConfig,
    now: Coefficients,
    state: TrainState,
    generator: Generator,
) -> tuple[UpdateResult, TrainState]:
    """Learn from one rollout.

    Args:
        policy: Changed in place.
        optimizer: Of the policy's parameters; its learning rate is set here and nowhere else.
        rollout: As acted by this policy with these weights.
        settings: How to learn.
        now: The scheduled numbers of this cycle.
        state: Where training stands.
        generator: Draws target atoms and the order of minibatches.

    Returns:
        What happened, and where training stands now.
    """
    for group in optimizer.param_groups:
        group["lr"] = now.learning_rate
    targets = compute_targets(rollout, settings.targets, policy.config.twin, generator)
    policy.update_scale(
        targets.atoms.flatten(0, 1), targets.atom_weights, rollout.weights.flatten()
    )
    length = chunk_length(
        settings.n_steps,
        settings.batch_size,
        settings.chunk_length,
        policy.config.core.kind != "none",
    )
    steps: list[StepInfo] = []
    stopped, epochs = False, 0
    while epochs < settings.n_epochs and not stopped:
        epochs += 1
        states = chunk_states(policy, rollout, length, settings.refresh_states, settings.burn_in)
        for batch in minibatches(rollout, targets, states, length, settings.batch_size, generator):
            steps.append(gradient_step(policy, optimizer, batch, settings, now))
            stopped = steps[-1].kl_stop
            if stopped:
                break
    policy.update_normalizer(map_observation(rollout.observations, lambda x: x.flatten(0, 1)))
    values = twin_mean(rollout.values, policy.config.twin)
    result = UpdateResult(
        coefficients=now,
        advantages=targets.info,
        steps=tuple(steps),
        explained_variance=explained_variance(values, targets.returns, rollout.weights),
        epochs=epochs,
        stopped_early=stopped,
    )
    advanced = replace(
        state,
        env_steps=state.env_steps + rollout.rewards.numel(),
        updates=state.updates + 1,
    )
    return result, advanced


def gradient_step(
    policy: ActorCritic,
    optimizer: Optimizer,
    batch: Minibatch,
    settings: LearnerConfig,
    now: Coefficients,
) -> StepInfo:
    """Take one optimizer step on a minibatch, unless it says that the policy has moved too far."""
    terms: list[LossTerms] = []
    shares: list[float] = []

    def losses() -> Iterator[tuple[Tensor, float]]:
        for micro in microbatches(batch, settings.microbatch_size):
            shares.append(float(micro.weights.sum()))
            terms.append(loss_terms(policy, micro, settings, now))
            yield terms[-1].total, shares[-1]

    gradient = accumulate(dict(policy.named_parameters()), losses())
    pairs = zip(terms, shares, gradient.used, strict=True)
    used = [(term, share) for term, share, is_used in pairs if is_used]
    averaged = average_terms(*zip(*(used or [(terms[0], 1.0)]), strict=True))
    critic_norms = tuple(gradient_norm(critic.parameters()) for critic in policy.critics)
    clipped = clip_gradients(policy.parameters(), settings.max_grad_norm)
    kl_stop = settings.target_kl is not None and bool(
        averaged.ratio.approx_kl > 1.5 * settings.target_kl
    )
    taken = gradient.weight > 0 and not kl_stop
    if taken:
        optimizer.step()
    return StepInfo(
        losses=averaged,
        weight=gradient.weight,
        grad_norm=clipped.before,
        grad_norm_clipped=clipped.after,
        critic_grad_norms=critic_norms,
        skipped=gradient.non_finite,
        first_bad=gradient.first_bad,
        taken=taken,
        kl_stop=kl_stop,
    )


def loss_terms(
    policy: ActorCritic, batch: Minibatch, settings: LearnerConfig, now: Coefficients
) -> LossTerms:
    """Return the loss of a micro-batch, from one forward pass over its chunks."""
    output = policy(batch.observations, batch.state, batch.episode_starts, batch.action_masks)
    log_probs = output.actions.log_prob(batch.actions)
    policy_rows = policy_loss(
        log_probs, batch.log_probs, batch.advantages, now.clip_range, settings.dual_clip
    )
    value_rows = tuple(
        value_loss(new, old, batch.atoms, batch.atom_weights, settings.value_clip).rows
        for new, old in zip(output.values, batch.values, strict=True)
    )
    with torch.no_grad():
        ratio = ratio_info(
            log_ratio(log_probs, batch.log_probs),
            analytic_kl(batch.policy, output.actions),
            batch.weights,
            now.clip_range,
        )
    return total_loss(
        policy_rows,
        output.actions.entropy(),
        value_rows,
        batch.weights,
        coefficients=LossWeights(entropy=now.entropy, value=now.value),
        ratio=ratio,
    )
