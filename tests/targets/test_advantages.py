"""GAE and λ-returns against their definitions, and at the ends of episodes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quantail.errors import ConfigError, DataError
from quantail.targets.advantages import gae, lambda_returns, next_values
from tests.catalogue import catalogue
from tests.reference import gae as reference

F, T = False, True


def rollout(seed: int, steps: int = 12, envs: int = 3) -> dict[str, Tensor]:
    """A random rollout with a few episode ends of both kinds."""
    draw = torch.Generator().manual_seed(seed)
    shape = (steps, envs)
    values = torch.randn(shape, generator=draw, dtype=torch.float64)
    truncated = torch.rand(shape, generator=draw) < 0.15
    final = torch.randn(int(truncated.sum()), generator=draw, dtype=torch.float64)
    last = torch.randn(envs, generator=draw, dtype=torch.float64)
    return {
        "rewards": torch.randn(shape, generator=draw, dtype=torch.float64),
        "values": values,
        "next_values": next_values(values, last, truncated, final),
        "terminated": torch.rand(shape, generator=draw) < 0.15,
        "truncated": truncated,
    }


def column(tensor: Tensor, env: int) -> list[float]:
    return tensor[:, env].tolist()


@catalogue("F69")
@given(seed=st.integers(0, 10_000), lam=st.floats(0, 1), gamma=st.floats(0.5, 1))
def test_gae_is_the_lambda_return_minus_the_value(seed: int, lam: float, gamma: float) -> None:
    data = rollout(seed)
    advantages = gae(**data, gamma=gamma, lam=lam)
    values = data.pop("values")
    returns = lambda_returns(**data, gamma=gamma, lam=lam)
    for env in range(values.shape[1]):
        expected = reference.lambda_returns(
            column(data["rewards"], env),
            column(data["next_values"], env),
            column(data["terminated"], env),
            column(data["truncated"], env),
            gamma,
            lam,
        )
        assert column(returns, env) == pytest.approx(expected, abs=1e-9)
        assert column(advantages + values, env) == pytest.approx(expected, abs=1e-9)


def test_five_steps_by_hand() -> None:
    # γ = 0.5, λ = 0.5, so γλ = 0.25. Row 1 is truncated (final value 8), row 3 terminates.
    rewards = torch.tensor([[1.0], [2.0], [3.0], [4.0], [5.0]])
    values = torch.tensor([[1.0], [1.0], [2.0], [2.0], [3.0]])
    truncated = torch.tensor([[F], [T], [F], [F], [F]])
    terminated = torch.tensor([[F], [F], [F], [T], [F]])
    following = next_values(values, torch.tensor([6.0]), truncated, torch.tensor([8.0]))
    assert following.flatten().tolist() == [1, 8, 2, 3, 6]
    # δ_4 = 5 + .5*6 - 3 = 5                A_4 = 5
    # δ_3 = 4 - 2 = 2                       A_3 = 2          (terminated: no value, no carry)
    # δ_2 = 3 + .5*2 - 2 = 2                A_2 = 2 + .25*2 = 2.5
    # δ_1 = 2 + .5*8 - 1 = 5                A_1 = 5          (truncated: value, no carry)
    # δ_0 = 1 + .5*1 - 1 = .5               A_0 = .5 + .25*5 = 1.75
    advantages = gae(rewards, values, following, terminated, truncated, gamma=0.5, lam=0.5)
    assert advantages.flatten().tolist() == [1.75, 5.0, 2.5, 2.0, 5.0]


@catalogue("F18", "X06")
def test_nothing_leaks_over_a_truncation() -> None:
    rewards = torch.zeros(6, 1)
    rewards[3] = 100.0  # in the episode after the truncation of row 2
    truncated = torch.zeros(6, 1, dtype=torch.bool)
    truncated[2] = True
    zeros, none = torch.zeros(6, 1), torch.zeros(6, 1, dtype=torch.bool)
    advantages = gae(rewards, zeros, zeros, none, truncated, gamma=0.99, lam=0.95)
    assert advantages[:3].abs().max() == 0
    assert advantages[3] == 100


def test_termination_ignores_the_next_value_and_truncation_uses_it() -> None:
    one, none = torch.ones(1, 1, dtype=torch.bool), torch.zeros(1, 1, dtype=torch.bool)
    zero, ten = torch.zeros(1, 1), torch.full((1, 1), 10.0)
    assert gae(zero, zero, ten, one, none, gamma=0.9, lam=1.0).item() == 0
    assert gae(zero, zero, ten, none, one, gamma=0.9, lam=1.0).item() == pytest.approx(9)
    assert gae(zero, zero, ten, one, one, gamma=0.9, lam=1.0).item() == 0


@given(seed=st.integers(0, 1000))
def test_permuting_environments_permutes_advantages(seed: int) -> None:
    data = rollout(seed, envs=5)
    order = torch.tensor([3, 0, 4, 1, 2])
    moved = {name: tensor[:, order] for name, tensor in data.items()}
    straight = gae(**data, gamma=0.9, lam=0.8)
    assert torch.equal(gae(**moved, gamma=0.9, lam=0.8), straight[:, order])


def test_long_rollouts_sum_in_double_precision() -> None:
    steps = 100_000
    rewards = torch.full((steps, 1), 0.1)
    zeros, none = torch.zeros(steps, 1), torch.zeros(steps, 1, dtype=torch.bool)
    total = gae(rewards, zeros, zeros, none, none, gamma=1.0, lam=1.0)[0].item()
    assert total == pytest.approx(steps * float(torch.tensor(0.1)), rel=1e-7)


def test_dtype_and_empty_truncations() -> None:
    values = torch.zeros(4, 2)
    none = torch.zeros(4, 2, dtype=torch.bool)
    following = next_values(values, torch.ones(2), none, torch.empty(0))
    assert following.tolist() == [[0, 0]] * 3 + [[1, 1]]
    assert gae(values, values, following, none, none, gamma=1.0, lam=1.0).dtype == torch.float32


def test_next_values_scatter_atoms_in_row_major_order() -> None:
    atoms = torch.arange(12.0).view(3, 2, 2)
    truncated = torch.tensor([[F, T], [T, F], [F, T]])
    final = torch.tensor([[-1.0, -2.0], [-3.0, -4.0], [-5.0, -6.0]])
    following = next_values(atoms, torch.full((2, 2), 99.0), truncated, final)
    assert following.tolist() == [[[4, 5], [-1, -2]], [[-3, -4], [10, 11]], [[99, 99], [-5, -6]]]
    assert atoms[0, 1].tolist() == [2, 3]


def test_a_truncated_step_without_its_value_is_refused() -> None:
    truncated = torch.tensor([[T], [F]])
    with pytest.raises(DataError, match=r"each of the 1 truncated steps; had 0\. Give the value"):
        next_values(torch.zeros(2, 1), torch.zeros(1), truncated, torch.empty(0))


@pytest.mark.parametrize("name", ["rewards", "values", "next_values"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_not_finite_are_refused(name: str, value: float) -> None:
    data = rollout(0)
    data[name][4, 1] = value
    with pytest.raises(DataError, match=rf"{name} must be finite; 1 of 36 .* step 4 of env.* 1"):
        gae(**data, gamma=0.9, lam=0.9)


def test_ranges_shapes_and_flags_are_checked() -> None:
    data = rollout(0)
    with pytest.raises(ConfigError, match=r"gamma must lie in \(0, 1\]; was 1\.1"):
        gae(**data, gamma=1.1, lam=0.9)
    with pytest.raises(ConfigError, match=r"gae_lambda must lie in \[0, 1\]; was -0\.1"):
        gae(**data, gamma=0.9, lam=-0.1)
    with pytest.raises(DataError, match=r"values must lead with the shape \[T, N\] of rewards"):
        gae(**{**data, "values": torch.zeros(12, 4)}, gamma=0.9, lam=0.9)
    with pytest.raises(DataError, match="terminated must be bool; was torch.float32"):
        gae(**{**data, "terminated": torch.zeros(12, 3)}, gamma=0.9, lam=0.9)
