"""The tail advantage against a plain loop, its two limits, and exact policy improvement."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quantail.errors import ConfigError, DataError
from quantail.risk.budget import next_budget
from quantail.risk.tail_advantage import risk_values, tail_errors
from quantail.targets.advantages import gae
from tests.reference import tail_risk as plain

M = 5


def case(seed: int, steps: int = 9, gamma: float = 0.9) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(seed)
    kinds = rng.choice(["", "terminated", "truncated"], steps, p=[0.6, 0.2, 0.2])
    weights = rng.dirichlet(np.ones(M))
    laws, after = rng.normal(size=(2, steps, M)) * 2
    rewards = rng.normal(size=steps)
    restarts = rng.normal(size=steps)
    budgets, budget, fresh = [], rng.normal(), iter(restarts)
    for t in range(steps):
        budgets.append(budget)
        budget = next(fresh) if kinds[t] else (budget - rewards[t]) / gamma
    return {
        "rewards": torch.tensor(rewards)[:, None],
        "budgets": torch.tensor(budgets)[:, None],
        "atoms": torch.tensor(laws)[:, None],
        "next_atoms": torch.tensor(after)[:, None],
        "weights": torch.tensor(weights),
        "terminated": torch.tensor(kinds == "terminated")[:, None],
        "truncated": torch.tensor(kinds == "truncated")[:, None],
        "restarts": torch.tensor(restarts),
    }


@given(
    seed=st.integers(0, 10_000),
    alpha=st.sampled_from([0.01, 0.1, 1.0]),
    gamma=st.sampled_from([0.5, 0.9, 1.0]),
    lam=st.sampled_from([0.0, 0.8, 1.0]),
)
def test_equals_the_plain_loop(seed: int, alpha: float, gamma: float, lam: float) -> None:
    x = case(seed, gamma=gamma)
    errors = tail_errors(
        x["rewards"],
        x["budgets"],
        x["atoms"],
        x["next_atoms"],
        x["weights"],
        x["terminated"],
        alpha=alpha,
        gamma=gamma,
    )
    zero = torch.zeros_like(errors)
    found = gae(errors, zero, zero, x["terminated"], x["truncated"], gamma=gamma, lam=lam)
    ends = np.where(x["terminated"], "terminated", np.where(x["truncated"], "truncated", ""))
    expected = plain.tail_advantages(
        x["rewards"][:, 0].tolist(),
        float(x["budgets"][0]),
        x["atoms"][:, 0].tolist(),
        x["weights"].tolist(),
        ends[:, 0].tolist(),
        x["next_atoms"][:, 0].tolist(),
        alpha,
        gamma,
        lam,
        x["restarts"].tolist(),
    )
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-9, atol=1e-9)


def deltas(budget: float, *, terminated: bool = False) -> tuple[float, float]:
    """The tail error of one row and the error of the mean, with rewards and laws drawn once."""
    rng = np.random.default_rng(3)
    atoms, after = torch.tensor(rng.normal(size=(2, 1, 1, M)))
    weights = torch.full((M,), 1 / M, dtype=torch.float64)
    reward, end = torch.tensor([[0.7]]), torch.tensor([[terminated]])
    error = tail_errors(
        reward, torch.tensor([[budget]]), atoms, after, weights, end, alpha=0.1, gamma=0.9
    )
    following = 0.0 if terminated else float(after.mean())
    return float(error), 0.7 + 0.9 * following - float(atoms.mean())


@pytest.mark.parametrize("budget", [50.0, 1e6, 1e12])
@pytest.mark.parametrize("terminated", [False, True])
def test_deep_in_the_tail_it_is_the_mean_error_over_alpha(budget: float, terminated: bool) -> None:
    tail, mean = deltas(budget, terminated=terminated)
    assert tail == pytest.approx(mean / 0.1, rel=1e-6)


@pytest.mark.parametrize("budget", [-50.0, -1e6, -1e12])
def test_far_above_the_tail_it_is_nothing(budget: float) -> None:
    assert deltas(budget)[0] == 0.0


def test_a_terminal_shortfall_stays() -> None:
    """b = 2, r = 0.5, then nothing follows: 1.5 is missing; before, 2 - 1 was expected to."""
    error = tail_errors(
        torch.tensor([[0.5]]),
        torch.tensor([[2.0]]),
        torch.tensor([[[1.0]]]),
        torch.tensor([[[9.0]]]),
        torch.ones(1),
        torch.tensor([[True]]),
        alpha=0.25,
        gamma=1.0,
    )
    assert float(error) == pytest.approx((1.0 - 1.5) / 0.25)


def test_risk_values_are_expected_shortfalls() -> None:
    atoms, weights = torch.tensor([[-1.0, 0.0, 3.0]]), torch.tensor([0.2, 0.3, 0.5])
    # 0.2 (1 + 1) + 0.3 (1 - 0) = 0.7
    assert float(risk_values(torch.tensor([1.0]), atoms, weights, 0.1)) == pytest.approx(-7.0)


@pytest.mark.parametrize("gamma", [0.9, 1.0])
def test_budgets_carry_the_shortfall_of_the_episode(gamma: float) -> None:
    rewards = np.random.default_rng(0).normal(size=12)
    budget = torch.tensor(0.4, dtype=torch.float64)
    for reward in rewards:
        budget = next_budget(budget, torch.tensor(reward), gamma)
    total = float((rewards * gamma ** np.arange(12)).sum())
    assert gamma**12 * float(budget) == pytest.approx(0.4 - total, abs=1e-12)


def test_a_budget_does_not_overflow() -> None:
    budget = torch.tensor(1.0, dtype=torch.float64)
    for _ in range(10_000):
        budget = next_budget(budget, torch.tensor(0.0), 0.5)
    assert torch.isfinite(budget)


def test_refusals_name_what_is_wrong() -> None:
    rows, law = torch.zeros(2, 3), torch.zeros(2, 3, M)
    good = (rows, rows, law, law, torch.full((M,), 1 / M), rows.bool())
    tail_errors(*good, alpha=0.1, gamma=1.0)
    with pytest.raises(ConfigError, match=r"cvar_alpha must lie in \(0, 1\]; was 0"):
        tail_errors(*good, alpha=0.0, gamma=1.0)
    with pytest.raises(DataError, match=r"must share their rows .* \(2, 2\)"):
        tail_errors(rows, rows[:, :2], *good[2:], alpha=0.1, gamma=1.0)
    with pytest.raises(DataError, match="rewards must be finite"):
        tail_errors(rows + torch.inf, *good[1:], alpha=0.1, gamma=1.0)
