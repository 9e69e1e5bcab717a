import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from quantail import DistributionalPPO
from quantail.errors import ConfigError
from quantail.evaluation.agent_policy import AgentPolicy
from quantail.evaluation.policies import Moment
from quantail.nets.critics import ScalarCritic
from quantail.sb3.problem_vec_env import ProblemVecEnv
from quantail.sim.problems import BettingGame, HiddenRegime, ProportionalCost

N = 5


def make_agent(problem=HiddenRegime(), policy="MlpLstmPolicy", **keywords):  # noqa: B008
    env = ProblemVecEnv(problem.build(4, 0))
    settings = {"n_steps": 8, "batch_size": 16, "seed": 3} | keywords
    return DistributionalPPO(policy, env, **settings)


@pytest.fixture(scope="module")
def agent():
    return make_agent()


def moments(count, size=2, seed=0, restart=None):
    rng = np.random.default_rng(seed)
    for step in range(count):
        starts = np.full(N, step == 0)
        if restart is not None and step == restart:
            starts[2] = True
        yield Moment(rng.normal(size=(N, size)).astype(np.float32), np.full(N, step), starts)


def play(policy, sequence):
    state, actions = None, []
    for moment in sequence:
        action, state = policy.act(moment, state)
        state = policy.receive(state, np.zeros(N))
        actions.append(action)
    return np.array(actions), state


@pytest.mark.parametrize("problem", [HiddenRegime(), ProportionalCost()], ids=["choice", "box"])
@pytest.mark.parametrize("policy", ["MlpPolicy", "MlpLstmPolicy"])
def test_an_agent_acts_as_its_predict_does(problem, policy):
    agent = make_agent(problem, policy)
    with torch.no_grad():  # actions that differ between observations
        for parameter in agent.policy.net.actor.parameters():
            parameter.mul_(50.0)
    ours, _ = play(AgentPolicy(agent), moments(6, restart=3))
    state = None
    for action, moment in zip(ours, moments(6, restart=3), strict=True):
        expected, state = agent.predict(moment.observations, state, moment.starts, True)
        np.testing.assert_array_equal(action, expected)
    assert len(np.unique(ours)) > 1


def test_memory_is_carried_and_forgotten_at_starts(agent):
    _, carried = play(AgentPolicy(agent), moments(5))
    _, again = play(AgentPolicy(agent), moments(5, restart=4))
    last = list(moments(5))[-1]
    _, fresh = AgentPolicy(agent).act(Moment(last.observations, last.rows, np.ones(N, bool)), None)
    same = carried.memory.actor[0] == again.memory.actor[0]
    assert same[..., [0, 1, 3, 4], :].all()
    assert not same[..., 2, :].all()
    torch.testing.assert_close(again.memory.actor[0][..., 2, :], fresh.memory.actor[0][..., 2, :])


def test_drawn_actions_repeat_with_their_seed_and_leave_the_global_one_alone(agent):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    draws = [
        play(AgentPolicy(agent, deterministic=False, seed=seed), moments(30))[0]
        for seed in (1, 1, 2)
    ]
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()
    assert set(np.unique(draws[0])) == {0, 1, 2}


def test_forecasts_are_the_mixture_of_both_critics(agent):
    policy = AgentPolicy(agent)
    moment = next(moments(1))
    _, state = policy.act(moment, None)
    forecast = policy.forecast(state)
    first, second = (law.mean().numpy() for law in state.values)
    assert np.abs(first - second).max() > 0.0
    np.testing.assert_allclose(forecast.mean(), 0.5 * (first + second), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(forecast.weights.sum(axis=1), 1.0)
    assert (np.diff(forecast.atoms, axis=1) >= 0.0).all()


def test_a_critic_of_means_forecasts_no_law():
    policy = AgentPolicy(make_agent(critic=ScalarCritic()))
    _, state = policy.act(next(moments(1)), None)
    assert policy.forecast(state) is None


def test_the_budget_is_carried():
    agent = make_agent(BettingGame(), "MlpPolicy", cvar_alpha=0.2, cvar_limit=-3.0, gamma=0.9)
    budget = agent.policy.net.budget
    budget.move(2.0, 1.0)
    policy = AgentPolicy(agent)
    size = agent.observation_space.shape[0]
    sequence = list(moments(3, size=size, restart=2))
    _, state = policy.act(sequence[0], None)
    assert state.budget.tolist() == [2.0] * N
    state = policy.receive(state, np.array([0.2, 0.0, 1.0, 2.0, 3.0]))
    # what is left of the budget, over the discount
    expected = (2.0 - np.array([0.2, 0.0, 1.0, 2.0, 3.0])) / 0.9
    np.testing.assert_allclose(state.budget, expected)
    _, after = policy.act(sequence[1], state)
    np.testing.assert_allclose(after.budget, expected)
    _, started = policy.act(sequence[2], after)
    assert started.budget[2] == 2.0
    np.testing.assert_allclose(started.budget[[0, 1, 3, 4]], expected[[0, 1, 3, 4]])
    assert any(
        (a.mean() != b.mean()).any() for a, b in zip(state.values, after.values, strict=True)
    )


def test_statistics_of_observations_are_applied_and_do_not_move():
    env = VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")] * 2), norm_reward=False)
    agent = DistributionalPPO("MlpPolicy", env, n_steps=8, batch_size=8, seed=0)
    agent.learn(16)
    statistics = env.obs_rms.mean.copy()
    moment = next(moments(1, size=4))
    _, state = AgentPolicy(agent).act(moment, None)
    normalized = Moment(env.normalize_obs(moment.observations), moment.rows, moment.starts)
    agent.env.norm_obs = False
    _, plain = AgentPolicy(agent).act(normalized, None)
    torch.testing.assert_close(state.values[0].mean(), plain.values[0].mean())
    np.testing.assert_array_equal(env.obs_rms.mean, statistics)


def test_seed_and_drawing_belong_together(agent):
    with pytest.raises(ConfigError, match="if and only if actions are drawn; was 3"):
        AgentPolicy(agent, seed=3)
    with pytest.raises(ConfigError, match="was None with deterministic=False"):
        AgentPolicy(agent, deterministic=False)
