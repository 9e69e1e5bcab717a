"""Mean against CVaR: the betting game, the peso variant and GambleChain, against exact tables."""

import numpy as np
import pytest
from scipy.stats import binom

from quantail.errors import ConfigError
from quantail.sim.problems import BettingGame, GambleChain, evaluate, peso_game, risk_score
from quantail.sim.problems.laws import discrete_cvar, sample_cvar
from quantail.sim.problems.lottery_solver import (
    Lotteries,
    best_mean_above,
    best_plan,
    fixed_plan,
    total_law,
)
from tests.sim.problems.slow_solvers import best_lottery_rule


@pytest.mark.parametrize(
    ("weight", "mean", "cvar"),
    [
        (0.0, 4.0, -11.509),
        (0.1, 3.9019, -9.981),
        (0.3, 3.0388, -5.264),
        (0.5, 2.2307, -3.000),
        (1.0, 1.0069, -1.000),
        (2.0, 0.0, 0.0),
        (5.0, 0.0, 0.0),
    ],
)
def test_betting_game_table(weight, mean, cvar):
    plan = best_plan(BettingGame().lotteries, 0.1, weight)
    assert plan.mean == pytest.approx(mean, abs=1.01e-4)
    assert plan.cvar == pytest.approx(cvar, abs=1.01e-3)


def test_betting_game_constant_sizes():
    solution = BettingGame().solve()
    assert solution.plans["always_2"].mean == pytest.approx(4.0, abs=1e-12)
    assert solution.plans["always_2"].cvar == pytest.approx(-11.509, abs=1e-3)
    assert solution.plans["always_1"].mean == pytest.approx(2.0, abs=1e-12)
    assert solution.plans["always_1"].cvar == pytest.approx(-5.755, abs=1e-3)


def test_betting_game_rule_is_safe_at_the_target_and_bold_beyond_it():
    plan = BettingGame(risk_weight=0.3).solve().plans["optimal"]
    assert plan.target == -5.0

    def size(time, total):
        return plan.choices[time, total - plan.lowest]

    assert [size(18, total) for total in (-8, -6, -5, -4, -3, 0)] == [2, 1, 0, 1, 2, 2]
    assert size(15, -5) == 0


def test_lottery_optimum_is_the_best_of_all_rules():
    lotteries = Lotteries(
        prizes=np.array([[1, 1], [4, -3]]),
        probabilities=np.array([[1.0, 0.0], [0.7, 0.3]]),
        n_steps=3,
        tick=0.5,
    )
    for weight in (0.0, 0.2, 0.7):
        plan = best_plan(lotteries, 0.25, weight)
        best = best_lottery_rule(lotteries, 0.25, weight)
        assert plan.mean + weight * plan.cvar == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize(
    ("weight", "mean", "cvar"),
    [
        (0.0, 2.0, -2.949),
        (0.05, 2.0, -2.949),
        (0.1, 1.969, -2.610),
        (0.15, 1.969, -2.610),
        (0.2, 1.744, -1.343),
        (0.3, 1.744, -1.343),
        (0.5, 1.0, 1.0),
        (3.0, 1.0, 1.0),
    ],
)
def test_gamble_chain_table(weight, mean, cvar):
    plan = GambleChain(risk_weight=weight).solve().plans["optimal"]
    assert plan.mean == pytest.approx(mean, abs=1.01e-3)
    assert plan.cvar == pytest.approx(cvar, abs=1.01e-3)


def test_gamble_chain_open_loop_table():
    plans = GambleChain().solve().plans
    means = [plans[f"risky_first_{n}"].mean for n in range(6)]
    tails = [plans[f"risky_first_{n}"].cvar for n in range(6)]
    assert means == pytest.approx([1.0, 1.2, 1.4, 1.6, 1.8, 2.0], abs=1e-12)
    assert tails == pytest.approx([1.0, -1.2, -1.6, -2.84, -2.664, -2.9488], abs=1e-12)


def test_gamble_chain_without_the_total_falls_back_to_the_best_schedule():
    blind = GambleChain(observe_total=False, risk_weight=0.25).solve()
    seeing = GambleChain(observe_total=True, risk_weight=0.25).solve()
    objective = {n: p.mean + 0.25 * p.cvar for n, p in blind.plans.items()}
    assert objective["optimal"] == max(objective.values())
    best = seeing.plans["optimal"]
    assert best.mean + 0.25 * best.cvar > objective["optimal"] + 0.1
    assert GambleChain(observe_total=False).build(2, 0).observation_space.shape == (1,)


@pytest.mark.parametrize(
    ("alpha", "cvar"), [(0.05, -0.343), (0.10, -0.267), (0.25, -0.178), (0.50, -0.029)]
)
def test_peso_table(alpha, cvar):
    full = fixed_plan(peso_game().lotteries, np.full(12, 4), alpha)
    assert full.mean == pytest.approx(0.0456, abs=1e-12)
    assert full.cvar == pytest.approx(cvar, abs=5.1e-4)
    losses = np.arange(13)
    law = binom.pmf(losses, 12, 0.02)
    assert full.cvar == pytest.approx(discrete_cvar(0.12 - 0.31 * losses, law, alpha), abs=1e-12)


@pytest.mark.parametrize("alpha", [0.05, 0.10, 0.25, 0.50])
def test_peso_constant_optimum_of_cvar_is_to_stay_out(alpha):
    lotteries = peso_game().lotteries
    constants = [fixed_plan(lotteries, np.full(12, size), alpha).cvar for size in range(5)]
    assert max(constants) == constants[0] == 0.0


def test_peso_rule_that_looks_at_its_wealth_beats_staying_out_at_one_half():
    # Staying out has the best CVaR for small tails. At one half a rule that stops at its target has
    # a positive one: half of the law is enough to hold the losses and some of the gains.
    lotteries = peso_game().lotteries
    assert best_plan(lotteries, 0.25, 1e4).cvar == 0.0
    adaptive = best_plan(lotteries, 0.5, 1e4)
    assert adaptive.cvar > 0.0025
    law = total_law(lotteries, adaptive.choices)
    assert law.sum() == pytest.approx(1.0, abs=1e-12)
    assert discrete_cvar(lotteries.totals, law, 0.5) == pytest.approx(adaptive.cvar, abs=1e-15)


def test_best_mean_under_a_limit():
    lotteries = BettingGame().lotteries
    plan = best_plan(lotteries, 0.1, 0.3)
    # the Lagrangian optimum is optimal for the limit that it meets exactly
    assert best_mean_above(lotteries, 0.1, plan.cvar) == pytest.approx(plan.mean, abs=1e-5)
    assert best_mean_above(lotteries, 0.1, -40.0) == pytest.approx(4.0, abs=1e-5)
    assert best_mean_above(lotteries, 0.1, 0.0) == pytest.approx(0.0, abs=1e-5)
    assert best_mean_above(lotteries, 0.1, 0.5) == -np.inf


def test_cvar_of_a_law_counts_the_last_atom_in_part():
    values, law = np.array([3.0, -1.0, 0.0]), np.array([0.5, 0.2, 0.3])
    assert discrete_cvar(values, law, 0.1) == pytest.approx(-1.0)
    assert discrete_cvar(values, law, 0.4) == pytest.approx((0.2 * -1.0 + 0.2 * 0.0) / 0.4)
    assert discrete_cvar(values, law, 1.0) == pytest.approx(1.3)
    assert sample_cvar(np.array([5.0, 1.0, 2.0, 9.0]), 0.5) == pytest.approx(1.5)


def test_risk_score_of_the_optimum_and_of_a_reckless_rule():
    problem = BettingGame()
    solution, policies = problem.solve(), problem.policies()
    limit = solution.plans["optimal"].cvar
    returns = evaluate(
        problem, policies["optimal"], n_envs=1000, n_steps=20, seed=5
    ).rewards.ravel()
    good = risk_score(problem, returns, limit)
    assert good.is_feasible
    assert good.fraction == pytest.approx(1.0, abs=0.05)
    assert good.cvar == pytest.approx(limit, abs=3.0 * good.cvar_standard_error)
    reckless = evaluate(problem, policies["always_2"], n_envs=1000, n_steps=20, seed=5)
    bad = risk_score(problem, reckless.rewards.ravel(), limit)
    assert not bad.is_feasible
    assert bad.fraction > 1.2


def test_risk_score_refuses_what_it_cannot_judge():
    problem = BettingGame()
    with pytest.raises(
        ConfigError, match="at least 200 episodes, 20 of them in the tail of 0.1; held 100"
    ):
        risk_score(problem, np.zeros(100), -5.0)
    with pytest.raises(ConfigError, match="must leave a positive best mean.*at 1 it is -inf"):
        risk_score(problem, np.zeros(1000), 1.0)


def test_fixed_plan_follows_its_schedule():
    plan = fixed_plan(GambleChain().lotteries, np.array([1, 0, 0, 0, 0]), 0.1)
    assert plan.mean == pytest.approx(0.8 * 1.0 - 0.2 * 2.0 + 4 * 0.2)
    assert (plan.choices[0] == 1).all()
    assert (plan.choices[1:] == 0).all()


@pytest.mark.parametrize("sizes", [(1, 0), (-1, 1), (1, 1)])
def test_betting_game_refuses_sizes_out_of_order(sizes):
    with pytest.raises(ConfigError, match="sizes: must be ascending and at least 0; was"):
        BettingGame(sizes=sizes)
