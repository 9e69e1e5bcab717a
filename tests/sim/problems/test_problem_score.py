"""The score of an agent, its interval, and the noise under it."""

import numpy as np
import pytest
from scipy import stats

from quantail.errors import ConfigError
from quantail.sim.problems import (
    BettingGame,
    NegativeControl,
    Policy,
    PositiveControl,
    QuadraticCost,
    TMaze,
    evaluate,
    score,
)
from quantail.sim.problems.noise import NoiseStreams


def test_score_is_one_for_the_optimum_and_zero_for_the_base():
    problem = PositiveControl(cost=0.5)
    policies = problem.policies()
    best = score(problem, policies["optimal"], n_envs=50, n_steps=100)
    assert (best.fraction, best.low, best.high) == (1.0, 1.0, 1.0)
    base = score(problem, policies[problem.solve().base], n_envs=50, n_steps=100)
    assert (base.fraction, base.low, base.high) == (0.0, 0.0, 0.0)


def between(problem):
    """A rule that is optimal in half of its instances' steps and trivial in the others."""
    best, base = problem.policies()["optimal"], problem.policies()["sign"]

    def act(observation):
        none = np.zeros((observation.shape[0], 0))
        first, second = best.act(observation, none)[0], base.act(observation, none)[0]
        return np.where(np.abs(observation[:, 0] * 1e3) % 2.0 < 1.0, first, second)

    return Policy.of(act)


def test_interval_covers_the_truth_and_is_narrower_than_an_unpaired_one():
    problem = PositiveControl(cost=0.5)
    agent = between(problem)
    long_run = score(problem, agent, n_envs=500, n_steps=600, seed=1).fraction
    covered = 0
    for seed in range(40):
        found = score(problem, agent, n_envs=40, n_steps=50, seed=100 + seed, burn_in=20)
        covered += found.low <= long_run <= found.high
    assert 33 <= covered <= 40  # 38 expected; fewer than 33 has probability 0.003
    room = found.optimal_value - found.base_value
    unpaired = evaluate(problem, agent, n_envs=40, n_steps=50, seed=139, burn_in=20)
    assert found.high - found.low < 2.0 * 1.96 * 2.0**0.5 * unpaired.standard_error / room


def test_score_reports_the_values_behind_it():
    problem = QuadraticCost()
    found = score(problem, problem.policies()["markowitz"], n_envs=60, n_steps=100, seed=4)
    expected = (found.agent_value - found.base_value) / (found.optimal_value - found.base_value)
    assert found.fraction == pytest.approx(expected, rel=1e-12)
    assert found.fraction < -1.0


def test_score_refuses_problems_without_room_or_with_risk():
    with pytest.raises(ConfigError, match="the optimum must beat the base policy 'flat'"):
        score(NegativeControl(), NegativeControl().policies()["flat"], n_envs=2, n_steps=5)
    with pytest.raises(ConfigError, match="trades mean for less risk.*use risk_score"):
        score(BettingGame(), BettingGame().policies()["always_1"], n_envs=2, n_steps=5)


def test_evaluation_needs_more_than_one_instance():
    problem = PositiveControl()
    with pytest.raises(ConfigError, match="n_envs, n_steps: must be at least 2 and 1; were 1, 5"):
        evaluate(problem, problem.policies()["sign"], n_envs=1, n_steps=5)


def test_memory_of_a_policy_is_cleared_between_episodes():
    # a rule that answers with the first cue it ever saw fails in later episodes of a T-maze
    problem = TMaze(length=2)
    found = evaluate(problem, problem.policies()["optimal"], n_envs=20, n_steps=30, seed=0)
    assert (found.rewards == 1.0).all()
    assert found.rewards.shape == (20, 30)


def test_uniform_and_normal_streams_have_their_laws():
    noise = NoiseStreams(500, seed=3)
    uniform = np.stack([noise.uniform() for _ in range(400)])
    normal = np.stack([noise.normal() for _ in range(400)])
    assert uniform.min() >= 0.0
    assert uniform.max() < 1.0
    assert stats.kstest(uniform.ravel(), "uniform").pvalue > 1e-3
    assert stats.kstest(normal.ravel(), "norm").pvalue > 1e-3
    for values in (uniform - 0.5, normal):
        size = values.std() ** 2 / np.sqrt(values.size)
        assert abs((values[1:] * values[:-1]).mean()) < 4.0 * size  # no memory
        assert abs((values[:, 1:] * values[:, :-1]).mean()) < 4.0 * size  # no neighbors


def test_stream_draws_only_for_the_rows_asked_for():
    noise, other = NoiseStreams(4, seed=1), NoiseStreams(4, seed=1)
    some = noise.normal(np.array([1, 3]))
    every = other.normal()
    np.testing.assert_array_equal(some, every[[1, 3]])
    following = noise.normal()
    np.testing.assert_array_equal(following[[0, 2]], every[[0, 2]])
    np.testing.assert_array_equal(following[[1, 3]], other.normal()[[1, 3]])


def test_streams_of_neighboring_seeds_share_nothing():
    # were env 1 of a seed env 0 of the next one, evaluation would reuse the luck of training
    first, second = (np.stack([NoiseStreams(50, seed).uniform()]) for seed in (3, 4))
    assert not np.intersect1d(first, second).size
    number = NoiseStreams(1, seed=3, first_env=7).uniform()
    assert number[0] == first[0, 7]
