"""Critic heads and their laws: one contract over the union, then what each kind promises."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quantail.errors import ConfigError
from quantail.nets.critics import (
    CategoricalCritic,
    CategoricalValues,
    QuantileCritic,
    QuantileValues,
    ScalarCritic,
    ScalarValues,
)
from quantail.nets.critics.quantile import spread_of
from tests.catalogue import catalogue
from tests.nets.critic_cases import CRITICS, INPUTS, TAIL, every_critic, latents, moved, shaken


def test_the_union_holds_three_kinds():
    assert {config.kind for config in CRITICS} == {"quantile", "categorical", "scalar"}


@every_critic
def test_mean_and_spread_are_those_of_the_atoms(config):
    law = shaken(config)(latents())
    atoms, weights = law.atoms()
    assert weights.sum() == pytest.approx(1, abs=1e-6)
    torch.testing.assert_close(atoms @ weights, law.mean(), rtol=1e-5, atol=1e-5)
    spread = ((atoms - law.mean().unsqueeze(-1)).square() @ weights).sqrt()
    # Slices of a categorical law lose the little spread inside them.
    torch.testing.assert_close(spread, law.std(), rtol=0.01, atol=1e-5)
    assert (atoms.diff(dim=-1) >= -1e-6).all()


@every_critic
def test_quantiles_and_cvar_rise_with_their_level(config):
    law = shaken(config)(latents())
    for measure in (law.quantile, law.cvar):
        values = torch.stack([measure(level) for level in (0.01, 0.05, 0.3, 0.7, 1.0)])
        assert (values.diff(dim=0) >= -1e-6).all()
    assert (law.cvar(0.1) <= law.quantile(0.1) + 1e-6).all()
    torch.testing.assert_close(law.cvar(1.0), law.mean(), rtol=1e-5, atol=1e-5)


@every_critic
def test_affine_moves_mean_and_spread(config):
    law = shaken(config)(latents())
    shift, scale = torch.linspace(-0.3, 0.3, 9), torch.linspace(0.8, 1.0, 9)
    other = law.affine(shift, scale)
    torch.testing.assert_close(other.mean(), shift + scale * law.mean(), rtol=0, atol=2e-3)
    torch.testing.assert_close(other.std(), scale * law.std(), rtol=0.02, atol=1e-6)


@every_critic
def test_the_loss_is_least_at_its_target(config):
    law = shaken(config)(latents()).detach()
    atoms, weights = law.atoms()
    best = law.loss(atoms, weights)
    assert best.shape == (9,)
    for shift in (-0.4, 0.4):
        assert (
            law.affine(torch.full((9,), shift), torch.ones(9)).loss(atoms, weights) > best
        ).all()


@catalogue("X01")
@every_critic
def test_every_parameter_gets_a_gradient(config):
    head = config.build(INPUTS)
    law = head(latents())
    law.loss(torch.randn(9, 4) + 1, torch.full((4,), 0.25)).mean().backward()
    for name, parameter in head.named_parameters():
        per_output = parameter.grad.reshape(len(parameter), -1).abs().amax(dim=1)
        assert (per_output > 0).all(), name


@every_critic
def test_rows_stack_join_and_detach(config):
    law = shaken(config)(latents(12).view(4, 3, INPUTS))
    torch.testing.assert_close(law.rows(2).mean(), law.mean()[2])
    mask = torch.tensor([[True, False, True]] * 4)
    torch.testing.assert_close(law.rows(mask).mean(), law.mean()[mask])
    again = type(law).stack([law.rows(t) for t in range(4)])
    torch.testing.assert_close(again.mean(), law.mean())
    torch.testing.assert_close(type(law).join([law, law]).mean(), law.mean().repeat(2, 1))
    assert law.mean().requires_grad
    assert not law.detach().mean().requires_grad


@every_critic
def test_losses_are_in_units_of_the_return_scale(config):
    law = shaken(config)(latents()).detach()
    atoms, weights = torch.randn(9, 5), torch.full((5,), 0.2)
    if isinstance(law, CategoricalValues):
        large = CategoricalValues(law.log_probs, law.support * 1000, law.scale * 1000)
    elif isinstance(law, QuantileValues):
        large = QuantileValues(
            law.quantiles * 1000, law.levels, law.weights, law.scale * 1000, law.kappa
        )
    else:
        large = ScalarValues(law.values * 1000, law.scale * 1000)
    torch.testing.assert_close(
        large.loss(atoms * 1000, weights), law.loss(atoms, weights), rtol=1e-4, atol=1e-6
    )


@catalogue("F65")
@every_critic
def test_an_empty_batch_and_one_row_work(config):
    head = config.build(INPUTS)
    assert head(torch.empty(0, INPUTS)).mean().shape == (0,)
    assert torch.isfinite(head(latents(1)).std()).all()


def test_the_spread_of_a_point_has_gradient_zero():
    quantiles = torch.full((1, 4), 2.0, requires_grad=True)
    law = QuantileValues(
        quantiles, torch.linspace(0.1, 0.9, 4), torch.full((4,), 0.25), torch.ones(()), 0.0
    )
    law.std().sum().backward()
    assert quantiles.grad.abs().max() == 0


def test_the_slope_of_a_small_spread_is_not_small():
    log_spread = torch.tensor([-7.0, 0.0, 2.0], requires_grad=True)
    spread = spread_of(log_spread)
    torch.testing.assert_close(spread, log_spread.exp())
    spread.sum().backward()
    torch.testing.assert_close(log_spread.grad, log_spread.detach().exp().clamp(min=1.0))


@given(st.floats(0.01, 30), st.integers(0, 1000))
def test_quantiles_never_cross(size, seed):
    law = shaken(TAIL, seed)(size * latents(seed=seed))
    assert (law.quantiles.diff(dim=-1) >= 0).all()


def test_the_mean_of_the_quantiles_is_a_direct_output():
    head = shaken(TAIL)
    moved(head, 3.0, 2.0)
    direct = head.linear(latents())[:, 0] * head.scale.std + head.scale.mean
    torch.testing.assert_close(
        head(latents()).mean(), direct.to(torch.float32), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("config", [QuantileCritic(), CategoricalCritic()], ids=lambda c: c.kind)
def test_an_untrained_critic_predicts_a_normal_law(config):
    law = config.build(INPUTS)(torch.zeros(1, INPUTS)).detach()
    assert float(law.mean()) == pytest.approx(0, abs=1e-5)
    assert float(law.std()) == pytest.approx(1, abs=0.03)
    assert float(law.quantile(0.25)) == pytest.approx(-0.674, abs=0.15)


@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.3])
@pytest.mark.parametrize("count", [16, 32, 64])
def test_tail_levels_resolve_the_tail(alpha, count):
    edges = QuantileCritic(levels="tail", tail_alpha=alpha, n_quantiles=count).edges()
    assert len(edges) == count + 1
    assert edges[0] == 0
    assert edges[-1] == 1
    assert (edges.diff() > 0).all()
    inside = int((edges[1:] <= alpha + 1e-12).sum())
    assert inside == max(8, count // 4)


@catalogue("F21")
def test_the_quantile_head_finds_the_quantiles_of_a_skewed_law():
    # Exponential law: F⁻¹(τ) = -log(1 - τ).
    torch.manual_seed(0)
    head = QuantileCritic(n_quantiles=16).build(1)
    target = -torch.log1p(-(torch.arange(500) + 0.5) / 500).unsqueeze(0)
    weights = torch.full((500,), 2e-3)
    head.update_scale(target, weights, torch.ones(1))
    optimizer = torch.optim.Adam(head.parameters(), lr=0.05)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, total_iters=600)
    for _ in range(600):
        optimizer.zero_grad()
        head(torch.ones(1, 1)).loss(target, weights).sum().backward()
        optimizer.step()
        schedule.step()
    law = head(torch.ones(1, 1))
    truth = -torch.log1p(-law.levels)
    assert ((law.quantiles[0] - truth).abs() <= 0.02 * truth.clamp(min=0.1)).all()


def test_slices_of_a_categorical_law_are_its_tail_means():
    law = shaken(CategoricalCritic())(latents()).detach()
    atoms, weights = law.atoms()
    for tail in (1, 5, 20):
        share = tail / len(weights)
        torch.testing.assert_close(atoms[:, :tail].mean(-1), law.cvar(share), rtol=1e-4, atol=1e-4)


def test_a_categorical_law_says_what_lies_beyond_its_grid():
    law = CategoricalCritic().build(INPUTS)(latents(1))
    share = law.outside(torch.tensor([[-7.0, 0.0, 9.0, 1.0]]), torch.full((4,), 0.25))
    assert share.tolist() == [0.5]


def test_a_categorical_law_refuses_to_hold_its_quantiles():
    law = CategoricalCritic().build(INPUTS)(latents(1))
    with pytest.raises(ConfigError, match='"per_quantile" needs critic.kind quantile or scalar'):
        law.clamp(law, torch.tensor(0.1))


@pytest.mark.parametrize("config", [QuantileCritic(), ScalarCritic()], ids=lambda c: c.kind)
def test_clamp_holds_every_part_near_the_center(config):
    new, old = shaken(config, 1)(latents()), shaken(config, 2)(latents())
    held = new.clamp(old, torch.tensor(0.1))
    distance = (held.atoms()[0] - old.atoms()[0]).abs()
    assert distance.max() <= 0.1 + 1e-6
    free = (new.atoms()[0] - old.atoms()[0]).abs() < 0.1
    torch.testing.assert_close(held.atoms()[0][free], new.atoms()[0][free])


@catalogue("F65")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: QuantileCritic(n_quantiles=1), "n_quantiles: must be at least 2; was 1"),
        (lambda: CategoricalCritic(n_atoms=1), "n_atoms: must be at least 2; was 1"),
        (lambda: QuantileCritic(tail_alpha=0.05), r"critic\.tail_alpha has no effect"),
        (lambda: QuantileCritic(levels="tail"), r"needs critic\.tail_alpha"),
        (
            lambda: QuantileCritic(levels="tail", tail_alpha=0.1, n_quantiles=12),
            r"critic\.n_quantiles must be at least 16",
        ),
        (lambda: QuantileCritic(kappa=-1.0), "kappa: must be at least 0"),
        (lambda: ScalarCritic(scale_rate=1.5), "scale_rate: must be at most 1"),
        (lambda: CategoricalCritic(half_width=math.inf), "half_width: must be finite"),
    ],
)
def test_contradictions_are_refused_when_the_config_is_built(make, message):
    with pytest.raises(ConfigError, match=message):
        make()
