"""Cuts a rollout into minibatches of whole chunks: no padding, exact sizes.

A chunk is L consecutive rows of one environment with the recurrent state before its first row.
Episodes may end and start inside; the core resets there. Chunks are numbered c N + n for chunk c
of environment n.
"""

from collections.abc import Iterator

import torch
from torch import Generator, Tensor

from quantail.errors import ConfigError
from quantail.flow import (
    CoreState,
    Minibatch,
    Observation,
    PolicyState,
    Rollout,
    RowIndex,
    Targets,
)

MAX_DEFAULT_LENGTH = 64
"""Rows of a chunk that are taken without being asked for."""


def chunk_length(n_steps: int, batch_size: int, wanted: int | None, has_memory: bool) -> int:
    """Return L, the rows of a chunk.

    Without memory order does not matter and L = 1. Otherwise L must divide both the rollout's
    length and the minibatch; by default it is the longest such length up to 64 that leaves at
    least 4 chunks in a minibatch, or the longest at all where none does. Gradients reach back to
    the start of a chunk; what the state remembers from before is not cut. Longer chunks teach
    longer memories, shorter ones are quicker: of the same minibatch they make fewer and larger
    products (64 instead of 128 rows saves a tenth of an LSTM's time, 32 one part in twelve more).

    Raises:
        ConfigError: ``wanted`` divides not both, or asks for chunks without memory.
    """
    if not has_memory:
        if wanted is not None:
            raise ConfigError(
                f"chunk_length has no effect without a recurrent core; was {wanted}. Leave it out"
            )
        return 1
    common = [n for n in range(1, n_steps + 1) if n_steps % n == 0 and batch_size % n == 0]
    if wanted is not None:
        if wanted not in common:
            raise ConfigError(
                f"chunk_length must divide n_steps ({n_steps}) and batch_size ({batch_size}); "
                f"was {wanted}. Possible: {', '.join(map(str, common))}"
            )
        return wanted
    return max([n for n in common if n <= MAX_DEFAULT_LENGTH and batch_size // n >= 4] or common)


def minibatches(
    rollout: Rollout,
    targets: Targets,
    states: PolicyState,
    length: int,
    batch_size: int,
    generator: Generator,
) -> Iterator[Minibatch]:
    """Yield minibatches that cover every chunk once, in random order.

    Args:
        rollout: Rows [T, N]; ``length`` divides T.
        targets: Of the same rows.
        states: State before each chunk, axis 0 counts the C chunks of a rollout, then as a core
            state: ``rollout.chunk_states`` or a refreshed version of it.
        length: L.
        batch_size: Rows of a minibatch, a multiple of L; the last minibatch is smaller when it does
            not divide T N.
        generator: Draws the order.
    """
    n_steps, n_envs = rollout.rewards.shape
    order = torch.randperm(n_steps // length * n_envs, generator=generator)
    for chunks in torch.split(order, batch_size // length):
        yield gather(rollout, targets, states, length, chunks)


def gather(
    rollout: Rollout, targets: Targets, states: PolicyState, length: int, chunks: Tensor
) -> Minibatch:
    """Return the minibatch of the given chunks, [L, M, ...] for M chunks."""
    n_envs = rollout.rewards.shape[1]
    rows = chunk_rows(chunks, length, n_envs)
    first, env = chunks // n_envs, chunks % n_envs
    return Minibatch(
        observations=observation_rows(rollout.observations, rows),
        actions=rollout.actions[rows],
        policy=rollout.policy.rows(rows),
        log_probs=rollout.log_probs[rows],
        values=tuple(value.rows(rows) for value in rollout.values),
        episode_starts=rollout.episode_starts[rows],
        weights=rollout.weights[rows],
        action_masks=None if rollout.action_masks is None else rollout.action_masks[rows],
        state=PolicyState(*(_chunk_state(state, first, env) for state in states)),
        advantages=targets.advantages[rows],
        atoms=targets.atoms[rows],
        atom_weights=targets.atom_weights,
        budget_inputs=None if rollout.budget is None else rollout.budget.inputs[rows],
        cost_returns=None if targets.cost is None else targets.cost.returns[rows],
    )


def microbatches(batch: Minibatch, size: int | None) -> Iterator[Minibatch]:
    """Yield parts of a minibatch with at most ``size`` rows each; whole chunks, at least one."""
    length, n_chunks = batch.weights.shape
    per_part = n_chunks if size is None else max(1, size // length)
    for first in range(0, n_chunks, per_part):
        part = slice(first, first + per_part)
        rows = (slice(None), part)
        yield Minibatch(
            observations=observation_rows(batch.observations, rows),
            actions=batch.actions[rows],
            policy=batch.policy.rows(rows),
            log_probs=batch.log_probs[rows],
            values=tuple(value.rows(rows) for value in batch.values),
            episode_starts=batch.episode_starts[rows],
            weights=batch.weights[rows],
            action_masks=None if batch.action_masks is None else batch.action_masks[rows],
            state=PolicyState(*(tuple(s[:, part] for s in core) for core in batch.state)),
            advantages=batch.advantages[rows],
            atoms=batch.atoms[rows],
            atom_weights=batch.atom_weights,
            budget_inputs=None if batch.budget_inputs is None else batch.budget_inputs[rows],
            cost_returns=None if batch.cost_returns is None else batch.cost_returns[rows],
        )


def chunk_rows(chunks: Tensor, length: int, n_envs: int) -> tuple[Tensor, Tensor]:
    """Return the (time, environment) index of every row of the chunks, each [L, M]."""
    time = (chunks // n_envs) * length + torch.arange(length).unsqueeze(1)
    return time, (chunks % n_envs).expand(length, -1)


def observation_rows(observations: Observation, rows: RowIndex) -> Observation:
    """Index the leading axes of an observation."""
    if isinstance(observations, dict):
        return {key: value[rows] for key, value in observations.items()}
    return observations[rows]


def _chunk_state(state: CoreState, first: Tensor, env: Tensor) -> CoreState:
    # [C, layers, N, H] -> [layers, M, H]
    return tuple(part[first, :, env].transpose(0, 1) for part in state)


def stack_states(states: list[PolicyState]) -> PolicyState:
    """Stack states along a new first axis."""
    actor = tuple(torch.stack(parts) for parts in zip(*(s.actor for s in states), strict=True))
    critic = tuple(torch.stack(parts) for parts in zip(*(s.critic for s in states), strict=True))
    return PolicyState(actor, critic)


def select_environments(state: PolicyState, envs: Tensor) -> PolicyState:
    """Return the state of some environments, in the given order."""
    return PolicyState(*(tuple(part[:, envs] for part in core) for core in state))
