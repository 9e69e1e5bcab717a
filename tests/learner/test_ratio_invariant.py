"""Before the first step of a cycle the policy is the one that acted: every ratio is 1."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quantail.gradient import loss_terms
from quantail.nets.cores import GruConfig, LruConfig, LstmConfig, NoCoreConfig
from quantail.nets.critics import CategoricalCritic, QuantileCritic, ScalarCritic
from quantail.rollout.sequences import minibatches
from tests.catalogue import catalogue
from tests.learner.agents import NOW, SPACES, acted, small
from tests.learner.agents import settings as learner_settings

CORES = {
    "lstm": LstmConfig(hidden_size=8),
    "lstm2": LstmConfig(hidden_size=8, layers=2),
    "gru": GruConfig(hidden_size=8),
    "lru": LruConfig(hidden_size=8),
    "none": NoCoreConfig(),
}
CRITICS: dict[str, Any] = {
    "quantile": QuantileCritic(n_quantiles=8),
    "categorical": CategoricalCritic(n_atoms=11),
    "scalar": ScalarCritic(),
}


def largest_log_ratio(core: str, critic: str, space: str, **given: Any) -> float:
    length = 1 if core == "none" else given.pop("length", 8)
    config = small(core=CORES[core], critic=CRITICS[critic])
    state = acted(config, space, length=length, **given)
    largest = 0.0
    for batch in minibatches(
        state.rollout, state.targets, state.rollout.chunk_states, length, 64, state.generator
    ):
        terms = loss_terms(state.policy, batch, learner_settings(), NOW)
        largest = max(largest, float(terms.ratio.log_ratio_max_abs))
        assert abs(float(terms.ratio.ratio_mean) - 1) < 1e-5
        assert float(terms.ratio.approx_kl) < 1e-6
    return largest


@catalogue("X08")
@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("critic", CRITICS)
def test_every_core_and_critic(core: str, critic: str) -> None:
    assert largest_log_ratio(core, critic, "discrete") < 1e-5


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("core", ["lstm", "none"])
def test_every_action_space(core: str, space: str) -> None:
    assert largest_log_ratio(core, "quantile", space) < 1e-5


@pytest.mark.parametrize("core", ["lstm", "none"])
def test_with_action_masks(core: str) -> None:
    assert largest_log_ratio(core, "quantile", "discrete", masked=True) < 1e-5


@settings(max_examples=25)
@given(
    core=st.sampled_from(["lstm", "gru", "lru"]),
    space=st.sampled_from(["discrete", "box", "squashed"]),
    length=st.sampled_from([1, 2, 4, 8, 16, 32]),
    end_probability=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    seed=st.integers(0, 1000),
)
def test_episodes_ending_anywhere_in_chunks(
    core: str, space: str, length: int, end_probability: float, seed: int
) -> None:
    found = largest_log_ratio(
        core, "scalar", space, length=length, end_probability=end_probability, seed=seed
    )
    assert found < 1e-5


def test_states_after_the_row_instead_of_before_it_are_noticed() -> None:
    """The control: what the invariant looks like when a chunk starts from the wrong state."""
    state = acted(small(core=LstmConfig(hidden_size=8)), length=8)
    shifted = type(state.rollout.chunk_states)(
        *(tuple(part.roll(1, 0) for part in core) for core in state.rollout.chunk_states)
    )
    largest = 0.0
    for batch in minibatches(state.rollout, state.targets, shifted, 8, 64, state.generator):
        terms = loss_terms(state.policy, batch, learner_settings(), NOW)
        largest = max(largest, float(terms.ratio.log_ratio_max_abs))
    assert largest > 1e-5


@catalogue("X07", "X10")
def test_stored_values_are_those_of_one_pass_over_the_sequence() -> None:
    state = acted(small(core=LstmConfig(hidden_size=8)), length=32)
    rollout = state.rollout
    first = type(rollout.chunk_states)(
        *(tuple(part[0] for part in core) for core in rollout.chunk_states)
    )
    with torch.no_grad():
        output = state.policy(rollout.observations, first, rollout.episode_starts)
    for stored, again in zip(rollout.values, output.values, strict=True):
        torch.testing.assert_close(stored.mean(), again.mean(), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(stored.atoms()[0], again.atoms()[0], atol=1e-5, rtol=1e-5)
