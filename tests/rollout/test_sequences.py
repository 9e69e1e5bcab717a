"""Chunks cover a rollout exactly, with the state that belongs to them."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quantail.errors import ConfigError
from quantail.nets.cores import LstmConfig
from quantail.rollout.sequences import chunk_length, chunk_rows, microbatches, minibatches
from quantail.rollout.states import refreshed_states, warmed_states
from tests.catalogue import catalogue
from tests.learner.agents import acted, small


@given(
    st.integers(1, 6), st.sampled_from([1, 2, 3, 4, 6, 12]), st.integers(1, 5), st.integers(0, 99)
)
def test_chunks_hold_every_row_once(n_envs: int, length: int, per_batch: int, seed: int) -> None:
    n_steps = 12
    generator = torch.Generator().manual_seed(seed)
    seen = torch.zeros(n_steps, n_envs, dtype=torch.int64)
    for chunks in torch.split(
        torch.randperm(n_steps // length * n_envs, generator=generator), per_batch
    ):
        time, env = chunk_rows(chunks, length, n_envs)
        assert time.shape == (length, len(chunks))
        assert bool((time[1:] == time[:-1] + 1).all())
        assert bool((time[0] % length == 0).all())
        seen.index_put_((time, env), torch.ones_like(time), accumulate=True)
    assert bool((seen == 1).all())


@catalogue("X04")
def test_minibatches_are_exact_without_padding_whatever_the_episodes() -> None:
    state = acted(end_probability=0.5, length=8)
    sizes = [
        batch.weights.numel()
        for batch in minibatches(
            state.rollout, state.targets, state.rollout.chunk_states, 8, 64, state.generator
        )
    ]
    assert sizes == [64] * 4


def test_rows_and_states_of_a_minibatch_belong_together() -> None:
    state = acted(small(core=LstmConfig(hidden_size=8)), length=4)
    rollout = state.rollout
    for batch in minibatches(rollout, state.targets, rollout.chunk_states, 4, 16, state.generator):
        for column in range(4):
            matches = (rollout.log_probs.unfold(0, 4, 4) == batch.log_probs[:, column]).all(-1)
            chunk, env = matches.nonzero()[0].tolist()
            rows = slice(4 * chunk, 4 * chunk + 4)
            torch.testing.assert_close(
                batch.observations[:, column], rollout.observations[rows, env]
            )
            torch.testing.assert_close(
                batch.advantages[:, column], state.targets.advantages[rows, env]
            )
            torch.testing.assert_close(
                batch.state.actor[0][:, column], rollout.chunk_states.actor[0][chunk, :, env]
            )


@pytest.mark.parametrize(
    ("size", "parts"), [(None, [16]), (32, [8, 8]), (8, [2] * 8), (1, [1] * 16)]
)
def test_microbatches_are_whole_chunks(size: int | None, parts: list[int]) -> None:
    state = acted(length=4)
    batch = next(
        minibatches(
            state.rollout, state.targets, state.rollout.chunk_states, 4, 64, state.generator
        )
    )
    cut = list(microbatches(batch, size))
    assert [part.weights.shape[1] for part in cut] == parts
    torch.testing.assert_close(torch.cat([part.actions for part in cut], 1), batch.actions)
    torch.testing.assert_close(
        torch.cat([part.state.critic[1] for part in cut], 1), batch.state.critic[1]
    )


@pytest.mark.parametrize(
    ("n_steps", "batch_size", "wanted", "memory", "length"),
    [
        (2048, 64, None, True, 16),
        (128, 2048, None, True, 64),
        (52, 52 * 32, None, True, 52),
        (128, 2048, 128, True, 128),
        (32, 64, 8, True, 8),
        (7, 3, None, True, 1),
        (64, 64, None, False, 1),
    ],
)
def test_default_chunk_length(
    n_steps: int, batch_size: int, wanted: int | None, memory: bool, length: int
) -> None:
    assert chunk_length(n_steps, batch_size, wanted, memory) == length


def test_impossible_chunk_lengths_are_refused() -> None:
    with pytest.raises(
        ConfigError,
        match=r"n_steps \(32\) and batch_size \(64\); was 5. Possible: 1, 2, 4",
    ):
        chunk_length(32, 64, 5, has_memory=True)
    with pytest.raises(ConfigError, match="no effect without a recurrent core; was 8"):
        chunk_length(32, 64, 8, has_memory=False)


@pytest.mark.parametrize("burn_in", [1, 8, 13, 100])
def test_replayed_states_are_the_stored_ones_while_weights_are_unchanged(burn_in: int) -> None:
    state = acted(small(core=LstmConfig(hidden_size=8)), length=8)
    stored = state.rollout.chunk_states
    for replayed in (
        refreshed_states(state.policy, state.rollout, 8),
        warmed_states(state.policy, state.rollout, 8, burn_in),
    ):
        for ours, theirs in zip(
            (*replayed.actor, *replayed.critic), (*stored.actor, *stored.critic), strict=True
        ):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def test_replayed_states_follow_changed_weights() -> None:
    state = acted(small(core=LstmConfig(hidden_size=8)), length=8, end_probability=0.0)
    with torch.no_grad():
        for parameter in state.policy.parameters():
            parameter.mul_(1.5)
    stored = state.rollout.chunk_states.actor[0]
    fresh = refreshed_states(state.policy, state.rollout, 8).actor[0]
    warm = warmed_states(state.policy, state.rollout, 8, 24).actor[0]
    assert torch.equal(fresh[0], stored[0])
    assert float((fresh[1:] - stored[1:]).abs().max()) > 0.01
    # The last chunk's 24 rows of burn-in reach back to the rollout's start: the same replay.
    torch.testing.assert_close(warm[3], fresh[3], atol=1e-6, rtol=1e-5)
