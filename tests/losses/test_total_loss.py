"""Entropy, row weights, and the sum of the terms."""

import pytest
import torch
from torch.distributions import Normal

from quantail.errors import ConfigError, DataError
from quantail.flow import LossTerms
from quantail.losses.policy import policy_loss, ratio_info
from quantail.losses.reduction import weighted_mean
from quantail.losses.total import LossWeights, total_loss
from tests.catalogue import catalogue


def rows(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def total(weights: torch.Tensor, *, entropy: float = 0.0, value: float = 0.5) -> LossTerms:
    zero = torch.zeros_like(weights)
    return total_loss(
        rows(1, 2, 3),
        rows(10, 20, 30),
        (rows(4, 5, 6), rows(8, 8, 8)),
        weights,
        coefficients=LossWeights(entropy=entropy, value=value),
        ratio=ratio_info(zero, zero, weights, 0.2),
    )


def test_terms_and_their_sum() -> None:
    terms = total(rows(1, 1, 1), entropy=0.1, value=0.5)
    assert terms.policy == 2
    assert terms.entropy == -20
    assert [term.item() for term in terms.values] == [5, 8]
    # The sum is 2 + 0.1 * (-20) + 0.5 * (5 + 8) / 2.
    assert terms.total.item() == pytest.approx(3.25)


@catalogue("X42")
def test_fractional_weights_weigh_the_rows() -> None:
    terms = total(rows(0.5, 0, 1.5))
    assert terms.policy.item() == pytest.approx((0.5 * 1 + 1.5 * 3) / 2)
    assert terms.values[0].item() == pytest.approx((0.5 * 4 + 1.5 * 6) / 2)


@catalogue("F65")
def test_a_row_without_weight_may_hold_anything() -> None:
    value = rows(1, float("nan"), 3).requires_grad_()
    mean = weighted_mean(value, rows(1, 0, 1))
    assert mean == 2
    (slope,) = torch.autograd.grad(mean, value)
    assert slope.tolist() == [0.5, 0, 0.5]


@catalogue("F65")
@pytest.mark.parametrize("count", [0, 3])
def test_no_weight_at_all_gives_zero(count: int) -> None:
    assert weighted_mean(torch.ones(count), torch.zeros(count)) == 0


@catalogue("F07")
def test_entropy_lowers_the_loss() -> None:
    log_std = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    law = Normal(torch.zeros(5, dtype=torch.float64), log_std.exp())
    action = rows(0.3, -1, 2, 0.1, 0.5)
    weights, new = torch.ones(5, dtype=torch.float64), law.log_prob(action)
    terms = total_loss(
        policy_loss(new, new.detach(), torch.zeros_like(weights), 0.2),
        law.entropy(),
        (torch.zeros_like(weights),),
        weights,
        coefficients=LossWeights(entropy=0.01),
        ratio=ratio_info(torch.zeros_like(weights), torch.zeros_like(weights), weights, 0.2),
    )
    (slope,) = torch.autograd.grad(terms.total, log_std)
    # H = log σ + const, so each row has slope -0.01 / 5.
    assert slope.tolist() == pytest.approx([-0.002] * 5)


@catalogue("F08")
def test_entropy_of_many_action_dimensions_counts_once() -> None:
    law = Normal(torch.zeros(3, 3).double(), torch.tensor([1.0, 2.0, 0.5]).double())
    weights, zero = rows(1, 1, 1), rows(0, 0, 0)
    info, settings = ratio_info(zero, zero, weights, 0.2), LossWeights(entropy=0.1)
    summed = law.entropy().sum(-1)
    terms = total_loss(zero, summed, (zero,), weights, coefficients=settings, ratio=info)
    expected = sum(float(Normal(0.0, scale).entropy()) for scale in (1.0, 2.0, 0.5))
    assert terms.entropy.item() == pytest.approx(-expected, rel=1e-6)
    assert terms.total.item() == pytest.approx(-0.1 * expected, rel=1e-6)
    with pytest.raises(DataError, match=r"entropy must hold one number per row, shape \(3,\);"):
        total_loss(zero, law.entropy(), (zero,), weights, coefficients=settings, ratio=info)


def test_terms_of_another_shape_are_refused() -> None:
    weights = torch.ones(3, dtype=torch.float64)
    info = ratio_info(weights, weights, weights, 0.2)
    good, settings = rows(1, 2, 3), LossWeights()
    with pytest.raises(DataError, match=r"value_rows\[1\] must hold one number per row"):
        total_loss(good, good, (good, good[None]), weights, coefficients=settings, ratio=info)
    with pytest.raises(DataError, match="policy_rows must hold one number per row"):
        total_loss(good[:2], good, (good,), weights, coefficients=settings, ratio=info)
    with pytest.raises(DataError, match="at least one critic; it was empty"):
        total_loss(good, good, (), weights, coefficients=settings, ratio=info)
    with pytest.raises(ConfigError, match="value: must be at least 0; was -1"):
        LossWeights(value=-1.0)
