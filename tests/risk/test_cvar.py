"""CVaR of weighted atoms: exactness, gradients, continuity, and its error as a staircase."""

import math
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quantail.errors import ConfigError, DataError, QuantailWarning
from quantail.nets.critics import QuantileCritic
from quantail.risk.cvar import cvar, empirical_cvar, quantile, warn_if_coarse
from tests.catalogue import catalogue
from tests.reference import cvar as reference
from tests.risk import cvar_accuracy

ALPHAS = [0.001, 0.01, 1 / 7, 0.3, 0.999, 1.0]


def law(seed: int, rows: int = 3, count: int = 7) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    atoms = torch.randn(rows, count, generator=draw, dtype=torch.float64)
    weights = torch.rand(count, generator=draw, dtype=torch.float64)
    return atoms, weights / weights.sum()


@given(seed=st.integers(0, 1000), alpha=st.floats(0.002, 1))
def test_cvar_is_the_integral_of_the_quantile_function(seed: int, alpha: float) -> None:
    atoms, weights = law(seed)
    spread = float(atoms.max() - atoms.min())
    for row, value in zip(atoms.tolist(), cvar(atoms, weights, alpha).tolist(), strict=True):
        expected = reference.cvar(row, weights.tolist(), alpha, cells=400)
        # The midpoint rule errs in the at most 6 cells that hold a step.
        assert value == pytest.approx(expected, abs=6 * spread / 400)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_quantile_is_the_generalized_inverse(alpha: float) -> None:
    atoms, weights = law(1)
    expected = [reference.quantile(row, weights.tolist(), alpha) for row in atoms.tolist()]
    assert quantile(atoms, weights, alpha).tolist() == expected


def test_by_hand() -> None:
    # Weights .1 .2 .3 .4, atoms 4 1 3 2 in no order: sorted 1 (.2) 2 (.4) 3 (.3) 4 (.1).
    atoms = torch.tensor([4.0, 1.0, 3.0, 2.0], dtype=torch.float64)
    weights = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    assert cvar(atoms, weights, 0.1).item() == pytest.approx(1)
    assert cvar(atoms, weights, 0.5).item() == pytest.approx((0.2 * 1 + 0.3 * 2) / 0.5)
    assert cvar(atoms, weights, 1.0).item() == pytest.approx(2.3)
    assert [quantile(atoms, weights, tau).item() for tau in (0.2, 0.21, 0.6, 1)] == [1, 2, 2, 4]


@catalogue("F32")
def test_uniform_law() -> None:
    # F⁻¹(u) = u on 1,000 cells: CVaR_0.1 = 0.05; at α = 1 the mean.
    atoms = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    weights = torch.full_like(atoms, 1e-3)
    assert cvar(atoms, weights, 0.1).item() == pytest.approx(0.05, abs=1e-6)
    assert cvar(atoms, weights, 1.0).item() == pytest.approx(0.5, abs=1e-12)


@catalogue("F34", "X36")
@pytest.mark.parametrize("levels", ["uniform", "tail"])
def test_continuous_and_monotone_in_alpha(levels: str) -> None:
    critic = (
        QuantileCritic(n_quantiles=21)
        if levels == "uniform"
        else QuantileCritic(n_quantiles=21, levels="tail", tail_alpha=0.05)
    )
    atoms, weights = cvar_accuracy.perfect_quantiles(critic, cvar_accuracy.LAWS["normal"])
    # Even in log α: there the slope is VaR - CVaR, so a step is at most 3e-4 times this.
    alphas = torch.logspace(math.log10(0.002), 0, 20_001, dtype=torch.float64).tolist()
    curve = torch.stack([cvar(atoms, weights, alpha) for alpha in alphas])
    steps = curve.diff()
    assert steps.min() >= -1e-12
    assert steps.max() < 1e-3
    assert curve[0] == atoms[0]
    assert curve[-1].item() == pytest.approx((atoms * weights).sum().item(), abs=1e-12)


@catalogue("F34")
def test_nothing_is_extrapolated_below_the_least_quantile() -> None:
    # 5 % of crashes near -5: a line through the lowest quantiles would reach -7.
    atoms = torch.cat([torch.full((1,), -5.0), torch.linspace(0.8, 1.2, 20)])
    weights = torch.full((21,), 1 / 21)
    assert cvar(atoms, weights, 0.01).item() == pytest.approx(-5.0)


def test_crossing_quantiles_are_sorted_with_their_weights() -> None:
    atoms, weights = law(5)
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    for alpha in ALPHAS:
        straight = cvar(atoms, weights, alpha)
        assert torch.allclose(cvar(atoms[:, order], weights[order], alpha), straight)
        assert torch.allclose(cvar(atoms, weights.expand(3, 7), alpha), straight)


@pytest.mark.parametrize("alpha", [0.05, 0.33, 0.9])
def test_gradients_by_finite_differences(alpha: float) -> None:
    atoms, _ = law(7)
    atoms.requires_grad_()
    draw = torch.Generator().manual_seed(8)
    logits = torch.randn(3, 7, generator=draw, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda z, x: cvar(z, x.softmax(-1), alpha), (atoms, logits))
    grid = torch.linspace(-2, 2, 7, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: cvar(grid, x.softmax(-1), alpha), (logits,))


@catalogue("F34")
def test_gradient_of_a_tiny_level_is_finite() -> None:
    atoms = torch.arange(4.0, requires_grad=True)
    (slope,) = torch.autograd.grad(cvar(atoms, torch.full((4,), 0.25), 1e-4), atoms)
    assert slope.tolist() == pytest.approx([1, 0, 0, 0])


@pytest.mark.parametrize("rows", [(), (5,), (2, 3)])
def test_categorical_law_with_shared_atoms(rows: tuple[int, ...]) -> None:
    draw = torch.Generator().manual_seed(0)
    grid = torch.linspace(-3, 3, 11, dtype=torch.float64)
    probs = torch.rand(*rows, 11, generator=draw, dtype=torch.float64)
    probs /= probs.sum(-1, keepdim=True)
    for alpha in ALPHAS:
        values, levels = cvar(grid, probs, alpha), quantile(grid, probs, alpha)
        assert values.shape == levels.shape == rows
        for value, level, weights in zip(
            values.view(-1).tolist(), levels.view(-1).tolist(), probs.view(-1, 11), strict=True
        ):
            # CVaR = [Σ_{j<k} p_j z_j + (α - F_{k-1}) z_k] / α, k the first with F_k >= α.
            cumulative = weights.cumsum(0)
            k = int((cumulative < alpha - 1e-9).sum())
            k = min(k, 10)
            before = float(cumulative[k - 1]) if k else 0.0
            full = float((weights[:k] * grid[:k]).sum())
            assert value == pytest.approx((full + (alpha - before) * float(grid[k])) / alpha)
            assert level == float(grid[k])


def test_single_precision_levels_on_a_step() -> None:
    # In float32 1/25 is rounded down and 1/20 up, so sums miss k/25 from below, k/20 from above.
    for count in (20, 25):
        atoms, weights = torch.arange(float(count)), torch.full((count,), 1 / count)
        levels = [k / count for k in range(1, count + 1)]
        assert [quantile(atoms, weights, tau).item() for tau in levels] == list(range(count))
        assert cvar(atoms, weights, 1.0).item() == pytest.approx((count - 1) / 2, rel=1e-6)


@pytest.mark.parametrize("alpha", [0.05, 0.1])
def test_empirical_estimate_and_its_error(alpha: float) -> None:
    torch.manual_seed(1)
    size, runs = 2000, 400
    estimates = [empirical_cvar(torch.randn(size, dtype=torch.float64), alpha) for _ in range(runs)]
    values = torch.tensor([estimate.cvar for estimate in estimates], dtype=torch.float64)
    truth = cvar_accuracy.LAWS["normal"].cvar(alpha)
    spread = float(values.std())
    assert float(values.mean()) == pytest.approx(truth, abs=4 * spread / math.sqrt(runs) + 0.005)
    stated = sum(estimate.standard_error for estimate in estimates) / runs
    assert stated == pytest.approx(spread, rel=0.15)
    assert estimates[0].tail_count == pytest.approx(alpha * size)


@catalogue("F65")
def test_small_samples() -> None:
    single = empirical_cvar(torch.tensor([3.0]), 0.05)
    assert (single.cvar, single.var, single.standard_error) == (3.0, 3.0, math.inf)
    exact = empirical_cvar(torch.arange(1.0, 11.0), 0.25)
    # The worst quarter of ten: 1, 2 and half of 3.
    assert exact.cvar == pytest.approx((1 + 2 + 0.5 * 3) / 2.5)
    assert exact.var == 3
    with pytest.raises(DataError, match="at least one finite number; shape was"):
        empirical_cvar(torch.tensor([]), 0.05)
    with pytest.raises(DataError, match="with 1 finite entries"):
        empirical_cvar(torch.tensor([1.0, math.nan]), 0.05)


@pytest.mark.parametrize("alpha", [0.0, -0.1, 1.1, math.nan])
def test_levels_out_of_range_are_refused(alpha: float) -> None:
    atoms, weights = law(0)
    with pytest.raises(ConfigError, match=r"cvar_alpha must lie in \(0, 1\]; was"):
        cvar(atoms, weights, alpha)
    with pytest.raises(ConfigError, match=r"tau must lie in \(0, 1\]; was"):
        quantile(atoms, weights, alpha)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match=r"shapes were \(3, 7\) and \(6,\)"):
        cvar(torch.zeros(3, 7), torch.ones(6), 0.1)
    with pytest.raises(DataError, match=r"shapes were \(3, 7\) and \(4, 7\)"):
        cvar(torch.zeros(3, 7), torch.ones(4, 7), 0.1)


@catalogue("F33")
def test_a_level_below_the_first_cell_warns() -> None:
    weights = torch.full((21,), 1 / 21)
    with pytest.warns(QuantailWarning, match=r"cvar_alpha = 0\.04 is smaller than the first cell"):
        warn_if_coarse(weights, 0.04)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_coarse(weights, 0.05)


@catalogue("F33")
@pytest.mark.parametrize(("count", "bound"), [(21, 5.0), (51, 2.0), (101, 1.0)])
def test_error_bounds_on_a_normal_law(count: int, bound: float) -> None:
    critic = QuantileCritic(n_quantiles=count, levels="tail", tail_alpha=0.05)
    assert abs(cvar_accuracy.error_percent(critic, "normal", 0.05)) <= bound


@catalogue("F33")
@pytest.mark.parametrize("alpha", [0.01, 0.05])
def test_tail_levels_are_right_within_one_percent(alpha: float) -> None:
    critic = QuantileCritic(n_quantiles=32, levels="tail", tail_alpha=alpha)
    assert abs(cvar_accuracy.error_percent(critic, "normal", alpha)) < 1
    assert cvar_accuracy.error_percent(QuantileCritic(n_quantiles=32), "normal", alpha) < -4


def test_the_page_is_current() -> None:
    assert cvar_accuracy.PAGE.read_text("utf-8") == cvar_accuracy.page()
