import dataclasses
import math

import numpy as np
import pytest

from quantail import DistributionalPPO
from quantail.errors import ConfigError
from quantail.evaluation.bootstrap import BootstrapConfig
from quantail.evaluation.evaluate_problem import (
    ProblemEvaluation,
    compare_runs,
    judge_problem,
    optimum_fraction,
    problem_measures,
)
from quantail.evaluation.policies import RuleOfProblem
from quantail.evaluation.problem_run import ProblemTask, make_problem_track, run_problem
from quantail.evaluation.record_file import load_evaluation, save_evaluation
from quantail.sb3.problem_vec_env import ProblemVecEnv
from quantail.sim.problems import (
    BettingGame,
    HiddenRegime,
    NegativeControl,
    Policy,
    QuadraticCost,
    TMaze,
    evaluate,
    score,
)

FEW = BootstrapConfig(samples=400)


def runs_of(task, **renamed):
    policies = task.problem.policies()
    return {
        name: run_problem(task, RuleOfProblem(policies[rule])) for name, rule in renamed.items()
    }


@pytest.fixture(scope="module")
def regime():
    task = ProblemTask(HiddenRegime(), n_envs=40, n_steps=150, seed=4, burn_in=50)
    return task, runs_of(task, optimal="optimal", flat="flat")


@pytest.fixture(scope="module")
def quadratic():
    task = ProblemTask(QuadraticCost(), n_envs=150, n_steps=150, seed=4, burn_in=50)
    return task, runs_of(task, agent="scaled_markowitz", myopic="myopic", optimal="optimal")


SAME = {"n_envs": 150, "n_steps": 150, "seed": 4, "burn_in": 50}


def test_a_run_gives_the_rewards_of_the_problems_own_evaluation(quadratic):
    _, runs = quadratic
    theirs = evaluate(QuadraticCost(), QuadraticCost().policies()["scaled_markowitz"], **SAME)
    np.testing.assert_allclose(runs["agent"].rewards.mean(axis=0), theirs.rewards[:, 0], rtol=1e-12)


def test_the_fraction_is_that_of_the_problems_own_score(quadratic):
    task, runs = quadratic
    found = optimum_fraction(task, runs, "myopic", 0.374, FEW)
    theirs = score(QuadraticCost(), QuadraticCost().policies()["scaled_markowitz"], **SAME)
    assert found.fraction.value == pytest.approx(theirs.fraction, rel=1e-12)
    width = theirs.high - theirs.low
    assert found.fraction.low == pytest.approx(theirs.low, abs=0.2 * width)
    assert found.fraction.high == pytest.approx(theirs.high, abs=0.2 * width)
    assert (found.base, found.exact_optimum) == ("myopic", 0.374)


def test_the_optimum_itself_has_fraction_one_exactly(quadratic):
    task, runs = quadratic
    found = optimum_fraction(task, runs | {"agent": runs["optimal"]}, "myopic", 0.374, FEW)
    assert found.fraction.value == found.fraction.low == found.fraction.high == 1.0


def test_paired_comparisons_of_instances(regime):
    _, runs = regime
    found = compare_runs(runs["optimal"], runs["flat"], "flat", FEW)
    assert found.is_better
    assert found.block_length == 1.0
    difference = runs["optimal"].rewards.mean()
    assert found.mean_difference.value == pytest.approx(difference)
    # flat has no rewards and no ratio; it counts as 0
    assert found.sharpe_difference.value == pytest.approx(
        runs["optimal"].rewards.mean() / runs["optimal"].rewards.std(ddof=1)
    )


def test_the_books_of_a_run(regime):
    task, runs = regime
    run = runs["optimal"]
    assert set(np.unique(run.position)) <= {-1.0, 0.0, 1.0}
    np.testing.assert_allclose(run.turnover[1:], np.abs(np.diff(run.position, axis=0)))
    np.testing.assert_allclose(run.rewards, run.position * run.returns - run.fee, atol=1e-12)
    track = make_problem_track(task, run, "optimal", "Known optimum", hindsight=False)
    assert len(track.windows) == 6
    np.testing.assert_array_equal(track.window(2).net_return, run.rewards[:, 2])
    np.testing.assert_allclose(track.window(2).equity, np.cumsum(run.rewards[:, 2]))
    np.testing.assert_allclose(track.window(2).price, np.cumsum(run.returns[:, 2]))
    np.testing.assert_allclose(track.portfolio.net_return, run.rewards.mean(axis=1))
    assert track.portfolio.time.tolist() == list(range(150))


def test_costs_can_be_scaled(regime):
    task, runs = regime
    rule = RuleOfProblem(task.problem.policies()["optimal"])
    free, double = (run_problem(task, rule, cost_scale=scale) for scale in (0.0, 2.0))
    fee = runs["optimal"].fee
    np.testing.assert_allclose(free.rewards, runs["optimal"].rewards + fee, atol=1e-12)
    np.testing.assert_allclose(double.rewards, runs["optimal"].rewards - fee, atol=1e-12)
    np.testing.assert_allclose(double.fee, 2.0 * fee)


def test_late_actions_hold_nothing_first_and_then_what_was_wanted(regime):
    task, _ = regime
    # on random numbers of its own choosing a rule without memory of its position does the same late
    rule = RuleOfProblem(Policy.of(lambda seen: 1 + np.sign(seen[:, 0]).astype(np.int64)))
    task = dataclasses.replace(task, burn_in=0)
    prompt, late = run_problem(task, rule), run_problem(task, rule, delay=2)
    assert not late.position[:2].any()
    np.testing.assert_array_equal(late.position[2:], prompt.position[:-2])
    np.testing.assert_array_equal(late.returns, prompt.returns)
    box = ProblemTask(QuadraticCost(), n_envs=4, n_steps=5, seed=0, burn_in=0)
    late = run_problem(box, RuleOfProblem(QuadraticCost().policies()["optimal"]), delay=3)
    assert not late.position[:3].any()
    assert late.position[3:].any()


def test_intervals_of_pooled_measures_cover(regime):
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(60):
        rewards = rng.normal(size=(50, 60))
        run = dataclasses.replace(regime[1]["flat"], rewards=rewards)
        hits += problem_measures(run, BootstrapConfig(samples=199)).var_95.covers(-1.6449)
    assert hits >= 51  # 95 % of 60 is 57; three standard errors are 5
    few = dataclasses.replace(regime[1]["flat"], rewards=rng.normal(size=(50, 30)))
    assert problem_measures(few, FEW).var_95.low is None


def test_measures_of_a_problem(regime):
    _, runs = regime
    found = problem_measures(runs["optimal"], FEW)
    rewards = runs["optimal"].rewards
    assert found.annual_return.value == pytest.approx(rewards.mean())
    assert found.annual_return.low < rewards.mean() < found.annual_return.high
    assert found.total_return.value == pytest.approx(rewards.sum(axis=0).mean())
    assert found.volatility.value == pytest.approx(rewards.std(ddof=1))
    equity = np.vstack([np.zeros(40), np.cumsum(rewards, axis=0)])
    depth = (equity - np.maximum.accumulate(equity, axis=0)).min(axis=0)
    assert found.max_drawdown.value == pytest.approx(depth.mean())
    assert math.isnan(found.calmar.value)
    assert found.costs_paid.value == pytest.approx(runs["optimal"].fee.sum(axis=0).mean())


def test_problems_that_end_count_episodes():
    problem = TMaze(length=4)
    task = ProblemTask(problem, n_envs=20, n_steps=3, seed=0)
    run = run_problem(task, RuleOfProblem(problem.policies()["optimal"]))
    theirs = evaluate(problem, problem.policies()["optimal"], n_envs=20, n_steps=3, seed=0)
    np.testing.assert_allclose(run.rewards.T, theirs.rewards)
    assert math.isnan(problem_measures(run, FEW).time_in_market.value)


def test_scaling_costs_that_are_not_there_is_refused():
    task = ProblemTask(TMaze(), n_envs=2, n_steps=1, seed=0)
    with pytest.raises(ConfigError, match="'t_maze' has no trading costs to scale and no orders"):
        run_problem(task, RuleOfProblem(TMaze().policies()["optimal"]), cost_scale=2.0)


def make_agent(problem):
    env = ProblemVecEnv(problem.build(4, 0))
    return DistributionalPPO("MlpPolicy", env, n_steps=8, batch_size=16, gamma=0.6, seed=0)


SMALL = ProblemEvaluation(
    bootstrap=BootstrapConfig(samples=100), cost_factors=(0.0, 1.0), delays=(0, 1)
)


def test_an_agent_is_judged_against_the_known_policies(tmp_path):
    task = ProblemTask(HiddenRegime(), n_envs=60, n_steps=40, seed=1, burn_in=5)
    found, constant = judge_problem(task, make_agent(HiddenRegime()), seeds=(0,), settings=SMALL)
    said = [note for note in found.notes if "one constant position" in note]
    assert said == [constant.sentence("the test")]
    names = [track.name for track in found.tracks]
    assert names[:2] == ["agent", "agent_sampled"]
    assert {"optimal", "memoryless", "flat"} < set(names)
    assert found.main_baseline == "memoryless"
    assert found.optimum.exact_optimum == pytest.approx(0.16903, abs=1e-5)
    assert not found.verdict.evidence
    assert found.verdict.level == "worse"
    assert [point.factor for point in found.cost_curve.points] == [0.0, 1.0]
    assert [point.factor for point in found.delay_curve.points] == [0, 1]
    assert found.delay_curve.points[0].total_return == found.cost_curve.points[1].total_return
    # gamma .6: stretches of 6 steps; 40 steps have 6 whole ones with a forecast after them
    assert found.calibration.n == 60 * 6
    save_evaluation(found, tmp_path / "test")
    assert load_evaluation(tmp_path / "test").verdict == found.verdict


def test_where_nothing_can_be_earned_there_is_no_fraction():
    task = ProblemTask(NegativeControl(), n_envs=30, n_steps=40, seed=1, burn_in=0)
    found = judge_problem(task, make_agent(NegativeControl()), settings=SMALL)[0]
    assert found.optimum is None
    assert found.main_baseline == "flat"
    assert not found.verdict.evidence
    assert found.verdict.sentence.startswith("No evidence of skill")


def test_continuous_actions_and_other_costs():
    problem = QuadraticCost()
    task = ProblemTask(problem, n_envs=30, n_steps=30, seed=1, burn_in=0)
    found = judge_problem(task, make_agent(problem), settings=SMALL)[0]
    assert math.isnan(found.measures["agent"].costs_paid.value)
    assert found.cost_curve is not None


def test_problems_of_risk_have_no_such_score():
    task = ProblemTask(BettingGame(), n_envs=4, n_steps=1, seed=0)
    with pytest.raises(ConfigError, match="'betting_game' trades mean for less risk"):
        judge_problem(task, make_agent(BettingGame()))


def test_curves_out_of_order_are_refused():
    with pytest.raises(ConfigError, match="delays: must rise; was"):
        ProblemEvaluation(delays=(1, 0))
