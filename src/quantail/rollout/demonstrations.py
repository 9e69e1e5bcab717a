"""Recorded behavior to learn from: observations, the actions taken, and where episodes start."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Generator, Tensor

from quantail.config_class import config
from quantail.errors import DataError
from quantail.flow import ActionDistribution, Observation, PolicyState
from quantail.nets.actor_critic import ActorCritic
from quantail.nets.actors import Categorical, DiagonalGaussian, MultiCategorical, SquashedGaussian
from quantail.rollout.collect import to_tensor
from quantail.rollout.environment import ObservationArray, VectorEnvironment
from quantail.rollout.sequences import chunk_rows, observation_rows, stack_states

# A squashed policy never quite reaches the bounds of its box; atanh of 1 is infinite.
_REACHED: Final = 0.999

Rule = Callable[[ObservationArray], NDArray[Any]]
"""Observations [N, ...] to actions [N, ...] of the environment."""


@config
class Demonstrations:
    """T steps of N recorded streams, in the environment's own terms."""

    observations: Observation
    """[T, N, ...]"""
    actions: Tensor
    """[T, N, ...], as given to the environment."""
    episode_starts: Tensor
    """[T, N] bool."""

    def check(self) -> None:
        """Refuse arrays that do not fit together, and numbers that are not finite."""
        named = {"actions": self.actions, "episode_starts": self.episode_starts}
        named |= {f"observations{name}": part for name, part in _parts(self.observations).items()}
        rows = tuple(self.episode_starts.shape)
        if len(rows) != 2 or not all(rows):
            raise DataError(f"episode_starts must have the shape [T, N], none empty; was {rows}")
        for name, tensor in named.items():
            if tuple(tensor.shape[:2]) != rows:
                raise DataError(
                    f"{name} must start with the axes {rows} of episode_starts; was "
                    f"{tuple(tensor.shape)}"
                )
            if not bool(torch.isfinite(tensor).all()):
                raise DataError(f"{name} of a demonstration must be finite; some numbers are not")
        if not bool(self.episode_starts[0].all()):
            raise DataError(
                "every stream of a demonstration must begin with an episode, or its memory is "
                f"unknown; streams {(~self.episode_starts[0]).nonzero().flatten().tolist()[:5]} "
                "do not. Cut off what comes before the first start"
            )

    def check_spaces(
        self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any]
    ) -> None:
        """Refuse observations and actions that the spaces of an environment do not have.

        Numbers may lie outside the bounds of a box, as a policy's own actions do before they are
        clipped; choices must be choices of their space.

        Raises:
            DataError: Names the first that does not fit.
        """
        whole: Any = observation_space
        known = _parts(dict(whole.spaces) if isinstance(whole, spaces.Dict) else whole)
        given = _parts(self.observations)
        if set(known) != set(given):
            raise DataError(
                f"observations of a demonstration must be {_form(known)}, as the environment's "
                f"are; was {_form(given)}"
            )
        fits = {f"observations{name}": (given[name], known[name]) for name in known}
        for name, (tensor, space) in {**fits, "actions": (self.actions, action_space)}.items():
            if tuple(tensor.shape[2:]) != tuple(space.shape or ()):
                raise DataError(
                    f"{name} of a demonstration must have the shape {tuple(space.shape or ())} of "
                    f"their space after the axes T and N; was {tuple(tensor.shape[2:])}"
                )
            _check_choices(name, tensor, space)

    @classmethod
    def from_arrays(
        cls,
        observations: ObservationArray,
        actions: NDArray[Any],
        episode_starts: NDArray[np.bool_],
    ) -> Self:
        """Take one stream, [T, ...] each, or several, [T, N, ...]."""
        starts = torch.as_tensor(np.asarray(episode_starts, np.bool_))
        seen, done = to_tensor(observations), torch.tensor(np.asarray(actions))
        if starts.ndim == 1:
            starts, done = starts.unsqueeze(1), done.unsqueeze(1)
            is_dict = isinstance(seen, dict)
            seen = {k: v.unsqueeze(1) for k, v in seen.items()} if is_dict else seen.unsqueeze(1)  # type: ignore[union-attr]
        return cls(observations=seen, actions=done, episode_starts=starts)

    @classmethod
    def from_policy(cls, rule: Rule, env: VectorEnvironment, n_steps: int) -> Self:
        """Record ``n_steps`` steps of all environments, acting by a rule of your own."""
        observation, _ = env.reset()
        start = np.ones(env.n_envs, np.bool_)
        seen, done, starts = [], [], []
        for _ in range(n_steps):
            action = np.asarray(rule(observation))
            seen.append(to_tensor(observation))
            done.append(torch.tensor(action))
            starts.append(torch.tensor(start))
            step = env.step(action)
            observation, start = step.observations, step.terminated | step.truncated
        first = seen[0]
        observations: Observation = (
            {key: torch.stack([row[key] for row in seen]) for key in first}  # type: ignore[index]
            if isinstance(first, dict)
            else torch.stack(seen)  # type: ignore[arg-type]
        )
        return cls(
            observations=observations,
            actions=torch.stack(done),
            episode_starts=torch.stack(starts),
        )


@dataclass(frozen=True, slots=True)
class DemonstrationRows:
    """Chunks [L, M, ...] of demonstrations, with the state before their first row."""

    observations: Observation
    actions: Tensor
    episode_starts: Tensor
    state: PolicyState


@torch.no_grad()
def replayed_states(policy: ActorCritic, demos: Demonstrations, length: int) -> PolicyState:
    """Return the state before each whole chunk, as the current weights remember it.

    Rows after the last whole chunk are left out.
    """
    state = policy.initial_state(demos.episode_starts.shape[1])
    states = []
    for first in range(0, len(demos.episode_starts) - length + 1, length):
        states.append(state)
        rows = slice(first, first + length)
        observations = observation_rows(demos.observations, rows)
        state = policy(observations, state, demos.episode_starts[rows]).state
    if not states:
        raise DataError(
            f"a demonstration needs at least chunk_length ({length}) steps in each stream; has "
            f"{len(demos.episode_starts)}"
        )
    return stack_states(states)


def draw_chunks(
    demos: Demonstrations,
    states: PolicyState,
    length: int,
    batch_size: int,
    generator: Generator,
) -> DemonstrationRows:
    """Draw whole chunks at random, with replacement: at least ``batch_size`` rows."""
    n_envs = demos.episode_starts.shape[1]
    n_chunks = len(demos.episode_starts) // length * n_envs
    wanted = math.ceil(batch_size / length)
    chunks = torch.randint(n_chunks, (wanted,), generator=generator)
    rows = chunk_rows(chunks, length, n_envs)
    first, env = chunks // n_envs, chunks % n_envs
    state = PolicyState(
        *(tuple(part[first, :, env].transpose(0, 1) for part in core) for core in states)
    )
    return DemonstrationRows(
        observation_rows(demos.observations, rows),
        demos.actions[rows],
        demos.episode_starts[rows],
        state,
    )


def _parts(whole: Any) -> dict[str, Any]:
    """Return the parts of something that may be a dictionary, by how a message names them."""
    if not isinstance(whole, dict):
        return {"": whole}
    return {f"[{key!r}]": part for key, part in whole.items()}


def _form(parts: dict[str, Any]) -> str:
    names = ", ".join(name.strip("[]") for name in sorted(parts))
    return f"a dictionary with the keys {names}" if names else "one array"


def _check_choices(name: str, tensor: Tensor, space: spaces.Space[Any]) -> None:
    limits = _choices(space)
    if limits is None:
        return
    # In doubles: unsigned numbers know no -1, and truth values cannot be rounded.
    values = tensor.double()
    low, high = (torch.as_tensor(limit, dtype=torch.float64) for limit in limits)
    bad = (values < low) | (values > high) | (values != values.round())
    if bool(bad.any()):
        raise DataError(
            f"{name} of a demonstration must be choices of {space}; {int(bad.sum())} are not, the "
            f"first is {values[bad][0].item():g}"
        )


def _choices(space: spaces.Space[Any]) -> tuple[Any, Any] | None:
    """Return the least and the greatest choice of a space of choices, else None."""
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    return (0, 1) if isinstance(space, spaces.MultiBinary) else None


def raw_action(law: ActionDistribution, actions: Tensor) -> Tensor:
    """Return the raw actions behind actions of the environment, rows [...] as those of ``law``.

    Squashed policies get actions held within 0.999 of the way to the bounds.
    """
    if isinstance(law, DiagonalGaussian):
        flat = actions.reshape(law.location.shape).to(law.location.dtype)
        if not isinstance(law, SquashedGaussian):
            return flat
        low, high = law.bounds.low, law.bounds.high
        inside = (2 * (flat - low) / (high - low) - 1).clamp(-_REACHED, _REACHED)
        return inside.atanh()
    if isinstance(law, MultiCategorical):
        return actions.reshape(law.log_probs.shape[:-1]).long() - law.starts
    assert isinstance(law, Categorical)
    return actions.reshape(law.log_probs.shape[:-1]).long() - law.start
