"""The clipped surrogate, its guard, and what is told about the ratio."""

import math

import pytest
import torch
from torch import Tensor

from quantail.errors import ConfigError, DataError
from quantail.losses.kl import k3
from quantail.losses.policy import log_ratio, policy_loss, ratio_info
from tests.catalogue import catalogue


def double(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def loss_and_slope(ratios: Tensor, advantages: Tensor, **options: float) -> tuple[Tensor, Tensor]:
    """Rows of the loss, and their derivative by the new log-probability."""
    new = ratios.log().requires_grad_()
    rows = policy_loss(new, torch.zeros_like(ratios), advantages, 0.2, **options)
    (slope,) = torch.autograd.grad(rows.sum(), new)
    return rows.detach(), slope


@catalogue("F01")
def test_four_corners() -> None:
    # loss = -min(rA, clip(r)A); d loss / d log π = -rA where the clip does not bind.
    ratios, advantages = double(1.5, 0.5, 1.5, 0.5), double(2, 2, -2, -2)
    rows, slope = loss_and_slope(ratios, advantages)
    assert rows.tolist() == pytest.approx([-1.2 * 2, -0.5 * 2, 1.5 * 2, 0.8 * 2])
    assert slope.tolist() == pytest.approx([0, -0.5 * 2, 1.5 * 2, 0])


@catalogue("F01")
def test_inside_the_range_the_loss_is_minus_the_advantage_times_the_ratio() -> None:
    rows, slope = loss_and_slope(double(1.0, 1.1, 0.9), double(1, -2, 3))
    assert rows.tolist() == pytest.approx([-1, 2.2, -2.7])
    assert slope.tolist() == pytest.approx([-1, 2.2, -2.7])


def test_dual_clip_bounds_the_loss_of_bad_actions_only() -> None:
    rows, slope = loss_and_slope(double(10, 2, 10), double(-1, -1, 1), dual_clip=3.0)
    assert rows.tolist() == pytest.approx([3, 2, -1.2])
    assert slope.tolist() == pytest.approx([0, 2, 0])


@pytest.mark.parametrize("dual_clip", [None, 3.0])
def test_gradient_by_finite_differences(dual_clip: float | None) -> None:
    draw = torch.Generator().manual_seed(0)
    new = torch.randn(40, generator=draw, dtype=torch.float64).requires_grad_()
    old = torch.randn(40, generator=draw, dtype=torch.float64)
    advantages = torch.randn(40, generator=draw, dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda x: policy_loss(x, old, advantages, 0.2, dual_clip), (new,)
    )


@catalogue("F02")
def test_guard_holds_far_rows_and_counts_them() -> None:
    new = double(-25, 0, 25, 1).requires_grad_()
    # Advantages such that the surrogate's own clip does not bind on the outer two.
    rows = policy_loss(new, torch.zeros_like(new), double(1, 1, -1, -1), 0.2)
    (slope,) = torch.autograd.grad(rows.sum(), new)
    assert torch.isfinite(rows).all()
    assert rows[2].item() == pytest.approx(math.exp(20))
    assert (slope != 0).tolist() == [False, True, False, True]
    info = ratio_info(new, k3(new), torch.ones(4, dtype=torch.float64), 0.2)
    assert info.log_ratio_clamp_fraction == 0.5


@catalogue("F03")
@pytest.mark.parametrize(("bad", "nan", "inf"), [("nan", 1, 0), ("inf", 0, 1), ("-inf", 0, 1)])
@pytest.mark.parametrize("advantage", [1.0, -1.0])
def test_a_log_ratio_that_is_not_finite_stays_so(
    bad: str, nan: int, inf: int, advantage: float
) -> None:
    new = double(0.1, float(bad), 0.0)
    rows = policy_loss(new, torch.zeros_like(new), double(1, advantage, 1), 0.2)
    assert torch.isnan(rows).tolist() == [False, True, False]
    info = ratio_info(new, k3(new), torch.ones(3, dtype=torch.float64), 0.2)
    assert (info.log_ratio_nan_count, info.log_ratio_inf_count) == (nan, inf)
    assert info.log_ratio_max_abs.item() == pytest.approx(0.1)
    assert info.ratio_mean.item() == pytest.approx((math.exp(0.1) + 1) / 2)


@catalogue("F04")
def test_extreme_rows_are_told_before_the_guard() -> None:
    rows = double(12, -11, 10, 0.3, 0, 30)
    info = ratio_info(rows, k3(rows), torch.ones(6, dtype=torch.float64), 0.2)
    assert info.log_ratio_extreme_fraction.item() == pytest.approx(3 / 6)
    assert info.log_ratio_max_abs == 30
    assert info.log_ratio_mean.item() == pytest.approx(rows.mean().item())
    assert info.log_ratio_std.item() == pytest.approx(rows.std(correction=0).item())
    assert info.log_ratio_clamp_fraction.item() == pytest.approx(1 / 6)
    # Ratios beyond 1 ± 0.2: all but exp(0).
    assert info.clip_fraction.item() == pytest.approx(5 / 6)


@catalogue("F06")
def test_rows_without_weight_move_nothing() -> None:
    rows, weights = double(0.1, -0.1, 50.0, float("nan"), float("inf")), double(1, 1, 0, 0, 0)
    info = ratio_info(rows, k3(rows), weights, 0.2)
    alone = ratio_info(rows[:2], k3(rows[:2]), weights[:2], 0.2)
    for name in info.__slots__:
        assert getattr(info, name) == getattr(alone, name), name


def test_the_info_is_outside_the_graph_and_weights_are_fractions() -> None:
    rows = double(0.5, 0.0).requires_grad_()
    info = ratio_info(rows, k3(rows), double(1, 3), 0.2)
    assert not any(getattr(info, name).requires_grad for name in info.__slots__)
    assert info.clip_fraction.item() == pytest.approx(0.25)
    assert info.approx_kl.item() == pytest.approx(0.25 * (math.expm1(0.5) - 0.5))


def test_old_log_probs_get_no_gradient() -> None:
    old = double(0.1).requires_grad_()
    assert not log_ratio(double(0.2), old).requires_grad


def test_bad_settings_and_shapes_are_refused() -> None:
    one = double(0.0)
    with pytest.raises(ConfigError, match="clip_range must be at least 0; was -0.1"):
        policy_loss(one, one, one, -0.1)
    with pytest.raises(ConfigError, match="dual_clip must be greater than 1 or None; was 1"):
        policy_loss(one, one, one, 0.2, 1.0)
    with pytest.raises(DataError, match=r"old_log_probs must hold one number per row.*\(1, 1\)"):
        policy_loss(one, one.view(1, 1), one, 0.2)
    with pytest.raises(DataError, match="advantages must hold one number per row"):
        policy_loss(one, one, double(1, 2), 0.2)
