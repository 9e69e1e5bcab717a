"""Numbers that are not finite while acting: what stands in for them, and which rows are left out.

Something must stand in, or a bad number would spread through the recurrent state and the
statistics: the last observation for a bad one, the law's mode for a bad action, 0 for a bad reward.
The row itself is left out of learning. So is the row before a bad observation, as what followed it
is unknown. Rows before those learn from the critic's value of the first row left out, as if the
episode had been cut there, so nothing that stands in for a number reaches them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from quantail.flow import (
    ActionDistribution,
    CostRows,
    Faults,
    Observation,
    Place,
    Rollout,
    ValueDistribution,
)
from quantail.rollout.environment import EnvStep, ObservationArray


class StepFaults(NamedTuple):
    """Which environments gave or got something bad in one step; [N] bool each."""

    observation: Tensor
    """The one after the step."""
    final: Tensor
    """The last one of an episode that was cut."""
    reward: Tensor
    action: Tensor


def finite_observation(new: Observation, old: Observation | None) -> tuple[Observation, Tensor]:
    """Return the observation with ``old`` numbers, or 0, in place of bad ones, and who had any.

    Args:
        new: [N, ...]
        old: Of the same environments one step before; None at the start.

    Returns:
        [N, ...], and [N] bool.
    """
    if isinstance(new, dict):
        parts = {k: _held(v, None if old is None else old[k]) for k, v in new.items()}  # type: ignore[index]
        bad = torch.stack([part[1] for part in parts.values()]).any(0)
        return {key: part[0] for key, part in parts.items()}, bad
    return _held(new, old)  # type: ignore[arg-type]


def finite_actions(raw: Tensor, law: ActionDistribution) -> tuple[Tensor, Tensor]:
    """Return raw actions with the law's mode, or 0, in place of bad rows, and which were bad."""
    bad = _bad_rows(raw)
    if not bool(bad.any()):
        return raw, bad
    mode = torch.nan_to_num(law.mode(), 0.0, 0.0, 0.0)
    return torch.where(_spread(bad, raw), mode, raw), bad


def finite_step(
    step: EnvStep, before: Observation, bad_action: Tensor
) -> tuple[EnvStep, StepFaults | None]:
    """Return the step with finite numbers, and what was bad; None when nothing was.

    ``raw_rewards`` keep what is bad, so that the return of such an episode is known to be unknown.
    """
    final = step.final_observations
    fine = _all_finite(step.observations) and bool(np.isfinite(step.rewards).all())
    if fine and (final is None or _all_finite(final)) and not bool(bad_action.any()):
        return step, None
    observations, bad = finite_observation(_tensors(step.observations), before)
    ends = torch.zeros(len(bad), dtype=torch.bool)
    if final is not None:
        cut = torch.as_tensor(np.flatnonzero(step.truncated))
        last = {k: v[cut] for k, v in before.items()} if isinstance(before, dict) else before[cut]
        held, ends[cut] = finite_observation(_tensors(final), last)
        final = _arrays(held)
    bad_reward = ~np.isfinite(step.rewards)
    clean = replace(
        step,
        observations=_arrays(observations),
        rewards=np.where(bad_reward, np.float32(0), step.rewards),
        final_observations=final,
        raw_rewards=step.rewards if step.raw_rewards is None else step.raw_rewards,
    )
    return clean, StepFaults(bad, ends, torch.as_tensor(bad_reward), bad_action)


def without_faults(
    rollout: Rollout, first: Tensor | None, steps: Sequence[StepFaults | None]
) -> Rollout:
    """Leave bad rows out of a rollout.

    Args:
        rollout: With finite numbers throughout.
        first: [N] bool: whether the observation of the first row is bad; None when none is.
        steps: What was bad in each of the T steps.

    Returns:
        The rollout itself when nothing was bad.
    """
    if first is None and not any(steps):
        return rollout
    n_steps, n_envs = rollout.rewards.shape
    none = torch.zeros(n_envs, dtype=torch.bool)
    fine = StepFaults(none, none, none, none)
    marks = StepFaults(*map(torch.stack, zip(*(step or fine for step in steps), strict=True)))
    seen = torch.cat([(none if first is None else first)[None], marks.observation])
    ended = rollout.terminated | rollout.truncated
    bad_seen = seen[:-1] | marks.final
    rows = bad_seen | marks.reward | marks.action
    out = rows | (seen[1:] & ~ended)
    cut = torch.zeros_like(out)
    cut[:-1] = out[1:] & ~out[:-1] & ~ended[:-1]
    places: dict[Place, Tensor] = {
        "observation": bad_seen,
        "action": marks.action,
        "reward": marks.reward,
    }
    counts: dict[Place, int] = {place: int(found.sum()) for place, found in places.items()}
    return replace(
        rollout,
        weights=rollout.weights.masked_fill(out, 0.0),
        truncated=rollout.truncated | cut,
        truncated_values=tuple(
            _with_cuts(old, values, rollout.truncated, cut)
            for old, values in zip(rollout.truncated_values, rollout.values, strict=True)
        ),
        cost=_costs_with_cuts(rollout, cut),
        faults=Faults(
            rows=rows,
            counts=counts,
            steps=tuple(_place(places, t) for t in range(n_steps)),
            first=_first(places) or "the observation after the last step",
        ),
    )


def _costs_with_cuts(rollout: Rollout, cut: Tensor) -> CostRows | None:
    """Return the costs with a value for each cut too."""
    cost = rollout.cost
    if cost is None:
        return None
    values = _with_cuts(cost.truncated_values, cost.values, rollout.truncated, cut)
    return replace(cost, truncated_values=values)


def _with_cuts(
    old: ValueDistribution, values: ValueDistribution, truncated: Tensor, cut: Tensor
) -> ValueDistribution:
    """Return a row for each truncated or cut step in row-major order; a cut has the next row's."""
    time, env = cut.nonzero(as_tuple=True)
    joined = type(old).join([old, values.rows((time + 1, env))])
    n_envs = cut.shape[1]
    places = torch.cat([truncated.flatten().nonzero().flatten(), time * n_envs + env])
    return joined.rows(places.argsort())


def _place(places: dict[Place, Tensor], t: int) -> Place | None:
    return next((place for place, found in places.items() if bool(found[t].any())), None)


def _first(places: dict[Place, Tensor]) -> str:
    found = [(row.nonzero()[0].tolist(), place) for place, row in places.items() if bool(row.any())]
    if not found:
        return ""
    (time, env), place = min(found)
    return f"{place} of environment {env} at step {time} of the rollout"


def _held(new: Tensor, old: Tensor | None) -> tuple[Tensor, Tensor]:
    bad = _bad_rows(new)
    if not bool(bad.any()):
        return new, bad
    return torch.where(torch.isfinite(new), new, torch.zeros_like(new) if old is None else old), bad


def _bad_rows(values: Tensor) -> Tensor:
    return (~torch.isfinite(values)).flatten(1).any(1) if values.ndim > 1 else ~values.isfinite()


def _spread(rows: Tensor, like: Tensor) -> Tensor:
    return rows.reshape(-1, *[1] * (like.ndim - 1))


def _all_finite(observations: ObservationArray) -> bool:
    parts = observations.values() if isinstance(observations, dict) else (observations,)
    return all(part.dtype.kind != "f" or bool(np.isfinite(part).all()) for part in parts)


def _tensors(observations: ObservationArray) -> Observation:
    if isinstance(observations, dict):
        return {key: torch.tensor(value) for key, value in observations.items()}
    return torch.tensor(observations)


def _arrays(observations: Observation) -> ObservationArray:
    if isinstance(observations, dict):
        return {key: value.numpy() for key, value in observations.items()}
    return observations.numpy()
