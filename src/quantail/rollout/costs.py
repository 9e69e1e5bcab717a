"""Costs while acting: what episodes have cost so far, and what the cost critic said."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from quantail.errors import DataError
from quantail.flow import CostCarry, CostRows, PolicyOutput, ValueDistribution
from quantail.nets.cost import CostCritic


def start_costs(n: int) -> CostCarry:
    """Return the costs of ``n`` episodes that are about to start."""
    return CostCarry(
        costs=torch.zeros(n, dtype=torch.float64), discount=torch.ones(n, dtype=torch.float64)
    )


def costs_after(
    critic: CostCritic | None, carry: CostCarry | None, costs: NDArray[np.float32] | None
) -> CostCarry | None:
    """Return the costs after a step, before finished episodes are followed by new ones.

    Args:
        critic: None without a limit on a mean cost; then nothing is counted.
        carry: Before the step.
        costs: [N], of the step.

    Raises:
        DataError: The environments gave no costs.
    """
    assert (critic is None) == (carry is None), "a policy and its carry share the costs"
    if critic is None or carry is None:
        return None
    if costs is None:
        raise DataError(
            "a limit on a mean cost needs a cost of every step, and the environments gave none; "
            "fill EnvStep.costs, or leave the limit out"
        )
    spent = carry.costs + carry.discount * torch.as_tensor(costs).double()
    return CostCarry(costs=spent, discount=carry.discount * critic.discount)


def continued(carry: CostCarry, done: Tensor) -> CostCarry:
    """Return the costs with those of new episodes where one has ended, ``done`` [N] bool."""
    return replace(
        carry,
        costs=carry.costs.masked_fill(done, 0.0),
        discount=carry.discount.masked_fill(done, 1.0),
    )


def cost_rows(
    costs: Tensor,
    ended_costs: Tensor,
    outputs: Sequence[PolicyOutput],
    finals: Sequence[PolicyOutput],
    last: PolicyOutput,
) -> CostRows:
    """Put the costs of a rollout together.

    Args:
        costs: [T, N]
        ended_costs: [E]
        outputs: What the policy said at each of the T steps.
        finals: The same at the final observations of truncated steps.
        last: The same at the observation after the last step.
    """
    values, after = _laws(outputs), _laws([last])[0]
    return CostRows(
        costs=costs,
        values=type(after).stack(values),
        last_values=after,
        truncated_values=type(after).join([after.rows(slice(0, 0)), *_laws(finals)]),
        ended_costs=ended_costs,
    )


def _laws(outputs: Sequence[PolicyOutput]) -> list[ValueDistribution]:
    laws = [output.cost for output in outputs if output.cost is not None]
    assert len(laws) == len(outputs), "a cost critic speaks at every row"
    return laws
