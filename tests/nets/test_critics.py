"""Critic heads and their laws: one contract over the union, then what each kind promises."""

import math
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quantail.errors import ConfigError, DataError
from quantail.nets.critics import (
    CategoricalCritic,
    CategoricalValues,
    CriticConfig,
    QuantileCritic,
    QuantileValues,
    ScalarCritic,
    ScalarValues,
)
from quantail.nets.critics.quantile import spread_of
from tests.catalogue import catalogue

INPUTS = 6
CRITICS = [member() for member in get_args(get_args(CriticConfig)[0])]
TAIL = QuantileCritic(levels="tail", tail_alpha=0.05)
every_critic = pytest.mark.parametrize("config", [*CRITICS, TAIL], ids=lambda config: config.kind)
exact_critic = pytest.mark.parametrize(
    "config", [ScalarCritic(scale_rate=0.5), QuantileCritic(scale_rate=0.5)], ids=lambda c: c.kind
)


def latents(rows: int = 9, seed: int = 0) -> Tensor:
    return torch.randn(rows, INPUTS, generator=torch.Generator().manual_seed(seed))


def shaken(config: CriticConfig, seed: int = 1) -> torch.nn.Module:
    """A head whose outputs depend on the latent in every part, as after training."""
    torch.manual_seed(seed)
    head = config.build(INPUTS)
    with torch.no_grad():
        head.linear.weight += 0.1 * torch.randn_like(head.linear.weight)
    return head


def moved(head: torch.nn.Module, mean: float, std: float, rows: int = 400) -> None:
    atoms = mean + std * torch.randn(rows, 3, generator=torch.Generator().manual_seed(3))
    head.update_scale(atoms, torch.full((3,), 1 / 3), torch.ones(rows))


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


@catalogue("X38")
@exact_critic
@pytest.mark.parametrize(("mean", "std"), [(5.0, 3.0), (-400.0, 1000.0), (0.002, 0.001)])
def test_moving_the_return_scale_moves_no_prediction(config, mean, std):
    head = shaken(config)
    moved(head, 1.0, 2.0)
    before = head(latents())
    atoms_before, _ = before.atoms()
    moved(head, mean, std)
    after = head(latents())
    atoms_after, _ = after.atoms()
    size = max(float(after.scale), float(before.scale), abs(mean))
    assert (atoms_after - atoms_before).abs().max() < 1e-5 * size
    assert float(after.scale) != float(before.scale)


@catalogue("X38")
def test_moving_the_scale_moves_no_categorical_prediction_while_the_grid_fits():
    head = shaken(CategoricalCritic(scale_rate=0.5))
    moved(head, 1.0, 2.0)
    before, grid = head(latents()).mean(), head.support
    moved(head, 1.3, 2.2)
    torch.testing.assert_close(head(latents()).mean(), before, rtol=1e-5, atol=1e-5)
    assert head.support is grid


@catalogue("X38")
@pytest.mark.parametrize(("mean", "std"), [(1.0, 4.0), (3.0, 3.0), (1.0, 0.8)])
def test_laying_the_categorical_grid_anew_keeps_the_laws_closely(mean, std):
    # Smooth laws of deviation 0.6 old deviations with different means, as a trained head gives.
    head = CategoricalCritic(scale_rate=1.0).build(INPUTS)
    moved(head, 1.0, 2.0)
    unit = (head.support - 1.0) / 2.0
    with torch.no_grad():
        head.linear.weight.zero_()
        head.linear.weight[:, 0] = unit / 0.36 * 0.5
        head.linear.bias.copy_(-0.5 * unit.square() / 0.36)
    before = head(latents())
    moved(head, mean, std)
    after = head(latents())
    assert not torch.equal(before.support, after.support)
    assert (after.mean() - before.mean()).abs().max() < 0.03 * 2.0
    torch.testing.assert_close(after.std(), before.std(), rtol=0.05, atol=0)


@catalogue("X38")
@pytest.mark.parametrize("config", CRITICS, ids=lambda config: config.kind)
def test_predictions_recover_from_rewards_a_thousand_times_larger(config):
    torch.manual_seed(0)
    head = config.build(INPUTS)
    optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
    weights = torch.full((8,), 1 / 8)
    errors, spreads = [], []
    for update in range(16):
        size = 1.0 if update < 6 else 1000.0
        x = torch.randn(256, INPUTS)
        atoms = size * (x[:, :1] + 0.5 * torch.randn(256, 8))
        head.update_scale(atoms, weights, torch.ones(256))
        for rows in torch.randperm(256).repeat(10).split(64):
            optimizer.zero_grad()
            head(x[rows]).loss(atoms[rows], weights).mean().backward()
            optimizer.step()
        law = head(x).detach()
        errors.append((law.mean() / size - x[:, 0]).square().mean().sqrt().item())
        spreads.append(law.std().mean().item() / size)
    assert errors[15] < errors[5] + 0.02
    assert abs(spreads[15] - 0.5) < abs(spreads[5] - 0.5) + 0.05


@every_critic
def test_the_first_rollout_sets_the_scale_and_later_ones_are_averaged_in(config):
    head = type(config)(scale_rate=0.25).build(INPUTS)
    rows = [torch.randn(50, 2) * spread + shift for spread, shift in ((3, 7), (1, -2), (5, 0))]
    weights, row_weights = torch.tensor([0.3, 0.7]), torch.rand(50)
    shares = row_weights.double().unsqueeze(1) * weights.double() / row_weights.double().sum()
    moments = [
        ((part.double() * shares).sum(), (part.double().square() * shares).sum()) for part in rows
    ]
    # Debiased exponential average by its definition: weights (1 - η)^(t - k), normalized.
    for t in range(1, 4):
        head.update_scale(rows[t - 1], weights, row_weights)
        powers = torch.tensor([0.75 ** (t - k) for k in range(1, t + 1)]).double()
        powers /= powers.sum()
        mean = sum(p * m for p, (m, _) in zip(powers, moments[:t], strict=True))
        square = sum(p * s for p, (_, s) in zip(powers, moments[:t], strict=True))
        assert float(head.scale.mean) == pytest.approx(float(mean), rel=1e-6)
        assert float(head.scale.std) == pytest.approx(float((square - mean**2).sqrt()), rel=1e-6)


@every_critic
def test_rows_of_weight_zero_do_not_count(config):
    head, other = config.build(INPUTS), config.build(INPUTS)
    atoms, row_weights = torch.randn(20, 3), torch.ones(20)
    row_weights[5:] = 0
    spoiled = atoms.clone()
    spoiled[5:] = torch.nan
    head.update_scale(spoiled, torch.full((3,), 1 / 3), row_weights)
    other.update_scale(atoms[:5], torch.full((3,), 1 / 3), torch.ones(5))
    assert float(head.scale.std) == float(other.scale.std)
    head.update_scale(atoms, torch.full((3,), 1 / 3), torch.zeros(20))
    assert float(head.scale.std) == float(other.scale.std)
    assert int(head.scale.updates) == 1


@catalogue("F65")
@every_critic
@pytest.mark.parametrize("value", [0.0, -3.0, 1e9])
def test_constant_and_huge_returns_leave_everything_finite(config, value):
    head = config.build(INPUTS)
    for _ in range(3):
        head.update_scale(torch.full((8, 2), value), torch.full((2,), 0.5), torch.ones(8))
        law = head(latents())
        assert torch.isfinite(law.mean()).all()
        loss = law.loss(torch.full((9, 2), value), torch.full((2,), 0.5)).mean()
        head.zero_grad()
        loss.backward()
        assert all(torch.isfinite(p.grad).all() for p in head.parameters())


@catalogue("F65")
@every_critic
def test_an_empty_batch_and_one_row_work(config):
    head = config.build(INPUTS)
    assert head(torch.empty(0, INPUTS)).mean().shape == (0,)
    assert torch.isfinite(head(latents(1)).std()).all()


@every_critic
def test_targets_that_are_not_finite_are_refused(config):
    head = config.build(INPUTS)
    atoms = torch.zeros(4, 2)
    atoms[1, 0] = torch.inf
    with pytest.raises(DataError, match="1 of 4 rows of target atoms are not finite"):
        head.update_scale(atoms, torch.full((2,), 0.5), torch.ones(4))
    with pytest.raises(DataError, match=r"atoms \[R, M\], weights \[M\] and row_weights \[R\]"):
        head.update_scale(torch.zeros(4, 2), torch.ones(3), torch.ones(4))


@every_critic
def test_earlier_laws_keep_their_scale(config):
    head = config.build(INPUTS)
    law = head(latents())
    before = float(law.scale), law.mean().detach().clone()
    moved(head, 100.0, 50.0)
    assert float(law.scale) == before[0]
    torch.testing.assert_close(law.mean().detach(), before[1])


def test_rate_zero_keeps_the_scale_at_one():
    for config in CRITICS:
        head = type(config)(scale_rate=0.0).build(INPUTS)
        moved(head, 100.0, 50.0)
        assert float(head(latents()).scale) == 1


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
