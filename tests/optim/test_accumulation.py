"""Accumulated gradients are those of the whole batch, whatever the cut and what is skipped."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from quantail.losses.reduction import weighted_mean
from quantail.optim.accumulation import AccumulationInfo, accumulate
from tests.catalogue import catalogue

ROWS = 24
CUTS = [[24], [12, 12], [6, 6, 6, 6], [1, 2, 20, 1], [5, 19]]


class Problem:
    """A small regression in float64 with fractional row weights, some of them 0."""

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(0)
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1)).double()
        self.inputs = torch.randn(ROWS, 3, generator=draw, dtype=torch.float64)
        self.targets = torch.randn(ROWS, generator=draw, dtype=torch.float64)
        self.weights = torch.rand(ROWS, generator=draw, dtype=torch.float64)
        self.weights[3:8] = 0

    def part(self, rows: slice) -> tuple[Tensor, float]:
        errors = self.net(self.inputs[rows]).squeeze(-1) - self.targets[rows]
        weights = self.weights[rows]
        return weighted_mean(errors.square(), weights), float(weights.sum())

    def run(self, cut: list[int]) -> AccumulationInfo:
        ends = torch.tensor([0, *cut]).cumsum(0).tolist()
        parts = (self.part(slice(start, end)) for start, end in pairwise(ends))
        return accumulate(dict(self.net.named_parameters()), parts)

    def gradients(self) -> list[Tensor]:
        return [parameter.grad.clone() for parameter in self.net.parameters()]


def assert_same(first: list[Tensor], second: list[Tensor]) -> None:
    for one, other in zip(first, second, strict=True):
        assert torch.allclose(one, other, rtol=0, atol=1e-12)


@catalogue("F49", "F15")
@pytest.mark.parametrize("cut", CUTS)
def test_the_cut_does_not_matter(cut: list[int]) -> None:
    problem = Problem()
    problem.part(slice(None))[0].backward()
    whole = problem.gradients()
    info = problem.run(cut)
    assert_same(problem.gradients(), whole)
    assert info.weight == pytest.approx(float(problem.weights.sum()))
    assert info.used == tuple([True] * len(cut))
    assert (info.empty, info.non_finite, set(info.bad)) == (0, 0, {""})


@catalogue("X33")
def test_a_micro_batch_without_weight_contributes_nothing() -> None:
    problem = Problem()
    problem.part(slice(None))[0].backward()
    whole = problem.gradients()
    info = problem.run([3, 5, 16])
    assert_same(problem.gradients(), whole)
    assert info.used == (True, False, True)
    assert info.empty == 1


@catalogue("F49", "X34", "F03")
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_skipped_micro_batch_leaves_the_denominator(bad: float) -> None:
    problem = Problem()
    problem.run([12, 12])
    problem.inputs, problem.targets = problem.inputs[:12], problem.targets[:12]
    problem.weights = problem.weights[:12]
    problem.run([12])
    alone = problem.gradients()
    problem = Problem()
    problem.targets[15] = bad
    info = problem.run([12, 12])
    assert info.used == (True, False)
    assert (info.non_finite, info.bad) == (1, ("", "loss"))
    for one, other in zip(problem.gradients(), alone, strict=True):
        assert torch.equal(one, other)


def test_a_bad_gradient_behind_a_finite_loss_is_named_and_skipped() -> None:
    # √x has an infinite slope at 0 while its value is finite.
    good = nn.Parameter(torch.tensor(1.0))
    root = nn.Parameter(torch.tensor(0.0))
    parameters = {"good": good, "root": root}
    info = accumulate(parameters, iter([(good + root.sqrt(), 1.0), (3 * good + root, 2.0)]))
    assert info.used == (False, True)
    assert (info.non_finite, info.bad) == (1, ("root", ""))
    assert (good.grad.item(), root.grad.item()) == (3, 1)


def test_a_gradient_whose_norm_overflows_is_skipped() -> None:
    parameter = nn.Parameter(torch.ones(2))
    info = accumulate(
        {"weight": parameter}, [(1e30 * parameter.sum(), 1.0), (parameter.sum(), 1.0)]
    )
    assert (info.non_finite, info.bad) == (1, ("weight", ""))
    assert parameter.grad.tolist() == [1, 1]


@catalogue("F65", "X33")
def test_nothing_used_sets_no_gradient() -> None:
    problem = Problem()
    problem.part(slice(None))[0].backward()
    problem.weights[:] = 0
    info = problem.run([12, 12])
    assert info.weight == 0
    assert info.empty == 2
    assert all(parameter.grad is None for parameter in problem.net.parameters())
    assert accumulate(dict(problem.net.named_parameters()), []).weight == 0


def test_shared_gradients_are_not_added_twice() -> None:
    # Autograd may return one tensor for both; adding in place would count it double.
    first, second = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    parts = [((first + second).sum(), 1.0) for _ in range(3)]
    accumulate({"first": first, "second": second}, parts)
    assert first.grad.tolist() == second.grad.tolist() == [1, 1]


def test_a_parameter_that_a_loss_does_not_reach_has_no_gradient() -> None:
    first, second = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(()))
    accumulate({"first": first, "second": second}, [(2 * first, 1.0), (4 * first, 1.0)])
    assert first.grad == 3
    assert second.grad is None


def test_frozen_parameters_are_left_alone() -> None:
    moving, frozen = nn.Parameter(torch.ones(())), nn.Parameter(torch.ones(()), requires_grad=False)
    info = accumulate({"moving": moving, "frozen": frozen}, [(2 * moving * frozen, 1.0)])
    assert info.weight == 1
    assert moving.grad == 2
    assert frozen.grad is None
