"""The recurrent state before each chunk: as acted, refreshed, or warmed up."""

import torch
from torch import Tensor

from quantail.flow import CoreState, Observation, PolicyState, Rollout, ValueDistribution
from quantail.nets.actor_critic import ActorCritic
from quantail.rollout.sequences import observation_rows, stack_states

_ROWS_AT_ONCE = 4096


@torch.no_grad()
def refreshed_states(policy: ActorCritic, rollout: Rollout, length: int) -> PolicyState:
    """Replay the rollout with the current weights; return the state before each chunk.

    Stored states come from the weights that acted; after some epochs they drift from what the
    current weights would have remembered. The replay starts from the stored state of the first
    chunk.
    """
    state = _at(rollout.chunk_states, 0)
    states = [state]
    for first in range(0, rollout.rewards.shape[0] - length, length):
        state = _replay(policy, rollout, slice(first, first + length), state)
        states.append(state)
    return stack_states(states)


@torch.no_grad()
def warmed_states(policy: ActorCritic, rollout: Rollout, length: int, burn_in: int) -> PolicyState:
    """Replay the ``burn_in`` rows before each chunk with the current weights.

    The replay of chunk c starts from the stored state of the chunk in which its first row lies, so
    it covers at least ``burn_in`` rows. The first chunk keeps its stored state.
    """
    stored = rollout.chunk_states
    states = [_at(stored, 0)]
    for chunk in range(1, rollout.rewards.shape[0] // length):
        origin = max(0, chunk * length - burn_in) // length
        rows = slice(origin * length, chunk * length)
        states.append(_replay(policy, rollout, rows, _at(stored, origin)))
    return stack_states(states)


def chunk_states(
    policy: ActorCritic, rollout: Rollout, length: int, refresh: bool, burn_in: int
) -> PolicyState:
    """Return the state before each chunk, axis 0 counting chunks."""
    if policy.config.core.kind == "none":
        return rollout.chunk_states
    if refresh:
        return refreshed_states(policy, rollout, length)
    if burn_in:
        return warmed_states(policy, rollout, length, burn_in)
    return rollout.chunk_states


@torch.no_grad()
def replayed_values(policy: ActorCritic, rollout: Rollout) -> tuple[ValueDistribution, ...]:
    """Replay the rollout with the current weights; return what each critic says, rows [T, N].

    Rows are read in parts, so that memory stays bounded.
    """
    n_steps, n_envs = rollout.rewards.shape
    size = max(1, _ROWS_AT_ONCE // n_envs)
    state, found = _at(rollout.chunk_states, 0), []
    for first in range(0, n_steps, size):
        rows = slice(first, min(first + size, n_steps))
        observations, seen = _inputs(rollout, rows)
        values, state = policy.values(observations, state, rollout.episode_starts[rows], seen)
        found.append(values)
    return tuple(type(laws[0]).join(laws) for laws in zip(*found, strict=True))


def _replay(policy: ActorCritic, rollout: Rollout, rows: slice, state: PolicyState) -> PolicyState:
    masks: Tensor | None = None if rollout.action_masks is None else rollout.action_masks[rows]
    observations, seen = _inputs(rollout, rows)
    return policy.forward(observations, state, rollout.episode_starts[rows], masks, seen).state


def _inputs(rollout: Rollout, rows: slice) -> tuple[Observation, Tensor | None]:
    """Return observations and budgets as the policy saw them."""
    seen = None if rollout.budget is None else rollout.budget.inputs[rows]
    return observation_rows(rollout.observations, rows), seen


def _at(states: PolicyState, chunk: int) -> PolicyState:
    def one(core: CoreState) -> CoreState:
        return tuple(part[chunk] for part in core)

    return PolicyState(one(states.actor), one(states.critic))
