"""What every problem promises, checked for every member of the union."""

import dataclasses
from functools import cache
from typing import get_args

import numpy as np
import pytest
from gymnasium import spaces

from quantail.config_class import config
from quantail.config_file import parse_config, write_config
from quantail.errors import ConfigError, DataError
from quantail.sim.problems import (
    BettingGame,
    Evaluation,
    GambleChain,
    HiddenRegime,
    Merton,
    NegativeControl,
    OptimalExecution,
    PositiveControl,
    ProblemConfig,
    ProportionalCost,
    QuadraticCost,
    TMaze,
    evaluate,
)

DEFAULTS = [kind() for kind in get_args(get_args(ProblemConfig)[0])]
VARIANTS = [
    QuadraticCost(phi=0.3, risk=2.0, quadratic_cost=2.0, return_noise=1.0),
    ProportionalCost(cost=1.0, actions="levels", return_noise=1.0),
    PositiveControl(cost=1.0),
    NegativeControl(reward="expected", volatility=0.3),
    HiddenRegime(drift=0.5, flip=0.05, cost=0.2, reward="expected"),
    Merton(risk_aversion=3.0, steps_per_year=12, max_fraction=1.2),
    Merton(risk_aversion=3.0, cost=0.01, steps_per_year=12, max_fraction=1.2),
    OptimalExecution(reward="realized", n_trades=8, interval=0.5),
    GambleChain(observe_total=False),
    TMaze(length=3),
]


def name(problem):
    changed = [
        f"{field.name}={getattr(problem, field.name)}"
        for field in dataclasses.fields(problem)
        if getattr(problem, field.name) != field.default
    ]
    return ",".join([problem.kind, *changed])


every_problem = pytest.mark.parametrize("problem", DEFAULTS + VARIANTS, ids=name)
every_kind = pytest.mark.parametrize("problem", DEFAULTS, ids=name)


@cache
def solved(problem):
    return problem.solve(), problem.policies()


def short(problem):
    """The same problem with episodes of a few steps, so that tests meet their ends."""
    if problem.continuing:
        return dataclasses.replace(problem, episode_length=7)
    if problem.kind == "gaussian_weight":
        return dataclasses.replace(problem, n_steps=12, loss_limit=0.05)
    return problem


def random_actions(env, rng):
    if isinstance(env.action_space, spaces.Discrete):
        return rng.integers(0, env.action_space.n, env.n_envs)
    low, high = env.action_space.low[0], env.action_space.high[0]
    return rng.uniform(low, high, (env.n_envs, 1)).astype(np.float32)


def trace(env, actions):
    """All arrays of a run, as one flat list of rows [steps, N, ...]."""
    results = [env.step(row) for row in actions]
    return [
        np.stack([getattr(result, field.name) for result in results])
        for field in dataclasses.fields(results[0])
    ]


def check_simulation(problem, errors=3.0, **size):
    """Compare simulated values with exact ones, and paired differences with exact differences."""
    solution, policies = solved(problem)
    assert solution.base in policies
    assert solution.values.keys() == policies.keys()
    if problem.maximizes_mean:
        assert max(solution.values.values()) <= solution.values["optimal"] + 1e-12
    found = {key: evaluate(problem, policy, **size) for key, policy in policies.items()}
    for key, run in found.items():
        exact = solution.values[key]
        rounding = 1e-7 * (1.0 + abs(exact))
        assert run.value == pytest.approx(exact, abs=errors * run.standard_error + rounding), key
        # all policies meet the same random numbers, so a difference is much sharper than a value
        apart = Evaluation(rewards=run.rewards - found["optimal"].rewards)
        expected = exact - solution.values["optimal"]
        tolerance = errors * apart.standard_error + rounding
        assert apart.value == pytest.approx(expected, abs=tolerance), key


@every_problem
def test_simulated_values_agree_with_the_exact_ones(problem):
    n_steps = 300 if problem.continuing else 10
    check_simulation(problem, n_envs=200, n_steps=n_steps, seed=11, burn_in=100)


@every_problem
def test_instance_of_many_equals_instance_alone(problem):
    rng = np.random.default_rng(1)
    env = short(problem).build(17, seed=5)
    first = env.reset()
    actions = [random_actions(env, rng) for _ in range(40)]
    together = trace(env, actions)
    for i in (0, 3, 16):
        alone = short(problem).build(1, seed=5, first_env=i)
        np.testing.assert_array_equal(alone.reset()[0], first[i])
        for whole, single in zip(
            together, trace(alone, [a[i : i + 1] for a in actions]), strict=True
        ):
            np.testing.assert_array_equal(whole[:, i], single[:, 0])


@every_problem
def test_restored_state_continues_bit_for_bit(problem):
    rng = np.random.default_rng(2)
    env = short(problem).build(6, seed=5)
    env.reset()
    trace(env, [random_actions(env, rng) for _ in range(9)])
    state = env.get_state()
    actions = [random_actions(env, rng) for _ in range(20)]
    expected = trace(env, actions)
    other = short(problem).build(6, seed=99)
    other.set_state(state)
    for left, right in zip(expected, trace(other, actions), strict=True):
        np.testing.assert_array_equal(left, right)
    env.set_state(state)
    for left, right in zip(expected, trace(env, actions), strict=True):
        np.testing.assert_array_equal(left, right)


@every_problem
def test_state_is_a_copy(problem):
    env = short(problem).build(3, seed=5)
    env.reset()
    state = env.get_state()
    before = {key: array.copy() for key, array in state.items()}
    trace(env, [random_actions(env, np.random.default_rng(3)) for _ in range(3)])
    for key, array in state.items():
        np.testing.assert_array_equal(array, before[key])


@every_kind
def test_seed_decides_everything(problem):
    def run(seed):
        env = short(problem).build(8, seed=0)
        first = env.reset(seed)
        rng = np.random.default_rng(4)
        return [first, *trace(env, [random_actions(env, rng) for _ in range(30)])]

    for left, right in zip(run(1), run(1), strict=True):
        np.testing.assert_array_equal(left, right)
    differs = [not np.array_equal(a, b) for a, b in zip(run(1), run(2), strict=True)]
    assert any(differs) or problem.kind == "optimal_execution"  # its default has no noise


@every_problem
def test_observations_and_rewards_are_finite_and_in_their_space(problem):
    env = short(problem).build(5, seed=5)
    observation = env.reset()
    rng = np.random.default_rng(6)
    for _ in range(30):
        assert observation.dtype == np.float32
        assert all(env.observation_space.contains(row) for row in observation)
        result = env.step(random_actions(env, rng))
        assert result.reward.dtype == np.float64
        assert np.isfinite(result.reward).all()
        observation = result.observation


@every_problem
def test_episode_ends_keep_the_last_observation(problem):
    env = short(problem).build(4, seed=5)
    env.reset()
    rng = np.random.default_rng(7)
    ends = 0
    for _ in range(30):
        result = env.step(random_actions(env, rng))
        ended = result.terminated | result.truncated
        assert not (result.terminated & result.truncated).any()
        assert (result.truncated if problem.continuing else result.terminated)[ended].all()
        running = ~ended
        np.testing.assert_array_equal(
            result.final_observation[running], result.observation[running]
        )
        if ended.any() and problem.kind not in ("one_state_chain", "distractor_bandit"):
            # the new episode starts elsewhere: another signal, or time zero
            assert not np.array_equal(result.final_observation, result.observation)
        ends += int(ended.sum())
    assert ends > 0


@every_kind
def test_episodes_end_at_their_length(problem):
    env = short(problem).build(3, seed=5)
    env.reset()
    length = {
        "optimal_execution": 5,
        "betting_game": 20,
        "gamble_chain": 5,
        "gaussian_weight": 12,
        "t_maze": 11,
        "distractor_bandit": 1,
    }.get(problem.kind, 7)
    rng = np.random.default_rng(9)
    for step in range(1, 2 * length + 1):
        result = env.step(random_actions(env, rng))
        ended = result.terminated | result.truncated
        assert (ended == (step % length == 0)).all()


@every_problem
def test_the_end_of_one_episode_leaves_the_others_alone(problem):
    # instance 0 starts one step ahead of the others, so that it ends alone
    rng = np.random.default_rng(10)
    env = short(problem).build(3, seed=5)
    env.reset()
    early = env.get_state()
    env.step(random_actions(env, rng))
    late = env.get_state()
    mixed = {key: array.copy() for key, array in early.items()}
    for key, array in mixed.items():
        if array.ndim:
            array[0] = late[key][0]
    env.set_state(mixed)
    actions = [random_actions(env, rng) for _ in range(40)]
    together = trace(env, actions)
    ends = together[2] | together[3]
    assert (ends[:, 0] != ends[:, 1]).any() or problem.kind == "distractor_bandit"
    for start, rows in ((late, [0]), (early, [1, 2])):
        env.set_state(start)
        for mixed_run, own_run in zip(together, trace(env, actions), strict=True):
            np.testing.assert_array_equal(mixed_run[:, rows], own_run[:, rows])


@every_kind
def test_wrong_actions_are_refused(problem):
    env = problem.build(3, seed=0)
    with pytest.raises(DataError, match=r"reset\(\) must be called before the first step"):
        env.step(np.zeros(3, dtype=np.int64))
    env.reset()
    with pytest.raises(DataError, match="actions must have shape"):
        env.step(np.zeros(4, dtype=np.int64))
    if isinstance(env.action_space, spaces.Discrete):
        with pytest.raises(DataError, match="must be whole numbers; had type float64"):
            env.step(np.zeros(3))
        with pytest.raises(DataError, match=r"actions\[1\] must be in 0\.\.\d+; was 9"):
            env.step(np.array([0, 9, 0]))
        with pytest.raises(DataError, match=r"actions\[2\] must be in 0\.\.\d+; was -1"):
            env.step(np.array([0, 0, -1]))
    else:
        with pytest.raises(DataError, match=r"actions\[1\] must lie in .* Clip the action"):
            env.step(np.array([[0.0], [1.01], [0.0]]))
        with pytest.raises(DataError, match=r"actions\[2\] must lie in .*was \[nan\]"):
            env.step(np.array([[0.0], [0.5], [np.nan]]))


@every_kind
def test_wrong_states_are_refused(problem):
    env = problem.build(3, seed=0)
    env.reset()
    state = env.get_state()
    with pytest.raises(DataError, match="must hold the arrays.*Use a state of the same problem"):
        env.set_state({key: value for key, value in state.items() if key != "noise"})
    with pytest.raises(DataError, match="must have shape.*Use a state of as many instances"):
        problem.build(4, seed=0).set_state(state)


@every_kind
def test_wrong_sizes_and_seeds_are_refused(problem):
    with pytest.raises(ConfigError, match="n_envs: must be at least 1; was 0"):
        problem.build(0, seed=0)
    with pytest.raises(ConfigError, match="seed: must be at least 0; was -1"):
        problem.build(1, seed=-1)


@config
class Holder:
    problem: ProblemConfig = PositiveControl()


@every_problem
def test_configuration_survives_a_file(problem):
    holder = Holder(problem=problem)
    assert parse_config(Holder, write_config(holder)) == holder


def test_configuration_file_refuses_what_is_out_of_range():
    with pytest.raises(ConfigError, match="problem.cost: must be at least 0; was -1"):
        parse_config(Holder, "problem: {kind: hidden_regime, cost: -1}")
    with pytest.raises(ConfigError, match="problem.kind"):
        parse_config(Holder, "problem: {kind: no_such_problem}")


@pytest.mark.parametrize(
    "problem",
    [
        QuadraticCost(),
        ProportionalCost(),
        PositiveControl(),
        NegativeControl(),
        HiddenRegime(),
        Merton(cost=0.01),
    ],
    ids=name,
)
def test_cost_scale_acts_on_costs_alone(problem):
    rng = np.random.default_rng(8)
    rewards = {}
    actions = [random_actions(problem.build(4, 0), rng) for _ in range(20)]
    for scale in (0.0, 0.5, 1.0):
        env = problem.build(4, seed=3)
        env.reset()
        env.set_cost_scale(scale)
        assert env.cost_scale == scale
        rewards[scale] = np.stack([env.step(row).reward for row in actions])
    costs = rewards[0.0] - rewards[1.0]
    assert (costs >= 0.0).all()
    assert costs.sum() > 0.0
    np.testing.assert_allclose(rewards[0.5], rewards[0.0] - 0.5 * costs, atol=1e-12)


def test_cost_scale_is_checked_and_travels_with_the_state():
    env = HiddenRegime().build(2, seed=0)
    env.reset()
    with pytest.raises(ConfigError, match="scale: must be finite and at least 0; was -0.1"):
        env.set_cost_scale(-0.1)
    with pytest.raises(ConfigError, match="scale: must be finite"):
        env.set_cost_scale(float("nan"))
    env.set_cost_scale(0.25)
    other = HiddenRegime().build(2, seed=1)
    other.set_state(env.get_state())
    assert other.cost_scale == 0.25


@pytest.mark.verify
@every_problem
def test_simulated_values_agree_with_the_exact_ones_over_millions_of_steps(problem):
    """All comparisons together are one test, so the bound is that of the family.

    With some 120 comparisons, as good as independent and normal, the chance that at least one of a
    right simulator lies outside is 1 - (1 - 2Φ(-3))^120 = 28 % at 3 standard errors and
    1 - (1 - 2Φ(-4))^120 = 0.8 % at 4. These runs have so many steps that 4 standard errors are
    narrower than the 3 of the short test, so the wider multiple hides nothing that one would see.
    """
    n_steps = 3000 if problem.continuing else 100
    check_simulation(problem, errors=4.0, n_envs=2000, n_steps=n_steps, seed=23, burn_in=300)


@pytest.mark.verify
@pytest.mark.parametrize("problem", [BettingGame(), GambleChain()], ids=name)
def test_simulated_tails_agree_with_the_exact_ones(problem):
    solution, policies = solved(problem)
    for policy_name, policy in policies.items():
        found = evaluate(problem, policy, n_envs=2000, n_steps=200, seed=29)
        tails = np.sort(found.rewards, axis=1)[:, : int(200 * problem.alpha)].mean(axis=1)
        # the CVaR of 200 episodes is a little too high on average, by about 1/(2·20) of its spread
        whole = np.sort(found.rewards.ravel())[: int(found.rewards.size * problem.alpha)].mean()
        error = tails.std(ddof=1) / np.sqrt(tails.size) + 1e-9
        assert whole == pytest.approx(solution.plans[policy_name].cvar, abs=4.0 * error)
