"""Acting: T steps of N environments with one policy."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from quantail.errors import DataError
from quantail.flow import (
    ActionDistribution,
    BudgetCarry,
    BudgetRows,
    CostCarry,
    CostRows,
    EpisodeInfo,
    Observation,
    PolicyOutput,
    PolicyState,
    Rollout,
    RolloutCarry,
)
from quantail.nets.actor_critic import ActorCritic
from quantail.risk.budget import TargetDraw, after_step, renewed, start_budgets
from quantail.rollout.costs import continued, cost_rows, costs_after, start_costs
from quantail.rollout.environment import EnvStep, ObservationArray, VectorEnvironment
from quantail.rollout.faults import (
    StepFaults,
    finite_actions,
    finite_observation,
    finite_step,
    without_faults,
)
from quantail.rollout.sequences import select_environments, stack_states

OnStep = Callable[[int, PolicyOutput, Tensor, EnvStep], bool]
"""Called after each step with its index, what the policy said, the raw actions and what the
environments gave; False stops the rollout."""


Draw = Callable[[int, ActionDistribution], Tensor]
"""Draws raw actions at a step from the policy's law."""


class StoppedError(Exception):
    """The caller asked to stop in the middle of a rollout; ``carry`` is where acting stands."""

    def __init__(self, carry: RolloutCarry) -> None:
        super().__init__("the rollout was stopped")
        self.carry = carry


def start(
    policy: ActorCritic,
    observations: ObservationArray,
    action_masks: NDArray[np.bool_] | None,
    n_envs: int,
    targets: TargetDraw | None = None,
    generator: Generator | None = None,
) -> RolloutCarry:
    """Return what the first rollout starts from, given what the reset environments said."""
    observation, bad = finite_observation(to_tensor(observations), None)
    return RolloutCarry(
        observation=observation,
        spoiled=bad if bool(bad.any()) else None,
        state=policy.initial_state(n_envs),
        episode_starts=torch.ones(n_envs, dtype=torch.bool),
        returns=torch.zeros(n_envs),
        lengths=torch.zeros(n_envs, dtype=torch.int64),
        action_masks=None if action_masks is None else torch.as_tensor(action_masks),
        budget=None if targets is None else start_budgets(n_envs, targets, generator),
        cost=None if policy.config.cost is None else start_costs(n_envs),
    )


@torch.no_grad()
def collect(
    policy: ActorCritic,
    env: VectorEnvironment,
    carry: RolloutCarry,
    n_steps: int,
    chunk_length: int,
    generator: Generator | None = None,
    on_step: OnStep | None = None,
    draw: Draw | None = None,
    targets: TargetDraw | None = None,
) -> tuple[Rollout, RolloutCarry]:
    """Act for ``n_steps`` steps.

    Each observation is read once: actions, log-probabilities and values of a row all come from the
    same pass. A truncated step's final observation is valued by one more recurrent step from the
    state after the row's observation.

    Args:
        policy: Acts and values.
        env: N environments.
        carry: From :func:`start` or the rollout before.
        n_steps: T.
        chunk_length: L; the state before every L-th row is kept.
        generator: Draws the actions; None takes torch's global one.
        on_step: See :data:`OnStep`.
        draw: How to draw actions; None draws each by itself, with ``generator``.
        targets: From which budgets new episodes start; needed if and only if the policy has one.

    Returns:
        The rollout, and the carry for the next one.

    Raises:
        StoppedError: ``on_step`` returned False.
        DataError: A truncated step came without its final observation.
    """
    rows: list[_Row] = []
    chunk_states: list[PolicyState] = []
    finals: list[PolicyOutput] = []
    for t in range(n_steps):
        if t % chunk_length == 0:
            chunk_states.append(carry.state)
        inputs = _budget_inputs(policy, carry.budget)
        output = policy.step(
            carry.observation, carry.state, carry.episode_starts, carry.action_masks, inputs
        )
        raw = output.actions.sample(generator) if draw is None else draw(t, output.actions)
        raw, bad_action = finite_actions(raw, output.actions)
        step = env.step(output.actions.to_env(raw).cpu().numpy())
        step, faults = finite_step(step, carry.observation, bad_action.cpu())
        after = _budget_after(policy, carry.budget, step)
        if step.truncated.any():
            finals.append(_at_the_end(policy, output.state, step, after))
        spent = costs_after(policy.config.cost, carry.cost, step.costs)
        rows.append(_Row(carry, output, raw, step, inputs, after, faults, spent))
        carry = _advance(rows[-1])
        if after is not None and targets is not None:
            carry = replace(carry, budget=renewed(after, carry.episode_starts, targets, generator))
        if on_step is not None and not on_step(t, output, raw, step):
            raise StoppedError(carry)
    inputs = _budget_inputs(policy, carry.budget)
    last = policy.step(
        carry.observation, carry.state, carry.episode_starts, carry.action_masks, inputs
    )
    rollout = _assemble(rows, chunk_states, finals, last)
    faults_of_steps = [row.faults for row in rows]
    return without_faults(rollout, rows[0].before.spoiled, faults_of_steps), carry


class _Row(NamedTuple):
    """One step as acted: what was before it, what the policy said, what came of it."""

    before: RolloutCarry
    output: PolicyOutput
    raw: Tensor
    step: EnvStep
    budget_inputs: Tensor | None
    after: BudgetCarry | None
    """Budgets after the step, before new episodes begin."""
    faults: StepFaults | None
    spent: CostCarry | None
    """Costs after the step, before new episodes begin."""

    @property
    def ended(self) -> Tensor:
        """[N] bool: the episode ended with the step."""
        return torch.as_tensor(self.step.terminated | self.step.truncated)


def _budget_inputs(policy: ActorCritic, carry: BudgetCarry | None) -> Tensor | None:
    assert (carry is None) == (policy.budget is None), "a policy and its carry share the budget"
    if carry is None or policy.budget is None:
        return None
    inputs: Tensor = policy.budget(carry.budget)
    return inputs


def _budget_after(
    policy: ActorCritic, carry: BudgetCarry | None, step: EnvStep
) -> BudgetCarry | None:
    if carry is None or policy.budget is None:
        return None
    raw = None if step.raw_rewards is None else torch.as_tensor(step.raw_rewards)
    return after_step(carry, torch.as_tensor(step.rewards), policy.budget.config.discount, raw)


def _advance(row: _Row) -> RolloutCarry:
    """Return what the next step starts from."""
    carry, step = row.before, row.step
    return RolloutCarry(
        observation=to_tensor(step.observations),
        state=row.output.state,
        episode_starts=row.ended,
        # A finished episode's sums stand until its environment's next step begins a new one.
        returns=carry.returns.masked_fill(carry.episode_starts, 0).add_(
            torch.as_tensor(_raw(step))
        ),
        lengths=carry.lengths.masked_fill(carry.episode_starts, 0).add_(1),
        action_masks=None if step.action_masks is None else torch.as_tensor(step.action_masks),
        budget=carry.budget,
        spoiled=None if row.faults is None else row.faults.observation,
        cost=None if row.spent is None else continued(row.spent, row.ended),
    )


def _raw(step: EnvStep) -> NDArray[np.float32]:
    return step.rewards if step.raw_rewards is None else step.raw_rewards


def _at_the_end(
    policy: ActorCritic, after: PolicyState, step: EnvStep, budgets: BudgetCarry | None
) -> PolicyOutput:
    """Read the final observations of truncated environments, from the state after their row."""
    envs = torch.as_tensor(np.flatnonzero(step.truncated))
    if step.final_observations is None:
        raise DataError(
            f"{len(envs)} truncated step(s) came without a final observation (environments "
            f"{envs.tolist()[:5]}); the environment must give the last observation of an episode "
            "that is cut, or the value of what followed is unknown"
        )
    continues = torch.zeros(len(envs), dtype=torch.bool)
    state = select_environments(after, envs)
    inputs = _budget_inputs(policy, budgets)
    seen = None if inputs is None else inputs[envs]
    return policy.step(to_tensor(step.final_observations), state, continues, None, seen)


def _assemble(
    rows: list[_Row],
    chunk_states: list[PolicyState],
    finals: list[PolicyOutput],
    last: PolicyOutput,
) -> Rollout:
    """Stack the rows of a rollout along time."""
    outputs = [row.output for row in rows]
    actions = torch.stack([row.raw for row in rows])
    laws = type(outputs[0].actions).stack([output.actions for output in outputs])
    masks = [row.before.action_masks for row in rows if row.before.action_masks is not None]
    return Rollout(
        observations=_stack_observations([row.before.observation for row in rows]),
        actions=actions,
        policy=laws,
        log_probs=laws.log_prob(actions),
        values=tuple(
            type(laws[0]).stack(laws)
            for laws in zip(*(output.values for output in outputs), strict=True)
        ),
        last_values=last.values,
        truncated_values=tuple(
            type(none).join([none, *(output.values[k] for output in finals)])
            for k, none in enumerate(value.rows(slice(0, 0)) for value in last.values)
        ),
        rewards=_stack_arrays([row.step.rewards for row in rows]),
        terminated=_stack_arrays([row.step.terminated for row in rows]),
        truncated=_stack_arrays([row.step.truncated for row in rows]),
        episode_starts=torch.stack([row.before.episode_starts for row in rows]),
        weights=_stack_arrays([row.step.weights for row in rows]),
        action_masks=torch.stack(masks) if masks else None,
        chunk_states=stack_states(chunk_states),
        episodes=_ended_episodes(rows),
        budget=_budget_rows(rows),
        cost=_cost_rows(rows, finals, last),
    )


def _budget_rows(rows: list[_Row]) -> BudgetRows | None:
    before = [row.before.budget for row in rows if row.before.budget is not None]
    inputs = [row.budget_inputs for row in rows if row.budget_inputs is not None]
    if not before:
        return None
    ended = [torch.as_tensor(row.step.terminated | row.step.truncated) for row in rows]
    pairs = [(row.after, end) for row, end in zip(rows, ended, strict=True) if row.after]
    returns = torch.cat([after.returns[end] for after, end in pairs])
    targets = torch.cat([after.target[end] for after, end in pairs])
    explored = torch.cat([after.explored[end] for after, end in pairs])
    cut = torch.cat(
        [torch.as_tensor(row.step.truncated)[end] for row, end in zip(rows, ended, strict=True)]
    )
    is_known = torch.isfinite(returns)  # a bad reward leaves the return unknown
    return BudgetRows(
        budgets=torch.stack([carry.budget for carry in before]),
        inputs=torch.stack(inputs),
        ended_returns=returns[is_known],
        ended_targets=targets[is_known],
        ended_explored=explored[is_known],
        ended_cut=cut[is_known],
    )


def _cost_rows(rows: list[_Row], finals: list[PolicyOutput], last: PolicyOutput) -> CostRows | None:
    ended: list[Tensor] = []
    for row in rows:
        if row.spent is not None:
            # As for CVaR, episodes that explore other targets do not tell what the policy costs.
            own = row.ended if row.after is None else row.ended & ~row.after.explored
            ended.append(row.spent.costs[own])
    if not ended:
        return None
    costs = [row.step.costs for row in rows if row.step.costs is not None]
    return cost_rows(
        _stack_arrays(costs), torch.cat(ended), [row.output for row in rows], finals, last
    )


def _ended_episodes(rows: list[_Row]) -> EpisodeInfo:
    returns: list[float] = []
    lengths: list[int] = []
    for row in rows:
        ended = torch.as_tensor(row.step.terminated | row.step.truncated)
        if ended.any():
            fresh = row.before.episode_starts
            total = torch.where(fresh, 0.0, row.before.returns) + torch.as_tensor(_raw(row.step))
            ended &= torch.isfinite(total)  # a bad reward leaves the return unknown
            returns += total[ended].tolist()
            lengths += (torch.where(fresh, 0, row.before.lengths) + 1)[ended].tolist()
    return EpisodeInfo(tuple(returns), tuple(lengths))


def to_tensor(observations: ObservationArray) -> Observation:
    """Copy observations out of the environment, which may reuse its buffers."""
    if isinstance(observations, dict):
        return {key: torch.tensor(value) for key, value in observations.items()}
    return torch.tensor(observations)


def _stack_observations(observations: list[Observation]) -> Observation:
    first = observations[0]
    if isinstance(first, dict):
        return {key: torch.stack([row[key] for row in observations]) for key in first}  # type: ignore[index]
    return torch.stack(observations)  # type: ignore[arg-type]


def _stack_arrays(arrays: list[NDArray[Any]]) -> Tensor:
    return torch.from_numpy(np.stack(arrays))
