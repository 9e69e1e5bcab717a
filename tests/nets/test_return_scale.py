"""Return scale: statistics, predictions that stay, recovery after a jump."""

import pytest
import torch

from quantail.errors import DataError
from quantail.nets.critics import (
    CategoricalCritic,
)
from tests.catalogue import catalogue
from tests.nets.critic_cases import (
    CRITICS,
    INPUTS,
    every_critic,
    exact_critic,
    latents,
    moved,
    shaken,
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
