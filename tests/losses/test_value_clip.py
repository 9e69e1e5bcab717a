"""Value clipping: every mode with every critic kind, written once."""

import math
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from quantail.errors import ConfigError
from quantail.losses.value import categorical_loss, project
from quantail.losses.value_clip import (
    MeanAndVarianceClip,
    MeanClip,
    NoClip,
    QuantileClip,
    ValueClipConfig,
    check_value_clip,
    value_loss,
)
from quantail.nets.critics import CategoricalCritic, CriticConfig, QuantileCritic
from quantail.nets.critics.categorical import CategoricalValues
from quantail.nets.critics.scalar import ScalarValues
from tests.catalogue import catalogue

MODES = [MeanClip, MeanAndVarianceClip, QuantileClip]
CRITICS = get_args(get_args(CriticConfig)[0])
PAIRS = [(mode, critic) for mode in MODES for critic in CRITICS if critic().kind in mode.critics]
SIZE = 3
Law = Any


def head(critic: type, seed: int, scale: float = 2.0) -> Any:
    """A critic whose return scale is ``scale`` and whose law depends on every latent number."""
    torch.manual_seed(seed)
    built = critic().build(SIZE).double()
    atoms = torch.tensor([[-scale, scale]], dtype=torch.float64)
    built.update_scale(atoms, torch.tensor([0.5, 0.5]), torch.ones(1))
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return built


def latents(seed: int, *rows: int, reach: float = 1.0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return reach * torch.randn(*rows, SIZE, generator=draw, dtype=torch.float64)


def target(seed: int, *rows: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    atoms = 3 * torch.randn(*rows, 4, generator=draw, dtype=torch.float64)
    return atoms, torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)


def moved(critic: type, seed: int, rows: int = 6, reach: float = 2.0) -> tuple[Law, Law]:
    """New and old law of one critic, far apart."""
    net = head(critic, seed)
    return net(latents(seed, rows, reach=reach)).detach(), net(latents(seed + 1, rows)).detach()


@pytest.mark.parametrize("critic", CRITICS)
@settings(max_examples=25)
@given(seed=st.integers(0, 1000), width=st.floats(0.01, 3), reach=st.floats(0.1, 8))
def test_the_mean_is_held_at_the_edge_of_the_range(
    critic: type, seed: int, width: float, reach: float
) -> None:
    new, old = moved(critic, seed, reach=reach)
    for mode in (MeanClip(range=width), MeanAndVarianceClip(range=width)):
        if critic().kind in mode.critics:
            reach = width * new.scale
            expected = old.mean() + (new.mean() - old.mean()).clamp(-reach, reach)
            assert torch.allclose(mode.held(new, old).mean(), expected, atol=1e-5)


@catalogue("F26", "F27")
@settings(max_examples=25)
@given(seed=st.integers(0, 1000))
def test_mean_only_keeps_the_shape(seed: int) -> None:
    new, old = moved(QuantileCritic, seed)
    held = MeanClip(range=0.05).held(new, old)
    assert torch.allclose(held.std(), new.std(), rtol=1e-6)
    assert torch.allclose(
        held.quantiles - held.mean().unsqueeze(-1), new.quantiles - new.mean().unsqueeze(-1)
    )


@catalogue("F26")
@settings(max_examples=25)
@given(seed=st.integers(0, 1000), factor=st.floats(1, 3))
def test_mean_and_variance_bound_the_spread(seed: int, factor: float) -> None:
    new, old = moved(QuantileCritic, seed, reach=5.0)
    ratio = MeanAndVarianceClip(spread_factor=factor).held(new, old).std() / old.std()
    assert (ratio <= factor * (1 + 1e-6)).all()
    assert (ratio >= (1 - 1e-6) / factor).all()
    inside = (new.std() / old.std() < factor) & (new.std() / old.std() > 1 / factor)
    assert torch.allclose(ratio[inside], (new.std() / old.std())[inside])


@catalogue("F26")
@settings(max_examples=25)
@given(seed=st.integers(0, 1000), width=st.floats(0.01, 1))
def test_per_quantile_bounds_every_quantile(seed: int, width: float) -> None:
    new, old = moved(QuantileCritic, seed)
    held = QuantileClip(range=width).held(new, old)
    reach = width * new.scale
    expected = old.quantiles + (new.quantiles - old.quantiles).clamp(-reach, reach)
    assert torch.allclose(held.quantiles, expected)


@catalogue("F26")
def test_the_four_modes_and_the_critics_they_suit() -> None:
    kinds = [mode().kind for mode in get_args(get_args(ValueClipConfig)[0])]
    assert kinds == ["off", "mean_only", "mean_and_variance", "per_quantile"]
    for mode in (NoClip, *MODES):
        for critic in CRITICS:
            kind = critic().kind
            if kind in mode.critics:
                check_value_clip(mode(), kind)
            else:
                with pytest.raises(ConfigError, match=rf'works with .*critic\.kind was "{kind}"'):
                    check_value_clip(mode(), kind)
    with pytest.raises(ConfigError, match='"mean_and_variance" works with critic.kind quantile or'):
        check_value_clip(MeanAndVarianceClip(), "scalar")
    with pytest.raises(ConfigError, match="range: must be greater than 0; was 0"):
        MeanClip(range=0.0)
    with pytest.raises(ConfigError, match="spread_factor: must be at least 1; was 0.5"):
        MeanAndVarianceClip(spread_factor=0.5)


@pytest.mark.parametrize(("mode", "critic"), PAIRS)
def test_a_wide_range_changes_nothing(mode: type, critic: type) -> None:
    net, old = head(critic, 1), head(critic, 2)(latents(2, 5))
    atoms, weights = target(3, 5)
    wide = (
        mode(range=1e3) if mode is not MeanAndVarianceClip else mode(range=1e3, spread_factor=1e3)
    )
    slopes = []
    for clip in (NoClip(), wide):
        inputs = latents(1, 5).requires_grad_()
        loss = value_loss(net(inputs), old, atoms, weights, clip)
        slopes.append(torch.autograd.grad(loss.rows.sum(), inputs)[0])
        assert torch.allclose(loss.rows, loss.unclipped, atol=1e-9)
    assert torch.allclose(slopes[0], slopes[1], atol=1e-6)


@pytest.mark.parametrize(("mode", "critic"), PAIRS)
def test_gradient_by_finite_differences_and_none_to_the_old_law(mode: type, critic: type) -> None:
    net, before = head(critic, 1), latents(5, 4).requires_grad_()
    atoms, weights = target(6, 4)
    old = net(before)
    new = net(latents(4, 4, reach=2.0)).detach()
    # By the law's own numbers: the slope of a head may be steeper on the way back on purpose.
    name = new.ROW_FIELDS[0]
    inputs = getattr(new, name).clone().requires_grad_()

    def law(x: Tensor) -> Any:
        return replace(new, **{name: x.log_softmax(-1) if name == "log_probs" else x})

    rows = value_loss(law(inputs), old, atoms, weights, mode(range=0.1)).rows
    assert torch.autograd.grad(rows.sum(), before, allow_unused=True) == (None,)
    for width in (0.1, 10.0):  # every row held, and none
        clip = mode(range=width)
        assert torch.autograd.gradcheck(
            lambda x, clip=clip: value_loss(law(x), old.detach(), atoms, weights, clip).rows,
            (inputs,),
        )
        assert torch.autograd.gradcheck(
            lambda x, clip=clip: clip.held(law(x), old.detach()).loss(atoms, weights), (inputs,)
        )


def scalar(*values: float) -> ScalarValues:
    return ScalarValues(torch.tensor(values, dtype=torch.float64), torch.tensor(1.0).double())


def point(*values: float) -> tuple[Tensor, Tensor]:
    return torch.tensor(values, dtype=torch.float64).unsqueeze(-1), torch.ones(1).double()


@catalogue("F24")
def test_the_greater_loss_is_taken_row_by_row() -> None:
    # Row 0: new 1 is right, held 0.2 is off by 0.8. Row 1: new 3 is off by 3, held 0.2 by 0.2.
    loss = value_loss(scalar(1, 3), scalar(0, 0), *point(1, 0), MeanClip(range=0.2))
    assert loss.unclipped.tolist() == pytest.approx([0, 9])
    assert loss.clipped.tolist() == pytest.approx([0.64, 0.04])
    assert loss.rows.tolist() == pytest.approx([0.64, 9])
    # Mean of the maxima is 4.82; the greater of the means would be 4.5.
    assert loss.rows.mean().item() == pytest.approx(4.82)


@catalogue("F22", "F66")
def test_the_target_is_never_clipped() -> None:
    loss = value_loss(scalar(0.5), scalar(0), *point(100), MeanClip(range=0.2))
    assert loss.unclipped.item() == pytest.approx((100 - 0.5) ** 2)
    assert loss.rows.item() == loss.clipped.item() == pytest.approx((100 - 0.2) ** 2)


@catalogue("F23")
@pytest.mark.parametrize(("mode", "critic"), PAIRS)
def test_each_critic_is_held_near_its_own_old_law(mode: type, critic: type) -> None:
    clip, (atoms, weights) = mode(range=0.05), target(7, 5)
    pairs = [moved(critic, seed, rows=5) for seed in (0, 50)]
    reach = [clip.range * new.scale * (1 + 1e-4) for new, _ in pairs]
    # The old means of the two critics are further apart than both ranges together.
    assert ((pairs[0][1].mean() - pairs[1][1].mean()).abs() > reach[0] + reach[1]).any()
    for (new, old), band in zip(pairs, reach, strict=True):
        held = clip.held(new, old)
        assert ((held.mean() - old.mean()).abs() <= band).all()
        loss = value_loss(new, old, atoms, weights, clip)
        assert torch.equal(loss.clipped, held.loss(atoms, weights))
        assert torch.equal(loss.rows, torch.maximum(loss.unclipped, loss.clipped))


@catalogue("F25", "F22")
@pytest.mark.parametrize("mode", [MeanClip, MeanAndVarianceClip])
def test_both_terms_of_a_categorical_critic_have_the_same_unclipped_target(mode: type) -> None:
    new, old = moved(CategoricalCritic, 3)
    low, high = new.support[0], new.support[-1]
    # Far beyond the old mean ± range, still on the grid.
    atoms = (old.mean() + 3 * new.scale).clamp(max=high).unsqueeze(-1)
    weights = torch.ones(1, dtype=torch.float64)
    aim = project(atoms, weights, low, high, len(new.support))
    assert torch.allclose(aim @ new.support, atoms.squeeze(-1))
    loss = value_loss(new, old, atoms, weights, mode(range=0.1))
    held = mode(range=0.1).held(new, old)
    assert torch.allclose(loss.unclipped, categorical_loss(new.log_probs, aim))
    assert torch.allclose(loss.clipped, categorical_loss(held.log_probs, aim))


def test_mass_that_leaves_the_grid_is_made_up_for() -> None:
    # All mass in the lower half of the grid must move down by more than the grid has room for.
    support = torch.linspace(-1, 1, 11)
    log_probs = torch.full((1, 11), -1e9)
    log_probs[0, [1, 6]] = math.log(0.5)
    new = CategoricalValues(log_probs.log_softmax(-1), support, torch.tensor(1.0))
    certain = 50.0 * torch.eye(11)[1:2]
    old = CategoricalValues(certain.log_softmax(-1), support, torch.tensor(1.0))
    assert new.mean().item() == pytest.approx(-0.3)
    assert old.mean().item() == pytest.approx(-0.8)
    # Plain shifting by -0.45 would leave mass at -1 and -0.25: mean -0.625 instead of -0.75.
    plain = new.affine(torch.tensor([-0.45]), torch.ones(1))
    assert plain.mean().item() == pytest.approx(-0.625, abs=1e-5)
    held = MeanClip(range=0.05).held(new, old)
    assert held.mean().item() == pytest.approx(-0.75, abs=1e-5)
    assert held.probs()[0, 0].item() == pytest.approx(0.5, abs=1e-5)


@pytest.mark.parametrize("mode", [MeanClip(range=0.05), MeanAndVarianceClip(range=0.05)])
def test_gradient_where_the_shift_is_solved_for(mode: MeanClip | MeanAndVarianceClip) -> None:
    support, one = torch.linspace(-1, 1, 9, dtype=torch.float64), torch.tensor(1.0).double()
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 9, generator=draw, dtype=torch.float64).requires_grad_()
    # The old law sits at the lower end, so that much of the new mass is pushed off the grid.
    old = CategoricalValues((-3 * support).expand(3, 9).log_softmax(-1), support, one)
    atoms, weights = target(1, 3)

    def rows(x: Tensor) -> Tensor:
        new = CategoricalValues(x.log_softmax(-1), support, one)
        return mode.held(new, old).loss(atoms / 10, weights)

    new = CategoricalValues(logits.log_softmax(-1), support, one)
    plain = new.affine(old.mean() + 0.05 - new.mean(), torch.ones(3).double())
    assert ((plain.mean() - old.mean() - 0.05).abs() > 0.01).all()
    assert torch.autograd.gradcheck(rows, (logits,))


@catalogue("F65")
@pytest.mark.parametrize(("mode", "critic"), PAIRS)
def test_leading_axes_and_empty_batches(mode: type, critic: type) -> None:
    net = head(critic, 1)
    atoms, weights = target(6, 2, 3)
    new, old = net(latents(1, 2, 3)), net(latents(2, 2, 3))
    rows = value_loss(new, old, atoms, weights, mode()).rows
    assert rows.shape == (2, 3)
    single = value_loss(new.rows((1, 2)), old.rows((1, 2)), atoms[1, 2], weights, mode()).rows
    assert rows[1, 2].item() == pytest.approx(single.item(), abs=1e-9)
    none = value_loss(net(latents(1, 0)), net(latents(2, 0)), *target(6, 0), mode()).rows
    assert none.shape == (0,)
