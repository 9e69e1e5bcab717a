"""Tail risk behind the API of Stable-Baselines3: arguments, prediction, files."""

import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.wrappers import ClipReward
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from quantail import DistributionalPPO
from quantail.diagnostics.risk_schema import RiskMetrics
from quantail.diagnostics.schema import declared
from quantail.errors import ConfigError, QuantailWarning
from quantail.nets.critics import CategoricalCritic, QuantileCritic, ScalarCritic
from quantail.risk.config import DualConfig, RiskConfig
from quantail.sb3.evaluate import advance_budget, evaluate_episodes
from quantail.sb3.problem_vec_env import ProblemVecEnv
from quantail.sim.problems import GambleChain
from tests.catalogue import catalogue

FEW = pytest.mark.filterwarnings("ignore:cvar_limit = -1.4 cannot be judged")


def env(n_envs: int = 16, seed: int = 0) -> ProblemVecEnv:
    return ProblemVecEnv(GambleChain().build(n_envs, seed))


def agent(policy: str = "MlpPolicy", **given: Any) -> DistributionalPPO:
    settings: dict[str, Any] = {"n_steps": 10, "batch_size": 80, "n_epochs": 1, "gamma": 0.9}
    if "risk" not in given and "cvar_weight" not in given:
        given = {"cvar_alpha": 0.1, "cvar_limit": -1.4, **given}
    return DistributionalPPO(policy, env(), **{**settings, "seed": 0, "device": "cpu", **given})


def test_tail_levels_are_the_default_critic() -> None:
    assert agent().policy.net.config.critic == QuantileCritic(levels="tail", tail_alpha=0.1)
    chosen = CategoricalCritic(n_atoms=21)
    assert agent(critic=chosen).policy.net.config.critic == chosen


def test_refusals() -> None:
    with pytest.raises(ConfigError, match="need critics that learn the law of returns; critic was"):
        agent(critic=ScalarCritic())
    with pytest.raises(ConfigError, match="cvar_alpha has no effect beside risk"):
        agent(risk=RiskConfig(weight=0.3), cvar_alpha=0.1)
    with pytest.raises(ConfigError, match="exactly one of cvar_weight"):
        agent(cvar_weight=0.5, cvar_limit=-1.0)


def test_tail_risk_that_never_acted_says_so() -> None:
    model = agent(cvar_alpha=0.05, cvar_weight=1.0)
    message = "tail risk had no effect: 32 episodes ended, and 40 are needed to know a tail of 0.05"
    with pytest.warns(QuantailWarning, match=message):
        model.learn(160)
    assert not model.train_state.risk.active


def test_a_limit_that_cannot_be_judged_says_so() -> None:
    message = r"cvar_limit = 5\.0 cannot be judged: CVaR .* is -.*, from 3\.2 episodes in the tail"
    with pytest.warns(QuantailWarning, match=message):
        agent(cvar_limit=5.0).learn(160)


def test_a_target_that_was_never_compared_says_so() -> None:
    """Forty episodes are there only after the second of three rollouts, after ``settle``."""
    message = r"was not compared with others: too few .* before search\.settle \(0\.5\)"
    model = agent(cvar_alpha=0.05, cvar_weight=1.0)
    with pytest.warns(QuantailWarning, match=message):
        model.learn(3 * 160)
    assert model.train_state.risk.active


@catalogue("F33")
def test_cells_wider_than_the_tail_are_told() -> None:
    coarse = QuantileCritic(n_quantiles=8)
    with pytest.warns(QuantailWarning, match=r"cvar_alpha = 0\.1 is smaller than the first cell"):
        agent(critic=coarse)


@catalogue("F40")
def test_normalized_rewards_are_refused_and_raw_ones_are_not() -> None:
    risk: dict[str, Any] = {"cvar_limit": -1.0, "n_steps": 10, "batch_size": 80}
    with pytest.raises(ConfigError, match="measured on raw rewards, .* pass norm_reward=False"):
        DistributionalPPO("MlpPolicy", VecNormalize(env()), **risk)
    DistributionalPPO("MlpPolicy", VecNormalize(env(), norm_reward=False), **risk)


@pytest.mark.parametrize("policy", ["MlpPolicy", "MlpLstmPolicy"])
def test_predict_carries_the_budget(policy: str) -> None:
    model = agent(policy)
    model.learn(480)
    budget = model.policy.net.budget
    assert budget is not None
    target = float(budget.target)
    assert target != 0.0
    fresh = env(4, 7)
    observations = fresh.reset()
    state: Any = None
    starts = np.ones(4, np.bool_)
    expected = np.full(4, target)
    for _ in range(12):
        expected = np.where(starts, target, expected)
        actions, state = model.predict(observations, state, starts)
        np.testing.assert_allclose(state[-1], expected)
        observations, rewards, starts, _ = fresh.step(actions)
        state = advance_budget(model, state, rewards)
        expected = (expected - rewards) / 0.9
        np.testing.assert_allclose(state[-1], expected, rtol=1e-6)


def test_predict_acts_on_the_budget() -> None:
    model = agent()
    with torch.no_grad():
        for parameter in model.policy.net.actor.parameters():
            parameter.mul_(100.0)
    observations = np.tile(env(1).reset(), (400, 1))
    rich, poor = np.full(400, -3.0), np.full(400, 3.0)
    drawn = []
    for budgets in (rich, rich, poor):
        torch.manual_seed(0)
        actions, _ = model.predict(observations, (budgets,), np.zeros(400, np.bool_))
        drawn.append(actions)
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert np.any(drawn[0] != drawn[2])
    with pytest.raises(ConfigError, match=r"must end with the budgets of 400 environment\(s\)"):
        model.predict(observations, (rich[:3],))
    with pytest.raises(ConfigError, match="rewards must be one for each of the 400"):
        advance_budget(model, (rich,), np.zeros(3))


def test_evaluate_episodes_gives_both_sums_and_runs_without_risk_too() -> None:
    for model in (agent(), DistributionalPPO("MlpPolicy", env(), device="cpu", gamma=0.9)):
        played = evaluate_episodes(model, env(8, 3), 30)
        assert played.returns.shape == (32,)
        assert set(played.lengths) == {5}
        # the discount of five steps lies between .9^4 and 1
        assert np.abs(played.discounted).max() < np.abs(played.returns).max() + 2.0
    with pytest.raises(ConfigError, match="n_episodes must be at least 1; was 0"):
        evaluate_episodes(agent(), env(), 0)


def test_discounted_sums_are_those_of_the_rewards() -> None:
    class Always(DistributionalPPO):
        def predict(self, observation: Any, *rest: Any) -> Any:
            return np.zeros(len(observation), np.int64), None

    model = Always("MlpPolicy", env(), device="cpu", gamma=0.5)
    played = evaluate_episodes(model, env(2), 4)
    # five sure gains of .2: .2 (1 + .5 + .25 + .125 + .0625)
    np.testing.assert_allclose(played.discounted, 0.2 * 1.9375, rtol=1e-6)
    np.testing.assert_allclose(played.returns, 1.0, rtol=1e-6)


def test_evaluation_of_stable_baselines3_runs_and_says_what_it_cannot_do() -> None:
    with pytest.warns(QuantailWarning, match="not told the rewards .*evaluate_episodes") as told:
        mean, _ = evaluate_policy(agent(), env(4), 8, warn=False)
    assert np.isfinite(mean)
    assert told[0].filename.endswith("evaluation.py")  # where predict() was called
    blind = agent(risk=RiskConfig(alpha=0.1, limit=-1.4, observe_budget=False))
    evaluate_policy(blind, env(4), 8, warn=False)  # nothing to be told


@pytest.mark.parametrize("policy", ["MlpPolicy", "MlpLstmPolicy"])
def test_a_state_that_was_told_nothing_is_known_by_itself(policy: str) -> None:
    """Rewards of 0 leave a budget as it is without a discount, and were told all the same."""
    model = agent(policy, gamma=1.0)
    observations, none = env(4).reset(), np.zeros(4, np.bool_)
    _, state = model.predict(observations)
    model.predict(observations, advance_budget(model, state, np.zeros(4)), none)
    model.predict(observations, state, ~none)  # all start anew
    with pytest.warns(QuantailWarning, match="advance_budget"):
        model.predict(observations, state, np.array([True, True, True, False]))


def test_saved_and_loaded_agents_act_alike_and_go_on_alike(tmp_path: Path) -> None:
    model = agent()
    model.learn(480)
    model.save(tmp_path / "agent")
    again = DistributionalPPO.load(tmp_path / "agent", env=env(), device="cpu")
    assert again.train_state.risk == model.train_state.risk
    assert again.train_state.risk.active
    assert again.learner_config == model.learner_config
    observations, budgets = np.tile(env(1).reset(), (64, 1)), np.linspace(-3, 3, 64)
    acts = [m.predict(observations, (budgets,), None, True)[0] for m in (model, again)]
    np.testing.assert_array_equal(*acts)
    with pytest.raises(ConfigError, match=r"policy_kwargs\['budget'\] must be"):
        DistributionalPPO.load(tmp_path / "agent", env=env(), device="cpu", gamma=0.5)


@FEW
def test_recorded_risk_metrics_are_the_declared_ones() -> None:
    model = agent(policy_kwargs={"net_arch": [8]})
    model.learn(160)
    known = set(declared(RiskMetrics))
    for _ in range(3):
        model.learn(160, reset_num_timesteps=False)
        found = {tag for tag in model.logger.name_to_value if tag in known}
    assert found == known


@pytest.mark.parametrize(("limit", "times"), [(9.0, 1), (-99.0, 0)])
def test_a_limit_that_is_broken_at_the_end_is_said(limit: float, times: int) -> None:
    """The multiplier had no time to reach its cap, so nothing called the limit infeasible."""
    model = agent(risk=RiskConfig(alpha=0.1, limit=limit))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.learn(160 * 6)
    told = [str(w.message) for w in caught if "ends with cvar_limit" in str(w.message)]
    assert len(told) == times
    assert all("raise risk.dual.integral or risk.dual.start" in text for text in told)
    assert model.train_state.risk.dual.multiplier < DualConfig().cap


@pytest.mark.parametrize("weight", [0.3, None])
def test_an_infeasible_limit_is_said_once(weight: float | None) -> None:
    dual = DualConfig(hold=0.0, integral=5.0, cap=1.0, patience=2)
    risk = RiskConfig(alpha=0.1, weight=weight) if weight else RiskConfig(limit=9.0, dual=dual)
    model = agent(risk=risk)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.learn(160 * 12)
    told = [w for w in caught if "may be infeasible" in str(w.message)]
    assert len(told) == (0 if weight else 1)
    assert all(issubclass(w.category, QuantailWarning) for w in told)
    assert model.logger.name_to_value["risk/infeasible"] == (0.0 if weight else 1.0)
    assert model.train_state.risk.dual.multiplier == (0.0 if weight else 1.0)


def test_budgets_that_were_computed_with_do_not_warn() -> None:
    """Who keeps the budgets by hand has told the policy its rewards."""
    model, games = agent(risk=RiskConfig(alpha=0.1, weight=0.5)), env(4)
    actions, state = model.predict(games.reset(), None, np.ones(4, np.bool_))
    observations, rewards, _, _ = games.step(actions)
    told = (*state[:-1], (state[-1] - rewards) / model.gamma)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(observations, told, np.zeros(4, np.bool_))
    with pytest.warns(QuantailWarning, match="was not told the rewards"):
        model.predict(observations, state, np.zeros(4, np.bool_))


@pytest.mark.parametrize("depth", [1, 2])
def test_evaluate_episodes_takes_raw_rewards_from_a_normalizer(depth: int) -> None:
    """Scaled rewards are neither the agent's returns nor what its budget is counted in."""
    model = agent()
    model.learn(480)
    plain = evaluate_episodes(model, env(8, 3), 16)
    scaled: Any = env(8, 3)
    for _ in range(depth):
        scaled = VecNormalize(scaled, norm_obs=False, clip_reward=0.01)
    played = evaluate_episodes(model, scaled, 16)
    np.testing.assert_array_equal(played.returns, plain.returns)
    np.testing.assert_array_equal(played.discounted, plain.discounted)
    assert np.abs(plain.returns).max() > 0.2


def test_evaluate_episodes_refuses_rewards_that_a_wrapper_hides_from_the_budget() -> None:
    made = gym.make("CartPole-v1")
    hidden = DummyVecEnv([lambda: ClipReward(made, -0.5, 0.5)])
    model = DistributionalPPO(
        "MlpPolicy", DummyVecEnv([lambda: gym.make("CartPole-v1")]), device="cpu", cvar_weight=0.5
    )
    with pytest.raises(ConfigError, match="tail risk needs raw rewards, .*ClipReward"):
        evaluate_episodes(model, hidden, 1)
    free = DistributionalPPO("MlpPolicy", hidden, device="cpu")
    assert evaluate_episodes(free, hidden, 1).returns[0] > 0
