"""Advantages of the cost against plain loops, and how they are mixed with the others."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from quantail.flow import CostRows, Rollout
from quantail.nets.critics.scalar import ScalarValues
from quantail.targets.compute import TailObjective, compute_targets
from quantail.targets.cost import CostObjective, cost_targets
from tests.learner.agents import acted, settings
from tests.learner.test_tail_risk import risky
from tests.reference.gae import lambda_returns

GAMMA, LAM = 0.9, 0.7


def scalar(rows: torch.Tensor) -> ScalarValues:
    return ScalarValues(rows, torch.ones(()))


def with_costs(rollout: Rollout, seed: int = 0) -> tuple[Rollout, CostRows]:
    """The rollout with random costs and random predictions of them."""
    draw = torch.Generator().manual_seed(seed)
    shape = rollout.rewards.shape
    cost = CostRows(
        costs=torch.randn(shape, generator=draw),
        values=scalar(torch.randn(shape, generator=draw)),
        last_values=scalar(torch.randn(shape[1], generator=draw)),
        truncated_values=scalar(torch.randn(int(rollout.truncated.sum()), generator=draw)),
        ended_costs=torch.zeros(0, dtype=torch.float64),
    )
    return replace(rollout, cost=cost), cost


def test_advantages_and_returns_are_those_of_a_plain_loop() -> None:
    """Terminations and truncations lie in the middle; the former end all costs, the latter not."""
    rollout, cost = with_costs(acted().rollout)
    assert int(rollout.terminated[:-1].sum()) > 3
    assert int(rollout.truncated[:-1].sum()) > 3
    found = cost_targets(rollout, cost, torch.zeros(rollout.rewards.shape), gamma=GAMMA, lam=LAM)
    following = torch.cat([cost.values.values[1:], cost.last_values.values[None]])
    following[rollout.truncated] = cost.truncated_values.values
    for env in range(rollout.rewards.shape[1]):
        expected = lambda_returns(
            cost.costs[:, env].tolist(),
            following[:, env].tolist(),
            rollout.terminated[:, env].tolist(),
            rollout.truncated[:, env].tolist(),
            GAMMA,
            LAM,
        )
        np.testing.assert_allclose(found.returns[:, env], expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(
            found.advantages[:, env],
            np.array(expected) - cost.values.values[:, env].numpy(),
            rtol=1e-4,
            atol=1e-5,
        )


def test_spreads_leave_rows_without_weight_out() -> None:
    rollout, cost = with_costs(acted().rollout)
    mean = torch.randn(rollout.rewards.shape, generator=torch.Generator().manual_seed(1))
    weights = (torch.rand(mean.shape, generator=torch.Generator().manual_seed(2)) < 0.5).float()
    spoiled = torch.where(weights > 0, mean, 1e6)
    found = cost_targets(replace(rollout, weights=weights), cost, spoiled, gamma=GAMMA, lam=LAM)
    assert found.mean_std == pytest.approx(float(mean[weights > 0].std(correction=0)), rel=1e-5)
    assert found.advantage_std == pytest.approx(
        float(found.advantages[weights > 0].std(correction=0)), rel=1e-5
    )


def test_all_parts_are_mixed_before_one_normalization() -> None:
    """(A_mean + λ A_tail - v μ A_cost) / (1 + λ p/α + v w); each part can be left out."""
    rollout, _ = with_costs(risky().rollouts[1])
    counted = (torch.rand(rollout.weights.shape) < 0.5).to(rollout.weights)
    rollout = replace(rollout, weights=counted)
    plain = replace(settings().targets, normalize_advantage=False)
    tail, spent = TailObjective(alpha=0.2, weight=2.0), CostObjective(weight=0.5, price=3.0)

    def found(*objectives: object) -> torch.Tensor:
        seeded = torch.Generator().manual_seed(1)
        targets = compute_targets(rollout, plain, "min", seeded, *objectives)  # type: ignore[arg-type]
        assert targets.cost is not None
        return targets.advantages.double()

    seeded = torch.Generator().manual_seed(1)
    full = compute_targets(rollout, plain, "min", seeded, tail, spent)
    assert full.tail is not None
    assert full.cost is not None
    mean, part = found(None, None), 3.0 * full.cost.advantages.double()
    torch.testing.assert_close(found(None, spent), (mean - part) / 1.5, rtol=1e-5, atol=1e-5)
    # The price is one in return, and return is worth more where the tail counts.
    mixture = mean + 2.0 * full.tail.advantages
    slope = 1.0 + 2.0 / tail.alpha * full.tail.probability
    worth = float(slope[counted > 0].mean())
    assert worth > 1.5
    assert abs(worth - float(slope.mean())) > 0.02
    expected = (mixture - worth * part) / (slope + 0.5 * worth)
    torch.testing.assert_close(found(tail, spent), expected, rtol=1e-4, atol=1e-4)
    spread = float(mean[counted > 0].std(correction=0))
    assert full.cost.mean_std == pytest.approx(spread, rel=1e-4)
