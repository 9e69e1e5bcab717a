"""Advantage normalization: statistics, weights and what must not be blown up."""

import numpy as np
import pytest
import torch

from quantail.errors import DataError
from quantail.targets.normalize import normalize_advantages
from tests.catalogue import catalogue


def advantages(seed: int = 0, steps: int = 50, envs: int = 4) -> torch.Tensor:
    return 3.0 + 2.0 * torch.randn(steps, envs, generator=torch.Generator().manual_seed(seed))


@catalogue("F15")
def test_whole_rollout_has_mean_zero_and_std_one() -> None:
    rows = advantages()
    normalized, info = normalize_advantages(rows, torch.ones_like(rows))
    assert normalized.mean().item() == pytest.approx(0, abs=1e-6)
    assert normalized.std(correction=0).item() == pytest.approx(1, abs=1e-6)
    assert info.mean.item() == pytest.approx(np.mean(rows.double().numpy()), abs=1e-9)
    assert info.std.item() == pytest.approx(np.std(rows.double().numpy()), abs=1e-9)
    assert info.max_abs.item() == pytest.approx(normalized.abs().max().item())
    assert not info.degenerate


@catalogue("F15")
def test_statistics_do_not_depend_on_the_order_of_rows() -> None:
    rows = advantages()
    normalized, _ = normalize_advantages(rows, torch.ones_like(rows))
    order = torch.randperm(rows.numel(), generator=torch.Generator().manual_seed(1))
    shuffled, _ = normalize_advantages(rows.flatten()[order].view(50, 4), torch.ones_like(rows))
    assert torch.allclose(shuffled.flatten(), normalized.flatten()[order], atol=1e-6)


@catalogue("F16")
def test_equal_advantages_become_zero() -> None:
    rows = torch.full((16, 2), 0.5)
    normalized, info = normalize_advantages(rows, torch.ones_like(rows))
    assert normalized.abs().max() < 1e-2
    assert info.degenerate


@catalogue("F16")
@pytest.mark.parametrize("center", [0.5, 1e4])
def test_rounding_noise_is_not_blown_up(center: float) -> None:
    noise = torch.randn(64, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    rows = center * (1 + 1e-9 * noise)
    normalized, info = normalize_advantages(rows, torch.ones_like(rows))
    assert normalized.abs().max() < 1e-2
    assert info.degenerate


@catalogue("F16")
def test_small_but_real_advantages_keep_teaching() -> None:
    rows = 1e-5 * torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
    normalized, info = normalize_advantages(rows, torch.ones_like(rows))
    assert normalized.std(correction=0).item() == pytest.approx(1, abs=1e-4)
    assert not info.degenerate


@catalogue("F17")
def test_per_environment_statistics() -> None:
    rows = advantages(envs=2) * torch.tensor([1.0, 10.0])
    single, _ = normalize_advantages(rows, torch.ones_like(rows), per_env=True)
    assert single.mean(0).tolist() == pytest.approx([0, 0], abs=1e-5)
    assert single.std(0, correction=0).tolist() == pytest.approx([1, 1], abs=1e-5)
    pooled, _ = normalize_advantages(rows, torch.ones_like(rows))
    ratio = pooled[:, 1].std() / pooled[:, 0].std()
    assert ratio.item() == pytest.approx((rows[:, 1].std() / rows[:, 0].std()).item(), rel=1e-4)


@catalogue("F16", "F17")
def test_one_flat_environment_is_left_undivided() -> None:
    rows = advantages(envs=2)
    rows[:, 1] = 7.0
    normalized, info = normalize_advantages(rows, torch.ones_like(rows), per_env=True)
    assert normalized[:, 1].abs().max() == 0
    assert normalized[:, 0].std(correction=0).item() == pytest.approx(1, abs=1e-5)
    assert info.degenerate


def test_rows_without_weight_are_left_out() -> None:
    rows = advantages()
    weights = torch.ones_like(rows)
    weights[10:] = 0
    wild = rows.clone()
    wild[10:] = 1e6
    normalized, info = normalize_advantages(wild, weights)
    expected, _ = normalize_advantages(rows[:10], torch.ones(10, 4))
    assert torch.allclose(normalized[:10], expected, atol=1e-6)
    assert normalized[10:].abs().max() == 0
    assert info.max_abs.item() == pytest.approx(expected.abs().max().item(), rel=1e-6)


@catalogue("X42")
def test_fractional_weights_count_as_fractions() -> None:
    # A row with weight 2 is the same as two rows.
    rows = torch.tensor([[1.0], [4.0], [7.0]])
    normalized, info = normalize_advantages(rows, torch.tensor([[0.5], [1.0], [0.5]]))
    twice, _ = normalize_advantages(torch.tensor([[1.0], [4.0], [4.0], [7.0]]), torch.ones(4, 1))
    assert torch.allclose(normalized, twice[[0, 1, 3]], atol=1e-6)
    assert info.std.item() == pytest.approx(4.5**0.5)


@catalogue("F65")
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_one_row_or_none(weight: float) -> None:
    normalized, info = normalize_advantages(torch.tensor([[5.0]]), torch.tensor([[weight]]))
    assert normalized.item() == 0
    assert info.degenerate
    assert torch.isfinite(info.std)


def test_bad_inputs_are_refused() -> None:
    rows = advantages()
    with pytest.raises(DataError, match=r"share a shape \[T, N\].* \(50, 4\) and \(50,\)"):
        normalize_advantages(rows, torch.ones(50))
    with pytest.raises(DataError, match="weights must be at least 0; the least was -1"):
        normalize_advantages(rows, -torch.ones_like(rows))
    rows[3, 2] = float("nan")
    with pytest.raises(DataError, match="advantages must be finite; 1 of 200 are not"):
        normalize_advantages(rows, torch.ones_like(rows))
