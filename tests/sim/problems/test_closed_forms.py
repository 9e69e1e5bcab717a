"""Merton, Almgren-Chriss, the Gaussian weight and the small problems, against their formulas."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from quantail.errors import ConfigError, DataError
from quantail.sim.problems import (
    DistractorBandit,
    GaussianWeight,
    Merton,
    NegativeControl,
    OneStateChain,
    OptimalExecution,
    TMaze,
    block_permuted_signs,
    evaluate,
)
from quantail.sim.problems.execution_solver import evaluate_schedule
from quantail.sim.problems.laws import normal_cdf, normal_cvar_factor, normal_pdf
from tests.sim.problems.slow_solvers import fraction_band_by_grid


def test_normal_law_against_scipy():
    x = np.array([-9.0, -1.3, 0.0, 0.4, 7.0])
    assert normal_pdf(x) == pytest.approx(norm.pdf(x), rel=1e-12)
    assert normal_cdf(x) == pytest.approx(norm.cdf(x), rel=1e-12)
    assert normal_cdf(x.reshape(5, 1)).shape == (5, 1)


@pytest.mark.parametrize(
    ("risk_aversion", "fraction", "rate"), [(1.0, 1.5, 0.065), (3.0, 0.5, 0.035), (5.0, 0.3, 0.029)]
)
def test_merton_table(risk_aversion, fraction, rate):
    solution = Merton(risk_aversion=risk_aversion).solve()
    assert solution.continuous_fraction == pytest.approx(fraction, abs=1e-12)
    assert solution.continuous_rate == pytest.approx(rate, abs=1e-12)
    # daily steps: four digits of the fraction and of the rate
    assert solution.fraction == pytest.approx(fraction, rel=1e-3)
    assert solution.rate == pytest.approx(rate, abs=1e-5)


@pytest.mark.parametrize("risk_aversion", [1.0, 0.8, 4.0])
def test_merton_fraction_maximizes_the_mean_utility(risk_aversion):
    problem = Merton(risk_aversion=risk_aversion, steps_per_year=52, max_fraction=2.5)
    best = problem.solve()
    for change in (-0.2, -0.01, 0.01, 0.2):
        changed = problem.investor.mean_utility(best.fraction + change)
        assert changed < best.values["optimal"]
    # utility of a step by a plain sum over the law of the shock
    z = np.linspace(-9.0, 9.0, 20001)
    growth = math.exp(0.02 / 52) + 0.7 * (
        np.exp((0.08 - 0.02) / 52 + 0.2 / math.sqrt(52) * z) - math.exp(0.02 / 52)
    )
    power = 1.0 - risk_aversion
    plain = np.log(growth) if power == 0.0 else (growth**power - 1.0) / power
    mean = float((norm.pdf(z) * plain).sum() / norm.pdf(z).sum())
    assert problem.investor.mean_utility(0.7) == pytest.approx(mean, rel=1e-9)


def test_merton_band_agrees_with_value_iteration_on_a_grid():
    problem = Merton(risk_aversion=3.0, cost=0.02, steps_per_year=12, max_fraction=0.9)
    value, low, high = fraction_band_by_grid(problem.investor)
    solution = problem.solve()
    assert solution.values["optimal"] == pytest.approx(value, rel=1e-4)
    assert solution.band == pytest.approx((low, high), abs=0.005)


def test_merton_band_follows_the_cube_root_law_of_small_costs():
    # half-width → (3/(2γ)·π²(1 − π)²·c)^(1/3) for small costs and short steps
    problem = Merton(risk_aversion=3.0, cost=0.01)
    low, high = problem.solve().band
    expected = (1.5 / 3.0 * 0.25 * 0.25 * 0.01) ** (1.0 / 3.0)
    assert 0.5 * (high - low) == pytest.approx(expected, rel=0.05)
    assert low < 0.5 < high


def test_merton_fraction_moves_with_the_price():
    problem = Merton(cost=0.01, max_fraction=2.0)
    env = problem.build(1, seed=3)
    env.reset()
    first = env.step(np.array([[0.25]]))  # a fraction of 1/2
    shock = float(first.observation[0, 1])
    safe, price = math.exp(0.02 / 252), math.exp(0.06 / 252 + 0.2 / math.sqrt(252) * shock)
    growth = 0.5 * safe + 0.5 * price
    assert first.observation[0, 0] == pytest.approx(0.5 * price / growth / 2.0, rel=1e-6)
    assert first.reward[0] == pytest.approx(math.log(growth) - 0.01 * 0.5, rel=1e-6)


def test_merton_refuses_ruin_and_an_optimum_out_of_reach():
    with pytest.raises(ConfigError, match="max_fraction: must leave some wealth after"):
        Merton(steps_per_year=1)
    with pytest.raises(ConfigError, match=r"max_fraction: must exceed the optimum 1.5; was 1.2"):
        Merton(max_fraction=1.2)


def test_execution_example_of_the_paper():
    solution = OptimalExecution().solve()
    assert solution.decay_rate == pytest.approx(0.6071, abs=1e-4)
    best = solution.schedules["optimal"]
    printed = [1_000_000, 541_956, 289_854, 147_897, 62_142, 0]
    assert best.holdings == pytest.approx(printed, abs=1.0)
    assert best.expected_cost == pytest.approx(911_227, abs=1.0)
    assert math.sqrt(best.variance) == pytest.approx(603_431, abs=1.0)
    assert best.objective == pytest.approx(1_275_356, abs=1.0)
    even = solution.schedules["even"]
    assert even.expected_cost == pytest.approx(662_500, abs=1e-6)
    assert math.sqrt(even.variance) == pytest.approx(1_040_673, abs=1.0)
    assert even.objective == pytest.approx(1_745_500, abs=1e-6)
    assert solution.schedules["immediate"].expected_cost == pytest.approx(2_562_500, abs=1e-6)


@pytest.mark.parametrize("risk_aversion", [0.0, 1e-6, 1e-3])
def test_execution_closed_form_is_the_minimum(risk_aversion):
    problem = OptimalExecution(risk_aversion=risk_aversion, n_trades=4, interval=0.5)
    best = problem.solve().schedules["optimal"]

    def cost(inside):
        holdings = np.array([1e6, *(1e6 * inside), 0.0])
        return evaluate_schedule(problem.impact, holdings).objective

    found = minimize(
        cost, [0.7, 0.4, 0.2], method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-6}
    )
    assert best.objective <= found.fun * (1.0 + 1e-12)
    assert best.objective == pytest.approx(found.fun, rel=1e-6)


def test_execution_fractions_rebuild_the_holdings():
    schedules = OptimalExecution(n_trades=6).solve().schedules
    for plan in schedules.values():
        left = [1e6]
        for fraction in plan.fractions:
            left.append(left[-1] * (1.0 - fraction))
        assert left == pytest.approx(plan.holdings, abs=1e-6)


def test_execution_sells_what_is_left_in_the_last_trade():
    env = OptimalExecution(n_trades=2).build(1, seed=0)
    env.reset()
    first = env.step(np.array([[0.25]]))
    assert first.observation[0].tolist() == [0.5, 0.75]
    assert not first.terminated[0]
    # 250,000 sold: permanent 2.5e-7·750,000·250,000, spread 0.0625·250,000, temporary
    # 2.5e-6·250,000², risk 1e-6·0.9025·750,000²
    money = 46_875 + 15_625 + 156_250 + 507_656.25
    assert first.reward[0] == pytest.approx(-money / 1e6, rel=1e-12)
    last = env.step(np.array([[0.0]]))
    assert last.terminated[0]
    assert last.final_observation[0].tolist() == [1.0, 0.0]
    assert last.reward[0] == pytest.approx(
        -(0.0625 * 750_000 + 2.5e-6 * 750_000**2) / 1e6, rel=1e-12
    )


def test_execution_refuses_contradictions():
    with pytest.raises(ConfigError, match=r"temporary: must exceed permanent \* interval / 2"):
        OptimalExecution(temporary=1e-8)
    with pytest.raises(ConfigError, match='reward: must be "expected" when volatility is 0'):
        OptimalExecution(volatility=0.0, reward="realized")


@pytest.mark.parametrize(
    ("alpha", "factor", "weight"), [(0.05, 2.0627, 0.7457), (0.10, 1.7550, 0.9837)]
)
def test_gaussian_weight_table(alpha, factor, weight):
    assert normal_cvar_factor(alpha) == pytest.approx(factor, abs=1e-4)
    assert GaussianWeight(alpha=alpha).solve().weight == pytest.approx(weight, abs=1e-4)


def test_gaussian_weight_meets_its_limit_in_simulation():
    problem = GaussianWeight(n_steps=20, loss_limit=0.08)
    returns = evaluate(
        problem, problem.policies()["optimal"], n_envs=4000, n_steps=5, seed=2
    ).rewards
    tail = np.sort(returns.ravel())[: returns.size // 20]
    error = math.sqrt((tail.var() + 0.95 * (tail[-1] - tail.mean()) ** 2) / tail.size)
    assert tail.mean() == pytest.approx(-0.08, abs=3.0 * error)


def test_gaussian_weight_refuses_a_limit_that_never_binds():
    with pytest.raises(ConfigError, match="loss_limit: must bind below max_weight = 2; at 0.9"):
        GaussianWeight(loss_limit=0.9)


def test_one_state_law_and_the_width_of_scalar_targets():
    chain = OneStateChain(discount=0.95)
    law = chain.solve()
    assert law.mean == 0.0
    assert law.sd == pytest.approx(1.0 / math.sqrt(1.0 - 0.95**2))
    assert law.cvar(0.05) == pytest.approx(-2.0627 * law.sd, abs=1e-3)
    printed = {(0.95, 0.9): 0.602, (0.95, 1.0): 1.0, (0.95, 0.0): 0.312, (0.99, 0.95): 0.415}
    for (discount, gae_lambda), ratio in printed.items():
        found = OneStateChain(discount=discount).scalar_target_ratio(gae_lambda)
        assert found == pytest.approx(ratio, abs=6e-4)


def test_one_state_return_has_the_stated_law():
    chain = OneStateChain(mean=0.3, sd=2.0, discount=0.8, episode_length=100)
    env = chain.build(4000, seed=1)
    env.reset()
    total = sum(0.8**t * env.step(np.zeros(4000, dtype=np.int64)).reward for t in range(60))
    law = chain.solve()
    assert total.mean() == pytest.approx(law.mean, abs=3.0 * law.sd / math.sqrt(4000))
    assert total.std() == pytest.approx(law.sd, rel=3.0 / math.sqrt(8000))


def test_t_maze_shows_the_cue_once_and_pays_at_the_junction():
    env = TMaze(length=3).build(64, seed=0)
    first = env.reset()
    cue = first[:, 0]
    assert set(cue.tolist()) == {-1.0, 1.0}
    right = (cue > 0).astype(np.int64)
    for step in range(3):
        result = env.step(1 - right)
        assert (result.reward == 0.0).all()
        assert not result.terminated.any()
        expected = [0.0, 1.0 if step == 2 else 0.0]
        assert (result.observation == expected).all()
    wrong_half = np.where(np.arange(64) % 2 == 0, right, 1 - right)
    result = env.step(wrong_half)
    assert result.terminated.all()
    assert result.reward.tolist() == [1.0, 0.0] * 32


def test_distractor_bandit_draws_from_its_pool_alone():
    problem = DistractorBandit(n_contexts=5, n_dimensions=4)
    pool = problem.contexts()
    assert pool.shape == (5, 4)
    assert set(np.abs(pool[:, 0]).tolist()) == {1.0}
    env = problem.build(200, seed=0)
    seen = env.reset()
    assert {tuple(row) for row in seen.tolist()} == {tuple(row) for row in pool.tolist()}
    right = (seen[:, 0] > 0).astype(np.int64)
    assert (env.step(right).reward == 1.0).all()
    other = DistractorBandit(n_contexts=5, n_dimensions=4, context_seed=1).contexts()
    assert not np.array_equal(pool, other)


def test_distractor_bandit_noise_is_standard_normal():
    pool = DistractorBandit(n_contexts=4000).contexts()
    assert pool[:, 0].mean() == pytest.approx(0.0, abs=3.0 / math.sqrt(4000))
    assert pool[:, 1:].std() == pytest.approx(1.0, abs=0.01)
    assert np.abs(np.corrcoef(pool.T) - np.eye(50)).max() < 5.0 / math.sqrt(4000)


def test_martingale_observation_holds_the_past_and_not_the_future():
    env = NegativeControl(window=3).build(1, seed=4)
    env.reset()
    growth = []
    for _ in range(5):
        result = env.step(np.array([2]))
        growth.insert(0, float(result.observation[0, 0]) * 0.01)
        cost = 0.0005 if len(growth) == 1 else 0.0
        assert result.reward[0] == pytest.approx(growth[0] - cost, abs=1e-9)
        past = [*growth, 0.0, 0.0][:3]
        assert result.observation[0, :3] * 0.01 == pytest.approx(past, abs=1e-9)
        assert result.observation[0, 3] == 1.0


def test_sign_of_the_last_return_is_no_signal_in_the_negative_control():
    problem = NegativeControl(cost=0.0)
    found = evaluate(problem, problem.policies()["momentum"], n_envs=300, n_steps=300, seed=1)
    assert abs(found.value) < 2.0 * found.standard_error


@pytest.mark.parametrize("block_length", [1, 5, 64])
def test_block_permuted_signs_keep_sizes_and_lose_the_drift(block_length):
    rng = np.random.default_rng(0)
    returns = 0.02 + 0.01 * rng.standard_normal(64)
    many = np.stack([block_permuted_signs(returns, block_length, rng) for _ in range(1500)])
    np.testing.assert_allclose(np.abs(many), np.broadcast_to(np.abs(returns), many.shape))
    error = many.std(axis=0) / math.sqrt(1500)
    assert (np.abs(many.mean(axis=0)) < 4.5 * error).all()
    changes = (np.diff(np.sign(many), axis=1) != 0).mean()
    assert changes == pytest.approx({1: 0.5, 5: 12 * 0.5 / 63, 64: 0.0}[block_length], abs=0.05)


def test_block_permuted_signs_refuses_a_block_longer_than_the_data():
    with pytest.raises(DataError, match=r"block_length must be in 1\.\.3, .*; was 4"):
        block_permuted_signs(np.ones(3), 4, np.random.default_rng(0))
