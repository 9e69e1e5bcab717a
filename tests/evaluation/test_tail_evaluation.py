"""An agent with tail risk over whole windows: its budget starts anew as its episodes did."""

import dataclasses
import re

import numpy as np
import pytest
import torch

from quantail import DistributionalPPO
from quantail.evaluation.agent_policy import AgentPolicy
from quantail.evaluation.backtest import MarketRun, MarketTask, backtest, run_market
from quantail.evaluation.bootstrap import BootstrapConfig
from quantail.evaluation.curves import MarketEvaluation
from quantail.evaluation.evaluate_market import judge_market
from quantail.evaluation.evaluate_problem import ProblemEvaluation, known_policies, problem_curves
from quantail.evaluation.policies import Moment
from quantail.evaluation.problem_run import ProblemTask, run_problem
from quantail.evaluation.tail import stretch_returns
from quantail.experiment.agent import build_agent
from quantail.experiment.run import prepare_tasks
from quantail.risk.config import RiskConfig
from quantail.sb3.problem_vec_env import ProblemVecEnv
from quantail.sb3.vec_env import MarketVecEnv
from quantail.sim.config import SimConfig
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.problems import BettingGame
from quantail.sim.simulator import MarketSim
from tests.experiment.small_runs import MARKET, PROBLEM, small
from tests.sim.markets import make_bars

GAMMA, LENGTH = 0.9, 20
CONFIG = SimConfig(episodes=EpisodeConfig(length=LENGTH))
ROWS = np.array([[100, 200], [300, 385]])
SETTINGS = MarketEvaluation(
    bootstrap=BootstrapConfig(samples=100), cost_factors=(1.0, 2.0), delays=()
)


def loud(agent: DistributionalPPO, target: float, scale: float) -> DistributionalPPO:
    """Make an agent's actions hang on its budget, which starts at ``target``."""
    with torch.no_grad():
        for parameter in agent.policy.net.actor.parameters():
            parameter.mul_(30.0)
    assert agent.policy.net.budget is not None
    agent.policy.net.budget.move(target, scale)
    return agent


@pytest.fixture(scope="module")
def market():
    bars = make_bars(200, 2, seed=3, volatility=0.01)
    return bars, np.random.default_rng(0).normal(size=(400, 2)).astype(np.float32)


def make_agent(market, **given):
    env = MarketVecEnv(MarketSim(*market, config=CONFIG, n_envs=4))
    settings = {"n_steps": 8, "batch_size": 16, "gamma": GAMMA, "seed": 0, "device": "cpu"}
    return DistributionalPPO("MlpLstmPolicy", env, **(settings | given))


@pytest.fixture(scope="module")
def agent(market):
    return loud(make_agent(market, cvar_alpha=0.2, cvar_limit=-0.03), -0.02, 0.03)


@pytest.fixture
def task(market):
    return MarketTask.of_rows(*market, ROWS, CONFIG)


class Watched(AgentPolicy):
    """Remembers at which budgets the agent acted."""

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.budgets, self.rewards = [], []

    def act(self, moment, state):
        actions, after = super().act(moment, state)
        self.budgets.append(after.budget.numpy().copy())
        return actions, after

    def receive(self, state, rewards):
        self.rewards.append(rewards)
        return super().receive(state, rewards)


def test_a_budget_starts_anew_after_as_many_bars_as_an_episode_has(agent, task):
    policy = Watched(agent, budget_steps=LENGTH)
    run_market(task.simulator(), policy)
    assert len(policy.budgets) == 99
    expected = np.full(2, -0.02)
    for step, (budget, rewards) in enumerate(zip(policy.budgets, policy.rewards, strict=True)):
        if step % LENGTH == 0:
            expected = np.full(2, -0.02)
        np.testing.assert_allclose(budget, expected, rtol=1e-12)
        expected = (expected - rewards) / GAMMA
    # carried through, the discount alone takes it out of all reach
    far = Watched(agent)
    run_market(task.simulator(), far)
    assert np.abs(far.budgets[-1]).min() > 50 * np.abs(policy.budgets).max()


def test_accounts_that_start_later_have_an_age_of_their_own():
    env = ProblemVecEnv(BettingGame().build(4, 0))
    agent = DistributionalPPO("MlpPolicy", env, n_steps=8, batch_size=16, cvar_weight=0.5)
    agent.policy.net.budget.move(2.0, 1.0)
    policy, state, seen = AgentPolicy(agent, budget_steps=3), None, []
    observations = env.reset()[:2]
    for step in range(7):
        starts = np.array([step == 0, step in (0, 2)])
        _, state = policy.act(Moment(observations, np.full(2, step), starts), state)
        seen.append((state.budget == 2.0).tolist())
        state = policy.receive(state, np.ones(2))
    anew = np.array(seen)
    np.testing.assert_array_equal(np.flatnonzero(anew[:, 0]), [0, 3, 6])
    np.testing.assert_array_equal(np.flatnonzero(anew[:, 1]), [0, 2, 5])


def test_all_tracks_of_a_judgment_start_budgets_anew(agent, task):
    found, evidence = judge_market(task, agent, role="test", split="x", settings=SETTINGS)
    own = MarketEvaluation(bootstrap=SETTINGS.bootstrap, cost_factors=(), delays=())
    alone, _ = judge_market(task, agent, role="test", split="x", settings=own)
    for seed, name in ((None, "agent"), (own.bootstrap.seed, "agent_sampled")):
        drawn = {"deterministic": seed is None, "seed": seed}
        ours = backtest(task, AgentPolicy(agent, budget_steps=LENGTH, **drawn)).bars.equity
        through = backtest(task, AgentPolicy(agent, **drawn)).bars.equity
        np.testing.assert_array_equal(alone.track(name).bars.equity, ours)
        assert np.abs(ours - through).max() > 1e-4
    twice = evidence.variants[2.0, 0].bars.equity
    again = run_market(task.simulator(cost_scale=2.0), AgentPolicy(agent, budget_steps=LENGTH))
    np.testing.assert_allclose(twice[:99], again.column("equity")[:, 0] / 1e4, rtol=1e-4)
    assert found.track("agent").bars.equity[-1] != twice[-1]


def test_the_notes_tell_cvar_of_the_stretches_beside_the_limit(agent, task):
    found, _ = judge_market(task, agent, role="test", split="x", settings=SETTINGS)
    (note,) = (note for note in found.notes if "tail risk" in note)
    policy = Watched(agent, budget_steps=LENGTH)
    run_market(task.simulator(), policy)
    # 99 and 84 steps: four whole stretches of 20 each
    returns = sorted(
        sum(GAMMA**k * policy.rewards[20 * part + k][env] for k in range(20))
        for part in range(4)
        for env in range(2)
    )
    cvar = (returns[0] + 0.6 * returns[1]) / 1.6  # a fifth of eight
    said = re.search(r"over 8 such stretches was (\S+), which rests on 1.6 of them", note)
    assert said is not None
    assert float(said[1]) == pytest.approx(cvar, rel=1e-3)
    assert note.startswith("The agent's budget of tail risk started anew every 20 bars")
    assert note.endswith("cvar_limit is -0.03.")


def noted(agent, task):
    settings = dataclasses.replace(SETTINGS, cost_factors=(), sampled=False)
    found, _ = judge_market(task, agent, role="test", split="x", settings=settings)
    return [note for note in found.notes if "tail risk" in note]


def test_episodes_without_a_length_are_noted(agent, market):
    endless = SimConfig(episodes=EpisodeConfig(length=None))
    (note,) = noted(agent, MarketTask.of_rows(*market, ROWS[:1], endless))
    assert "carried through each whole window" in note
    assert "episodes.length is null" in note


def test_windows_shorter_than_an_episode_and_agents_without_tail_risk(agent, market):
    short = MarketTask.of_rows(*market, np.array([[100, 115]]), CONFIG)
    (note,) = noted(agent, short)
    assert "No window was as long" in note
    weighted = make_agent(market, risk=RiskConfig(alpha=0.2, weight=0.3))
    (note,) = noted(weighted, MarketTask.of_rows(*market, ROWS, CONFIG))
    assert note.endswith("cvar_weight is 0.3.")
    assert noted(make_agent(market), MarketTask.of_rows(*market, ROWS, CONFIG)) == []


def test_the_last_stretch_of_a_ruined_account_counts():
    rewards = np.array([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.0, 0.0], [1.0, 0.0]])
    alive = np.array([[1, 1], [1, 1], [1, 1], [1, 0], [1, 0]], np.bool_)
    none, rows = np.zeros((5, 2, 0)), np.zeros(2, np.int64)
    run = MarketRun(none, rewards, alive, rows, rows, ("", "liquidated"), ())
    # the first account: 2 whole ones; the second: a whole one, and one that ends with it
    found = stretch_returns(run, 2, 0.5)
    np.testing.assert_allclose(sorted(found), [1.5, 1.5, 2.0, 3.0])
    lucky = dataclasses.replace(run, ended=("", ""))
    np.testing.assert_allclose(sorted(stretch_returns(lucky, 2, 0.5)), [1.5, 1.5, 3.0])


def test_validation_in_a_run_starts_budgets_anew(tmp_path):
    config = small("agent.risk.weight=0.5", "agent.risk.alpha=0.3", of=MARKET)
    split = prepare_tasks(config, tmp_path)[1][0]
    env = split.training_environment(config.budget.n_envs).env
    agent = loud(build_agent(config.agent, env, 0), -0.02, 0.03)
    task = split._task("validation")
    expected = backtest(task, AgentPolicy(agent, budget_steps=32)).portfolio.net_return
    through = backtest(task, AgentPolicy(agent)).portfolio.net_return
    np.testing.assert_array_equal(split.validate(agent).returns, expected)
    assert np.abs(expected - through).max() > 1e-5


def test_continuing_problems_start_budgets_anew_too(tmp_path):
    risk = ("agent.risk.weight=0.5", "agent.risk.alpha=0.3")
    config = small(*risk, "environment.problem.episode_length=15", of=PROBLEM)
    problem = prepare_tasks(config, tmp_path)[1][0]
    env = problem.training_environment(config.budget.n_envs).env
    agent = loud(build_agent(config.agent, env, 0), -0.02, 0.03)
    task = ProblemTask(config.environment.problem, 4, 60, seed=5, burn_in=3)
    assert task.budget_steps == 15
    assert ProblemTask(BettingGame(), 4, 60, seed=5).budget_steps is None
    ours = run_problem(task, AgentPolicy(agent, budget_steps=15)).rewards
    assert np.abs(ours - run_problem(task, AgentPolicy(agent)).rewards).max() > 1e-6
    settings = ProblemEvaluation(
        bootstrap=BootstrapConfig(samples=100), cost_factors=(1.0,), delays=()
    )
    _, policy = known_policies(task, agent, settings)["agent"]
    np.testing.assert_array_equal(run_problem(task, policy).rewards, ours)
    costs, _ = problem_curves(task, agent, settings)
    assert costs.points[0].total_return == pytest.approx(ours.sum(axis=0).mean())
