"""Acting: what a rollout holds, and where each number comes from."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from quantail.errors import DataError
from quantail.flow import PolicyState
from quantail.nets.cores import LstmConfig
from quantail.rollout.collect import StoppedError, collect, start
from quantail.rollout.environment import EnvStep
from quantail.rollout.sequences import select_environments
from quantail.targets.twin import twin_mean
from tests.catalogue import catalogue
from tests.learner.agents import acted, small
from tests.rollout.noisy_env import NoisyEnv

CORE = LstmConfig(hidden_size=8)


@catalogue("F19", "X09", "X06")
def test_truncation_is_valued_by_one_step_from_the_state_after_the_row() -> None:
    """Unrolled by hand: one step over the row, one more over its final observation."""
    state = acted(small(core=CORE), n_envs=4, length=1)
    policy, env, carry = state.policy, state.env, state.carry
    finals: list[NDArray[np.float32]] = []

    class Spy(NoisyEnv):
        def step(self, actions: NDArray[np.int64]) -> EnvStep:
            result = env.step(actions)
            if result.final_observations is not None:
                finals.append(result.final_observations)  # type: ignore[arg-type]
            return result

    rollout, _ = collect(policy, Spy(4), carry, 32, 1, state.generator)
    rows = rollout.truncated.nonzero().tolist()
    assert len(rows) > 5
    final = torch.as_tensor(np.concatenate(finals))
    for number, (t, n) in enumerate(rows):
        env_index = torch.tensor([n])
        before = PolicyState(
            *(tuple(part[t][:, env_index] for part in core) for core in rollout.chunk_states)
        )
        with torch.no_grad():
            after = policy.step(
                rollout.observations[t, env_index], before, rollout.episode_starts[t, env_index]
            ).state
            expected = policy.step(final[number : number + 1], after, torch.tensor([False]))
        for stored, law in zip(rollout.truncated_values, expected.values, strict=True):
            torch.testing.assert_close(stored.mean()[number], law.mean()[0], atol=1e-6, rtol=1e-5)


@catalogue("F20")
def test_values_bootstraps_and_last_values_use_the_smaller_critic() -> None:
    state = acted(small(core=CORE))
    with torch.no_grad():
        for critic, level in zip(state.policy.critics, (1.0, -1.0), strict=True):
            critic.head.linear.weight.zero_()  # type: ignore[union-attr,operator]
            critic.head.linear.bias[0] = level  # type: ignore[union-attr,operator,index]
    rollout, _ = collect(state.policy, state.env, state.carry, 32, 8, state.generator)
    for values in (rollout.values, rollout.last_values, rollout.truncated_values):
        assert len(values) == 2
        assert [float(value.mean().mean()) for value in values] == pytest.approx([1.0, -1.0])
        smaller = twin_mean(values, "min")
        torch.testing.assert_close(smaller, torch.full_like(smaller, -1.0))
        assert float(twin_mean(values, "mean").abs().max()) < 1e-6


@catalogue("F45", "F41")
def test_an_ended_episode_resets_its_own_environment_alone() -> None:
    state = acted(small(core=LstmConfig(hidden_size=8, layers=2)), n_envs=3)
    observation = torch.randn(3, 3)
    ended = torch.tensor([False, True, False])
    with torch.no_grad():
        mixed = state.policy.step(observation, state.carry.state, ended)
        plain = state.policy.step(observation, state.carry.state, torch.zeros(3, dtype=torch.bool))
        fresh = state.policy.step(
            observation, state.policy.initial_state(3), torch.ones(3, dtype=torch.bool)
        )
    for got, kept, new in zip(mixed.state, plain.state, fresh.state, strict=True):
        for part, part_kept, part_new in zip(got, kept, new, strict=True):
            torch.testing.assert_close(part[:, [0, 2]], part_kept[:, [0, 2]])
            torch.testing.assert_close(part[:, 1], part_new[:, 1])
            assert float((part_kept[:, 1] - part_new[:, 1]).abs().max()) > 1e-3


@catalogue("F45", "F41")
def test_acting_begins_every_episode_with_an_empty_memory() -> None:
    """Rows after an end say what a fresh memory says of them, and no others do."""
    state = acted(small(core=LstmConfig(hidden_size=8)))
    rollout = state.rollout
    ended = rollout.terminated | rollout.truncated
    assert torch.equal(rollout.episode_starts[1:], ended[:-1])
    assert 10 < int(ended.sum()) < ended.numel() // 2
    rows = state.policy(
        rollout.observations.flatten(0, 1).unsqueeze(0),  # type: ignore[union-attr]
        state.policy.initial_state(ended.numel()),
        torch.ones(1, ended.numel(), dtype=torch.bool),
    )
    fresh = rows.values[0].mean().reshape(ended.shape)
    near = (rollout.values[0].mean() - fresh).abs() < 1e-5
    assert torch.equal(near, rollout.episode_starts)


def test_permuting_environments_permutes_the_results() -> None:
    state = acted(small(core=CORE), n_envs=4)
    order = torch.tensor([2, 0, 3, 1])
    with torch.no_grad():
        plain = state.policy.step(
            state.carry.observation, state.carry.state, state.carry.episode_starts
        )
        mixed = state.policy.step(
            state.carry.observation[order],  # type: ignore[index]
            select_environments(state.carry.state, order),
            state.carry.episode_starts[order],
        )
    torch.testing.assert_close(mixed.values[0].mean(), plain.values[0].mean()[order])
    torch.testing.assert_close(mixed.actions.entropy(), plain.actions.entropy()[order])


def test_episode_sums_span_rollouts() -> None:
    state = acted(n_envs=2, end_probability=0.05)
    returns: list[float] = []
    lengths: list[int] = []
    running, counts = state.carry.returns.tolist(), state.carry.lengths.tolist()
    fresh = state.carry.episode_starts.tolist()
    carry = state.carry
    expected: list[tuple[float, int]] = []
    for _ in range(4):
        rollout, carry = collect(state.policy, state.env, carry, 16, 8, state.generator)
        returns += rollout.episodes.returns
        lengths += rollout.episodes.lengths
        for t in range(16):
            for n in range(2):
                running[n] = (0.0 if fresh[n] else running[n]) + float(rollout.rewards[t, n])
                counts[n] = (0 if fresh[n] else counts[n]) + 1
                fresh[n] = bool(rollout.terminated[t, n] | rollout.truncated[t, n])
                if fresh[n]:
                    expected.append((running[n], counts[n]))
    assert len(expected) >= 3
    assert list(zip(returns, lengths, strict=True)) == expected


def test_truncation_without_final_observation_is_refused() -> None:
    class Forgetful(NoisyEnv):
        def step(self, actions: NDArray[np.int64]) -> EnvStep:
            return replace(super().step(actions), final_observations=None)

    state = acted(n_envs=4)
    env = Forgetful(4, end_probability=1.0)
    carry = start(state.policy, *env.reset(), 4)
    with pytest.raises(DataError, match=r"truncated step\(s\) came without a final observation"):
        collect(state.policy, env, carry, 8, 8, state.generator)


def test_stopping_keeps_where_acting_stands() -> None:
    state = acted(n_envs=4)
    with pytest.raises(StoppedError) as stopped:
        collect(
            state.policy,
            state.env,
            state.carry,
            8,
            8,
            state.generator,
            on_step=lambda step, *_: step < 2,
        )
    torch.testing.assert_close(
        stopped.value.carry.observation, torch.as_tensor(state.env.observation)
    )


def test_same_seed_same_rollout_to_the_bit() -> None:
    first, second = acted(seed=3).rollout, acted(seed=3).rollout
    assert torch.equal(first.rewards, second.rewards)
    assert torch.equal(first.log_probs, second.log_probs)
    assert torch.equal(first.values[0].atoms()[0], second.values[0].atoms()[0])
