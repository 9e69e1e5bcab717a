"""Which parameters each loss term reaches, and that cutting a batch does not change a gradient."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from quantail.flow import Coefficients, LossTerms, Minibatch
from quantail.gradient import gradient_step, loss_terms
from quantail.learner import update
from quantail.losses.value_clip import MeanAndVarianceClip, MeanClip, QuantileClip
from quantail.nets.cores import LstmConfig, NoCoreConfig
from quantail.nets.critics import CategoricalCritic, QuantileCritic, ScalarCritic
from quantail.rollout.sequences import gather
from quantail.state import TrainState
from tests.catalogue import catalogue
from tests.learner.agents import NOW, Acted, acted, settings, small

CORE = LstmConfig(hidden_size=8)
CRITICS: list[Any] = [QuantileCritic(n_quantiles=8), CategoricalCritic(n_atoms=11), ScalarCritic()]


def whole(state: Acted, length: int = 8) -> Minibatch:
    """All rows of a rollout as one minibatch."""
    n_chunks = state.rollout.rewards.numel() // length
    return gather(
        state.rollout, state.targets, state.rollout.chunk_states, length, torch.arange(n_chunks)
    )


def reached(state: Acted, loss: Tensor) -> set[str]:
    """Names of the parameter groups that get a gradient from ``loss``."""
    groups = state.policy.parameter_groups()
    found = set()
    for name, parameters in groups.items():
        gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        if any(gradient is not None and bool(gradient.abs().sum() > 0) for gradient in gradients):
            found.add(name)
    return found


# loss term -> groups that must receive its gradient; all others must not
SEPARATE = {
    "policy": {"actor_core", "actor"},
    "entropy": {"actor_core", "actor"},
    "critic1": {"critic_core", "critic1"},
    "critic2": {"critic_core", "critic2"},
}
SHARED = {
    "policy": {"shared_core", "actor"},
    "entropy": {"shared_core", "actor"},
    "critic1": {"shared_core", "critic1"},
    "critic2": {"shared_core", "critic2"},
}


def by_name(terms: LossTerms) -> dict[str, Tensor]:
    return {
        "policy": terms.policy,
        "entropy": terms.entropy,
        "critic1": terms.values[0],
        "critic2": terms.values[1],
    }


@catalogue("F52", "X01")
@pytest.mark.parametrize("critic", CRITICS, ids=lambda critic: critic.kind)
@pytest.mark.parametrize("share", [False, True])
def test_each_term_reaches_exactly_its_groups(critic: Any, share: bool) -> None:
    state = acted(small(core=CORE, critic=critic, share_core=share))
    terms = loss_terms(state.policy, whole(state), settings(), NOW)
    table = SHARED if share else SEPARATE
    assert set().union(*table.values()) == set(state.policy.parameter_groups())
    for term, loss in by_name(terms).items():
        assert reached(state, loss) == table[term], term


def test_shared_core_feels_the_critics_through_the_gradient_scale() -> None:
    gradients = []
    for scale in (1.0, 0.5):
        state = acted(small(core=CORE, share_core=True, critic_gradient_scale=scale))
        terms = loss_terms(state.policy, whole(state), settings(), NOW)
        core = state.policy.parameter_groups()["shared_core"]
        gradients.append(torch.autograd.grad(terms.values[0], core))
    for full, half in zip(*gradients, strict=True):
        torch.testing.assert_close(half, full / 2, atol=1e-7, rtol=1e-4)


@catalogue("X01", "F28")
@pytest.mark.parametrize("critic", CRITICS, ids=lambda critic: critic.kind)
@pytest.mark.parametrize("core", [CORE, NoCoreConfig()], ids=lambda core: core.kind)
def test_an_update_moves_every_parameter_and_records_both_critics(critic: Any, core: Any) -> None:
    length = 8 if core.kind == "lstm" else 1
    state = acted(small(core=core, critic=critic), length=length)
    before = {name: value.clone() for name, value in state.policy.named_parameters()}
    optimizer = torch.optim.Adam(state.policy.parameters())
    chunk = length if core.kind == "lstm" else None
    result, _ = update(
        state.policy,
        optimizer,
        state.rollout,
        settings(chunk_length=chunk),
        NOW,
        TrainState(),
        state.generator,
    )
    unmoved = [n for n, value in state.policy.named_parameters() if torch.equal(value, before[n])]
    assert unmoved == []
    for step in result.steps:
        assert all(float(norm) > 0 for norm in step.critic_grad_norms)
        assert len(step.critic_grad_norms) == 2


@catalogue("F49", "F15")
@pytest.mark.parametrize("size", [8, 16, 32, 64, 128])
def test_microbatch_size_does_not_change_the_gradient(size: int) -> None:
    gradients = []
    for microbatch_size in (None, size):
        state = acted(small(core=CORE))
        batch = whole(state)
        weights = torch.rand(batch.weights.shape, generator=torch.Generator().manual_seed(1))
        weights[:, 3:6] = 0.0
        batch = replace(batch, weights=weights)
        optimizer = torch.optim.SGD(state.policy.parameters(), lr=0.0)
        chosen = settings(batch_size=256, microbatch_size=microbatch_size, max_grad_norm=0.0)
        gradient_step(state.policy, optimizer, batch, chosen, NOW)
        gradients.append([p.grad.clone() for p in state.policy.parameters() if p.grad is not None])
    assert len(gradients[0]) == len(gradients[1])
    for one, many in zip(*gradients, strict=True):
        torch.testing.assert_close(many, one, atol=1e-6, rtol=1e-4)


@catalogue("X33", "X34", "F03", "F49")
@pytest.mark.parametrize("poison", ["log_prob_nan", "log_prob_inf", "masked", "observation"])
def test_a_bad_or_masked_microbatch_is_as_if_absent(poison: str) -> None:
    """Chunks 8..15 are spoiled or masked; the step must equal the one without them."""
    results = []
    for spoiled in (False, True):
        state = acted(small(core=CORE))
        chunks = torch.arange(16 if spoiled else 8)
        batch = gather(state.rollout, state.targets, state.rollout.chunk_states, 8, chunks)
        if spoiled:
            batch = _spoil(batch, poison)
        optimizer = torch.optim.Adam(state.policy.parameters(), lr=0.01)
        chosen = settings(batch_size=128, microbatch_size=64)
        step = gradient_step(state.policy, optimizer, batch, chosen, NOW)
        results.append(([p.detach().clone() for p in state.policy.parameters()], step))
    for clean, other in zip(results[0][0], results[1][0], strict=True):
        assert torch.equal(clean, other)
    step = results[1][1]
    assert step.skipped == (0 if poison == "masked" else 1)
    assert (step.first_bad == "") == (poison == "masked")


def _spoil(batch: Minibatch, poison: str) -> Minibatch:
    if poison == "masked":
        weights = batch.weights.clone()
        weights[:, 8:] = 0.0
        return replace(batch, weights=weights)
    if poison == "observation":
        observations = batch.observations.clone()  # type: ignore[union-attr]
        observations[0, 9] = torch.nan
        return replace(batch, observations=observations)
    log_probs = batch.log_probs.clone()
    log_probs[2, 9] = torch.nan if poison == "log_prob_nan" else -torch.inf
    return replace(batch, log_probs=log_probs)


@catalogue("F03")
def test_a_wholly_bad_minibatch_takes_no_step() -> None:
    state = acted(small(core=CORE))
    before = [p.detach().clone() for p in state.policy.parameters()]
    batch = whole(state)
    batch = replace(batch, log_probs=torch.full_like(batch.log_probs, torch.nan))
    optimizer = torch.optim.Adam(state.policy.parameters(), lr=0.01)
    step = gradient_step(state.policy, optimizer, batch, settings(), NOW)
    assert not step.taken
    assert step.skipped == 1
    assert all(torch.equal(a, b) for a, b in zip(before, state.policy.parameters(), strict=True))


@catalogue("X42")
def test_a_row_of_weight_two_counts_as_two_rows() -> None:
    state = acted(small(core=CORE))
    chunks = torch.tensor([0, 1, 1])
    twice = gather(state.rollout, state.targets, state.rollout.chunk_states, 8, chunks)
    once = gather(state.rollout, state.targets, state.rollout.chunk_states, 8, chunks[:2])
    weights = once.weights.clone()
    weights[:, 1] = 2.0
    first = loss_terms(state.policy, twice, settings(), NOW)
    second = loss_terms(state.policy, replace(once, weights=weights), settings(), NOW)
    torch.testing.assert_close(first.total, second.total)


@catalogue("F70")
def test_a_value_query_between_forward_and_backward_changes_nothing() -> None:
    gradients = []
    for ask in (False, True):
        state = acted(small(core=CORE))
        terms = loss_terms(state.policy, whole(state), settings(), NOW)
        if ask:
            with torch.no_grad():
                state.policy.step(
                    state.carry.observation, state.carry.state, state.carry.episode_starts
                )
        gradients.append(
            torch.autograd.grad(terms.total, list(state.policy.parameters()), allow_unused=True)
        )
    for plain, asked in zip(*gradients, strict=True):
        assert plain is not None
        assert torch.equal(plain, asked)


@catalogue("F23", "X04")
@pytest.mark.parametrize("clip", [MeanClip(), MeanAndVarianceClip(), QuantileClip()])
def test_value_clipping_trains_with_episodes_of_any_length(clip: Any) -> None:
    state = acted(small(core=CORE), end_probability=0.4)
    optimizer = torch.optim.Adam(state.policy.parameters(), lr=1e-2)
    chosen = settings(chunk_length=8, value_clip=clip)
    result, _ = update(
        state.policy, optimizer, state.rollout, chosen, NOW, TrainState(), state.generator
    )
    assert all(step.taken for step in result.steps)
    assert all(float(norm) > 0 for norm in result.steps[-1].critic_grad_norms)


@catalogue("F07")
def test_only_the_entropy_bonus_raises_entropy() -> None:
    state = acted(small(core=CORE))
    flat = replace(state.targets, advantages=torch.zeros_like(state.targets.advantages))
    batch = gather(state.rollout, flat, state.rollout.chunk_states, 8, torch.arange(32))
    # Away from the uniform start, where the entropy has no gradient.
    with torch.no_grad():
        state.policy.actor.scores.bias.copy_(torch.tensor([1.0, 0.0, -1.0]))  # type: ignore[union-attr,operator]
    now = Coefficients(learning_rate=0.05, clip_range=0.2, entropy=1.0, value=0.0)
    before = -loss_terms(state.policy, batch, settings(), now).entropy.item()
    optimizer = torch.optim.SGD(state.policy.parameters(), lr=0.05)
    gradient_step(state.policy, optimizer, batch, settings(), now)
    assert -loss_terms(state.policy, batch, settings(), now).entropy.item() > before


@catalogue("F51")
def test_steps_use_the_learning_rate_of_the_cycle() -> None:
    state = acted(small(core=CORE))
    optimizer = torch.optim.SGD(state.policy.parameters(), lr=123.0)
    chosen = settings(chunk_length=8, n_epochs=1, batch_size=256, max_grad_norm=0.0)
    before = [p.detach().clone() for p in state.policy.parameters()]
    update(state.policy, optimizer, state.rollout, chosen, NOW, TrainState(), state.generator)
    for old, parameter in zip(before, state.policy.parameters(), strict=True):
        assert parameter.grad is not None
        expected = old - NOW.learning_rate * parameter.grad
        # The value scale moves the critics' last layers before the step; compare the others.
        if parameter.grad.abs().sum() > 0 and not _is_head(state, parameter):
            torch.testing.assert_close(parameter.detach(), expected, atol=1e-7, rtol=1e-5)


def _is_head(state: Acted, parameter: Tensor) -> bool:
    return any(parameter is p for critic in state.policy.critics for p in critic.head.parameters())  # type: ignore[union-attr]
