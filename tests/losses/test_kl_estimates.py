"""KL(old || new): direction, bias and noise of the estimators."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Normal, kl_divergence

from quantail.losses.kl import k1, k2, k3
from tests.catalogue import catalogue

SAMPLES = 1_000_000


def samples(old: Normal, new: Normal) -> torch.Tensor:
    """Log-ratios of actions drawn from the old policy."""
    torch.manual_seed(0)
    actions = old.sample((SAMPLES,))
    return new.log_prob(actions) - old.log_prob(actions)


def normal(mean: float, std: float) -> Normal:
    return Normal(torch.tensor(mean, dtype=torch.float64), torch.tensor(std, dtype=torch.float64))


@catalogue("F05")
@pytest.mark.parametrize("estimate", [k1, k3])
def test_direction_is_old_to_new(estimate) -> None:  # type: ignore[no-untyped-def]
    old, new = normal(0.0, 1.0), normal(0.5, 1.5)
    rows = estimate(samples(old, new))
    error = rows.std() / SAMPLES**0.5
    assert abs(rows.mean() - kl_divergence(old, new)) < 3 * error
    assert abs(rows.mean() - kl_divergence(new, old)) > 30 * error


@catalogue("F06")
@given(st.floats(-20, 20))
def test_k3_is_never_negative(value: float) -> None:
    assert k3(torch.tensor(value, dtype=torch.float64)) >= 0


@catalogue("F06")
def test_k3_is_close_to_the_analytic_divergence() -> None:
    # A shift of √0.02 standard deviations has KL = 0.01.
    old, new = normal(0.0, 1.0), normal(0.02**0.5, 1.0)
    assert k3(samples(old, new)).mean().item() == pytest.approx(0.01, rel=0.05)


@pytest.mark.parametrize(
    ("shift", "estimate", "bias", "noise"),
    [
        (0.1, k1, 0.0, 20.0),
        (0.1, k2, 0.002, 1.42),
        (0.1, k3, 0.0, 1.42),
        (1.0, k1, 0.0, 2.0),
        (1.0, k2, 0.25, 1.73),
        (1.0, k3, 0.0, 1.69),
    ],
)
def test_known_bias_and_noise(shift: float, estimate, bias: float, noise: float) -> None:  # type: ignore[no-untyped-def]
    # Relative to the true KL, N(0, 1) against N(shift, 1); Schulman's note on approximating KL.
    true = shift**2 / 2
    rows = estimate(samples(normal(0.0, 1.0), normal(shift, 1.0)))
    assert rows.mean().item() / true - 1 == pytest.approx(bias, abs=4 * noise / SAMPLES**0.5 + 1e-3)
    assert rows.std().item() / true == pytest.approx(noise, rel=0.02)


def test_gradients_of_k1_and_k3_agree_on_samples_of_the_old_policy() -> None:
    # E_old[∇ k] = ∇ KL(old || new) = mean for N(0, 1) against N(mean, 1); k3 with less noise.
    torch.manual_seed(0)
    actions = torch.randn(SAMPLES, dtype=torch.float64)
    spreads = []
    for estimate in (k1, k3):
        mean = torch.full_like(actions, 0.1).requires_grad_()
        rows = estimate(-((actions - mean) ** 2) / 2 + actions**2 / 2)
        (slope,) = torch.autograd.grad(rows.sum(), mean)
        assert slope.mean().item() == pytest.approx(0.1, abs=4 * slope.std().item() / SAMPLES**0.5)
        spreads.append(slope.std().item())
    assert spreads[1] < spreads[0] / 5
