"""SR(λ) atoms against the path of each atom, and the law of the draws."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quantail.errors import ConfigError, DataError
from quantail.targets.advantages import lambda_returns
from quantail.targets.distributions import atom_returns, sr_lambda, stratified_keep
from tests.reference import sr_lambda as reference


def rollout(seed: int, steps: int = 9, envs: int = 2, atoms: int = 5) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {
        "rewards": torch.randn(steps, envs, generator=draw, dtype=torch.float64),
        "next_atoms": torch.randn(steps, envs, atoms, generator=draw, dtype=torch.float64),
        "terminated": torch.rand(steps, envs, generator=draw) < 0.2,
        "truncated": torch.rand(steps, envs, generator=draw) < 0.2,
    }


@given(seed=st.integers(0, 10_000), share=st.floats(0, 1), gamma=st.floats(0.5, 1))
def test_each_atom_follows_its_draws(seed: int, share: float, gamma: float) -> None:
    data = rollout(seed)
    keep = torch.rand(9, 2, 5, generator=torch.Generator().manual_seed(seed + 1)) < share
    targets = atom_returns(**data, keep=keep, gamma=gamma)
    for env in range(2):
        for start in range(9):
            expected = [
                reference.atom_target(
                    data["rewards"][:, env].tolist(),
                    data["next_atoms"][:, env].tolist(),
                    data["terminated"][:, env].tolist(),
                    data["truncated"][:, env].tolist(),
                    keep[:, env].tolist(),
                    start,
                    atom,
                    gamma,
                )
                for atom in range(5)
            ]
            assert targets[start, env].tolist() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_without_chance_every_atom_is_a_lambda_return(lam: float) -> None:
    data = rollout(3)
    targets = sr_lambda(**data, gamma=0.9, lam=lam, generator=torch.Generator())
    atoms = data.pop("next_atoms")
    for atom in range(5):
        returns = lambda_returns(next_values=atoms[..., atom], **data, gamma=0.9, lam=lam)
        assert torch.allclose(targets[..., atom], returns, atol=1e-12)


def test_mean_over_draws_is_the_scalar_lambda_return() -> None:
    data = rollout(4, envs=1)
    many = {name: tensor.repeat_interleave(20_000, 1) for name, tensor in data.items()}
    generator = torch.Generator().manual_seed(0)
    targets = sr_lambda(**many, gamma=0.95, lam=0.7, generator=generator)
    atoms = data.pop("next_atoms")
    returns = lambda_returns(next_values=atoms.mean(-1), **data, gamma=0.95, lam=0.7)
    error = targets.mean(-1).std(1) / 20_000**0.5
    assert ((targets.mean((1, 2)) - returns[:, 0]).abs() <= 4.5 * error + 1e-9).all()


def test_a_terminal_reward_is_passed_on() -> None:
    # The row before the end takes r + γ r_end with probability λ: half of the atoms here.
    rewards = torch.tensor([[0.0], [10.0]])
    end = torch.tensor([[False], [True]])
    targets = sr_lambda(
        rewards,
        torch.zeros(2, 1, 100),
        end,
        torch.zeros_like(end),
        gamma=1.0,
        lam=0.5,
        generator=torch.Generator(),
    )
    assert sorted(targets[0, 0].tolist()) == [0.0] * 50 + [10.0] * 50


def test_draws_are_stratified_and_uniform_over_atoms() -> None:
    keep = stratified_keep((400, 50, 8), 0.8, torch.Generator().manual_seed(1))
    counts = keep.sum(-1)
    # 0.8 * 8 = 6.4: six or seven atoms, seven in 40 % of the rows.
    assert set(counts.flatten().tolist()) == {6, 7}
    assert (counts == 7).float().mean().item() == pytest.approx(0.4, abs=0.015)
    # s.e. of one atom's share over 20,000 rows is 0.0028.
    assert keep.float().mean((0, 1)).tolist() == pytest.approx([0.8] * 8, abs=0.013)
    # Without replacement, atoms i and j are both kept with probability E[k (k - 1)] / (8 * 7).
    both = (0.6 * 30 + 0.4 * 42) / 56
    pairs = keep.reshape(-1, 8).float()
    joint = pairs.T @ pairs / len(pairs)
    assert joint[~torch.eye(8, dtype=torch.bool)].sub(both).abs().max() < 0.016
    assert abs(_lag_correlation(keep)) < 0.02


def _lag_correlation(keep: torch.Tensor) -> float:
    first, second = keep[:-1, :, 0].float().flatten(), keep[1:, :, 0].float().flatten()
    return torch.corrcoef(torch.stack([first, second]))[0, 1].item()


def test_draws_follow_the_generator() -> None:
    first = stratified_keep((5, 4, 8), 0.6, torch.Generator().manual_seed(5))
    again = stratified_keep((5, 4, 8), 0.6, torch.Generator().manual_seed(5))
    other = stratified_keep((5, 4, 8), 0.6, torch.Generator().manual_seed(6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    generator = torch.Generator().manual_seed(5)
    stratified_keep((5, 4, 8), 0.6, generator)
    assert not torch.equal(first, stratified_keep((5, 4, 8), 0.6, generator))


def test_one_atom_and_bad_inputs() -> None:
    data = rollout(1, atoms=1)
    shape = sr_lambda(**data, gamma=0.9, lam=0.5, generator=torch.Generator()).shape
    assert shape == (9, 2, 1)
    with pytest.raises(ConfigError, match="gae_lambda must lie in"):
        sr_lambda(**data, gamma=0.9, lam=1.5, generator=torch.Generator())
    data["next_atoms"][2, 1, 0] = float("nan")
    with pytest.raises(DataError, match="next_atoms must be finite; 1 of 18 .* step 2 of env.* 1"):
        sr_lambda(**data, gamma=0.9, lam=0.5, generator=torch.Generator())
