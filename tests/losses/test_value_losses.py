"""Quantile, categorical and scalar distances against plain double loops."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quantail.errors import ConfigError, DataError
from quantail.losses.value import (
    categorical_loss,
    pairwise_quantile_loss,
    project,
    quantile_loss,
    scalar_loss,
    scattered_projection,
)
from tests.catalogue import catalogue
from tests.reference import value_losses as reference

Projection = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]
KAPPAS = [0.0, 0.05, 0.7, 10.0]


def midpoints(count: int) -> Tensor:
    return (torch.arange(count, dtype=torch.float64) + 0.5) / count


def law(seed: int, rows: int, count: int, atoms: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    quantiles = torch.randn(rows, count, generator=draw, dtype=torch.float64)
    levels = torch.rand(count, generator=draw, dtype=torch.float64)
    targets = torch.randn(rows, atoms, generator=draw, dtype=torch.float64)
    weights = torch.rand(atoms, generator=draw, dtype=torch.float64)
    return quantiles, levels, targets, weights / weights.sum()


@catalogue("F21")
@pytest.mark.parametrize("kappa", KAPPAS)
@pytest.mark.parametrize(("count", "atoms"), [(1, 1), (1, 4), (5, 1), (7, 33)])
def test_quantile_loss_is_the_double_sum(kappa: float, count: int, atoms: int) -> None:
    quantiles, levels, targets, weights = law(1, 6, count, atoms)
    fused = quantile_loss(quantiles, levels, targets, weights, kappa)
    plain = pairwise_quantile_loss(quantiles, levels, targets, weights, kappa)
    for row in range(6):
        expected = reference.quantile_loss(
            quantiles[row].tolist(), levels.tolist(), targets[row].tolist(), weights.tolist(), kappa
        )
        assert fused[row].item() == pytest.approx(expected, rel=1e-12)
        assert plain[row].item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kappa", KAPPAS)
def test_quantile_gradient_by_finite_differences(kappa: float) -> None:
    quantiles, levels, targets, weights = law(2, 4, 5, 9)
    quantiles = quantiles.view(2, 2, 5).requires_grad_()
    targets = targets.view(2, 2, 9)
    for loss in (quantile_loss, pairwise_quantile_loss):
        assert torch.autograd.gradcheck(
            lambda q, loss=loss: loss(q, levels, targets, weights, kappa), (quantiles,)
        )


@pytest.mark.parametrize("kappa", [0.0, 0.3])
def test_single_precision_agrees_with_the_pairs(kappa: float) -> None:
    quantiles, levels, targets, weights = (part.float() for part in law(3, 500, 32, 32))
    gradients = []
    for loss in (quantile_loss, pairwise_quantile_loss):
        leaf = quantiles.clone().requires_grad_()
        rows = loss(leaf, levels, targets, weights, kappa)
        assert rows.dtype == torch.float32
        (rows * torch.arange(500.0)).sum().backward()
        gradients.append((rows.detach(), leaf.grad))
    assert torch.allclose(gradients[0][0], gradients[1][0], atol=1e-6)
    assert torch.allclose(gradients[0][1], gradients[1][1], atol=1e-4)


@catalogue("F21")
def test_slopes_weigh_the_sides_by_the_level() -> None:
    # Below the target the quantile is pushed up with weight τ, above it down with weight 1 - τ.
    quantile = torch.zeros(1, 1, dtype=torch.float64, requires_grad=True)
    level, one = torch.tensor([0.1], dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    for target, slope in ((5.0, -0.1), (-5.0, 0.9)):
        rows = quantile_loss(quantile, level, torch.full((1, 1), target), one, 0.0)
        (gradient,) = torch.autograd.grad(rows.sum(), quantile)
        assert gradient.item() == pytest.approx(slope)


@catalogue("F21")
def test_the_least_loss_is_at_the_quantiles_of_a_skewed_law() -> None:
    # Exponential law, F⁻¹(τ) = -log(1 - τ), as 20,000 evenly spaced atoms.
    atoms = -torch.log1p(-midpoints(20_000))
    weights = torch.full_like(atoms, 1 / 20_000)
    levels = midpoints(16)
    quantiles = torch.ones(1, 16, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Rprop([quantiles], lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        quantile_loss(quantiles, levels, atoms[None], weights).sum().backward()
        optimizer.step()
    expected = -torch.log1p(-levels)
    assert quantiles[0].tolist() == pytest.approx(expected.tolist(), rel=0.02)


def test_a_wide_huber_part_narrows_the_law() -> None:
    # N(0, 1), 32 quantiles: at κ = 1 their spread is 0.775 instead of 0.980.
    atoms = torch.distributions.Normal(0.0, 1.0).icdf(midpoints(4000))
    weights = torch.full_like(atoms, 1 / 4000)
    spreads = []
    for kappa in (0.0, 0.05, 1.0):
        quantiles = torch.zeros(1, 32, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.Rprop([quantiles], lr=0.1)
        for _ in range(80):
            optimizer.zero_grad()
            quantile_loss(quantiles, midpoints(32), atoms[None], weights, kappa).sum().backward()
            optimizer.step()
        spreads.append(quantiles.std(correction=0).item())
    assert spreads == pytest.approx([0.980, 0.966, 0.775], abs=0.003)


@catalogue("F25", "F66", "F22")
def test_targets_get_no_gradient_and_are_not_clipped() -> None:
    quantiles, levels, targets, weights = law(4, 2, 3, 3)
    targets = (1000 * targets).requires_grad_()
    quantiles.requires_grad_()
    quantile_loss(quantiles, levels, targets, weights).sum().backward()
    scalar_loss(quantiles[:, 0], targets, weights).sum().backward()
    assert targets.grad is None
    assert quantiles.grad is not None
    far = quantile_loss(
        torch.zeros(1, 1, dtype=torch.float64), midpoints(1), targets.detach()[:1, :1], weights[:1]
    )
    assert far.item() == pytest.approx(abs(targets[0, 0].item()) / 2 * weights[0].item())


def test_axes_that_would_couple_rows_are_refused() -> None:
    quantiles, levels, targets, weights = law(5, 4, 4, 4)
    with pytest.raises(DataError, match=r"rows \(4,\) of quantiles; shape was \(1, 4, 4\)"):
        quantile_loss(quantiles, levels, targets[None], weights)
    with pytest.raises(DataError, match=r"rows \(4,\) of quantiles; shape was \(3, 4\)"):
        quantile_loss(quantiles, levels, targets[:3], weights)
    with pytest.raises(DataError, match=r"weights must have one entry per atom, shape \(4,\)"):
        quantile_loss(quantiles, levels, targets, weights[:2])
    with pytest.raises(DataError, match=r"levels must have one entry per quantile, shape \(4,\)"):
        quantile_loss(quantiles, levels[:2], targets, weights)
    with pytest.raises(ConfigError, match=r"kappa must be at least 0 and finite; was -1"):
        quantile_loss(quantiles, levels, targets, weights, -1.0)


@catalogue("F03")
@pytest.mark.parametrize("kappa", [0.0, 0.5])
def test_bad_predictions_make_bad_losses(kappa: float) -> None:
    quantiles, levels, targets, weights = law(6, 3, 4, 4)
    quantiles[1, 2] = float("nan")
    rows = quantile_loss(quantiles, levels, targets, weights, kappa)
    assert torch.isnan(rows).tolist() == [False, True, False]


@given(
    atoms=st.lists(st.floats(-8, 8), min_size=1, max_size=9),
    count=st.integers(2, 11),
    low=st.floats(-6, -0.5),
)
def test_projection_conserves_mass_and_mean(atoms: list[float], count: int, low: float) -> None:
    values = torch.tensor([atoms], dtype=torch.float64)
    draw = torch.Generator().manual_seed(len(atoms))
    weights = torch.rand(len(atoms), generator=draw, dtype=torch.float64) + 0.01
    weights /= weights.sum()
    bottom, top = torch.tensor(low, dtype=torch.float64), torch.tensor(5.0, dtype=torch.float64)
    mass = project(values, weights, bottom, top, count)
    grid = torch.linspace(low, 5.0, count, dtype=torch.float64)
    assert mass.min() >= -1e-12
    assert mass.sum().item() == pytest.approx(1, abs=1e-12)
    mean = (weights * values.clamp(low, 5.0)).sum().item()
    assert (mass * grid).sum().item() == pytest.approx(mean, abs=1e-9)
    expected = reference.project(atoms, weights.tolist(), low, 5.0, count)
    assert mass[0].tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("form", [project, scattered_projection])
def test_projection_keeps_mass_on_grid_points(form: Projection) -> None:
    # The classic loss of mass where floor(b) = ceil(b), also at both ends.
    grid = torch.linspace(-1, 1, 5)
    mass = form(grid[:, None], torch.ones(1), torch.tensor(-1.0), torch.tensor(1.0), 5)
    assert torch.allclose(mass, torch.eye(5))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [(), (7,), (2, 3), (0,)])
def test_both_forms_of_the_projection_agree(dtype: torch.dtype, rows: tuple[int, ...]) -> None:
    draw = torch.Generator().manual_seed(0)
    atoms = 2 * torch.randn(*rows, 9, generator=draw, dtype=dtype)
    low, high = torch.tensor(-2.0, dtype=dtype), torch.tensor(3.0, dtype=dtype)
    for weights in (torch.rand(9, generator=draw), torch.rand(*rows, 9, generator=draw)):
        fast, plain = (
            form(atoms, weights.to(dtype), low, high, 6) for form in (project, scattered_projection)
        )
        assert fast.dtype == plain.dtype == dtype
        assert fast.shape == plain.shape == (*rows, 6)
        assert torch.allclose(fast, plain, atol=1e-5 if dtype == torch.float32 else 1e-12)


def test_projection_gradient_by_finite_differences() -> None:
    draw = torch.Generator().manual_seed(0)
    atoms = (3 * torch.randn(3, 4, generator=draw, dtype=torch.float64)).requires_grad_()
    weights = torch.rand(3, 4, generator=draw, dtype=torch.float64).requires_grad_()
    low, high = torch.tensor(-2.0, dtype=torch.float64), torch.tensor(2.5, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda a, w: project(a, w, low, high, 7), (atoms, weights))


@pytest.mark.parametrize("form", [project, scattered_projection])
@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
def test_projection_never_moves_bad_atoms_to_an_end(bad: str, form: Projection) -> None:
    atoms = torch.tensor([[0.0, float(bad)], [0.0, 1.0]])
    mass = form(atoms, torch.tensor([0.5, 0.5]), torch.tensor(-1.0), torch.tensor(1.0), 3)
    assert torch.isnan(mass[0]).any()
    assert mass[1].tolist() == [0, 0.5, 0.5]


@catalogue("F67")
@pytest.mark.parametrize("count", [2, 21, 51])
def test_a_uniform_prediction_has_loss_one(count: int) -> None:
    uniform = torch.full((4, count), -math.log(count), dtype=torch.float64)
    target = torch.rand(4, count, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    target /= target.sum(-1, keepdim=True)
    assert categorical_loss(uniform, target).tolist() == pytest.approx([1.0] * 4)


def test_categorical_loss_is_least_at_its_target() -> None:
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 6, generator=draw, dtype=torch.float64).requires_grad_()
    target = torch.randn(3, 6, generator=draw, dtype=torch.float64).softmax(-1)
    assert torch.autograd.gradcheck(
        lambda x: categorical_loss(x.log_softmax(-1), target), (logits,)
    )
    best = target.log().requires_grad_()
    (slope,) = torch.autograd.grad(categorical_loss(best.log_softmax(-1), target).sum(), best)
    assert slope.abs().max() < 1e-12


@catalogue("F65")
def test_one_atom_is_refused() -> None:
    zero = torch.tensor(0.0)
    with pytest.raises(ConfigError, match="n_atoms must be at least 2; was 1. Use a scalar critic"):
        project(torch.zeros(1, 1), torch.ones(1), zero, zero + 1, 1)
    with pytest.raises(DataError, match="K at least 2"):
        categorical_loss(torch.zeros(2, 1), torch.ones(2, 1))


def test_scalar_loss_is_the_squared_distance_to_the_mean() -> None:
    values = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    atoms = torch.tensor([[0.0, 4.0], [2.0, 2.0]], dtype=torch.float64)
    weights = torch.tensor([0.25, 0.75], dtype=torch.float64)
    assert scalar_loss(values, atoms, weights).tolist() == [4.0, 0.0]
    assert torch.autograd.gradcheck(lambda v: scalar_loss(v, atoms, weights), (values,))
    with pytest.raises(DataError, match=r"rows \(2,\) of values"):
        scalar_loss(values, atoms[None], weights)
