"""How good is a policy on a problem with a known answer?

The score is F = (V_agent − V_base)/(V* − V_base): 0 for the best trivial policy, 1 for the optimum.
All policies meet the same random numbers, so that the interval of F is that of paired differences.
"""

import dataclasses
import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from quantail.errors import ConfigError, ConfigProblem
from quantail.sim.problems.interface import Policy, Problem
from quantail.types import FloatArray


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Rewards of a policy; the rows are independent."""

    rewards: FloatArray
    """Mean reward per step of each instance [N, 1], or returns of its episodes [N, episodes]."""

    @property
    def value(self) -> float:
        """Mean reward per step, or per episode."""
        return float(self.rewards.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of the value, from the spread between instances."""
        means = self.rewards.mean(axis=1)
        return float(means.std(ddof=1)) / math.sqrt(means.size)


@dataclass(frozen=True, slots=True)
class Score:
    """A fraction of the optimum with its interval."""

    fraction: float
    low: float
    high: float
    agent_value: float
    base_value: float
    optimal_value: float
    """All three on the same random numbers."""


def evaluate(
    problem: Problem,
    policy: Policy,
    *,
    n_envs: int = 1000,
    n_steps: int = 1000,
    seed: int = 0,
    burn_in: int = 200,
) -> Evaluation:
    """Run a policy.

    Args:
        problem: A configuration of a problem.
        policy: The rule to run.
        n_envs: Independent instances N, at least 2.
        n_steps: Steps that count in each instance (problems that go on for ever), or the number of
            episodes of each instance (the others).
        seed: The random numbers. The same seed gives every policy the same ones.
        burn_in: Steps before the count starts, so that V is that of the stationary state. Only for
            problems that go on for ever.
    """
    if n_envs < 2 or n_steps < 1:
        raise ConfigError(
            [
                ConfigProblem(
                    "n_envs, n_steps", f"must be at least 2 and 1; were {n_envs}, {n_steps}"
                )
            ]
        )
    if problem.continuing:
        return _evaluate_steps(
            problem, policy, n_envs=n_envs, n_steps=n_steps, seed=seed, burn_in=burn_in
        )
    return _evaluate_episodes(problem, policy, n_envs, n_steps, seed)


def _evaluate_steps(
    problem: Problem, policy: Policy, *, n_envs: int, n_steps: int, seed: int, burn_in: int
) -> Evaluation:
    changes: dict[str, Any] = {"episode_length": burn_in + n_steps + 1}
    endless: Problem = dataclasses.replace(problem, **changes)  # type: ignore[type-var]
    env = endless.build(n_envs, seed)
    observation = env.reset()
    memory = np.zeros((n_envs, policy.memory_size))
    total = np.zeros(n_envs)
    for step in range(burn_in + n_steps):
        actions, memory = policy.act(observation, memory)
        result = env.step(actions)
        observation = result.observation
        if step >= burn_in:
            total += result.reward
    return Evaluation(rewards=total[:, None] / n_steps)


def _evaluate_episodes(
    problem: Problem, policy: Policy, n_envs: int, n_episodes: int, seed: int
) -> Evaluation:
    env = problem.build(n_envs, seed)
    observation = env.reset()
    memory = np.zeros((n_envs, policy.memory_size))
    returns = np.zeros((n_envs, n_episodes))
    episode = np.zeros(n_envs, dtype=np.int64)
    rows = np.arange(n_envs)
    while episode.min() < n_episodes:
        actions, memory = policy.act(observation, memory)
        result = env.step(actions)
        counted = episode < n_episodes
        returns[rows[counted], episode[counted]] += result.reward[counted]
        ended = result.terminated | result.truncated
        episode += ended
        memory = np.where(ended[:, None], 0.0, memory)
        observation = result.observation
    return Evaluation(rewards=returns)


def score(
    problem: Problem,
    agent: Policy,
    *,
    n_envs: int = 1000,
    n_steps: int = 1000,
    seed: int = 0,
    burn_in: int = 200,
    confidence: float = 0.95,
) -> Score:
    """Return F of an agent with its paired interval.

    F is a ratio of two means of paired differences, a_i = agent − base and o_i = optimal − base in
    instance i; its standard error is that of the residuals a_i − F·o_i over mean(o) (delta method).

    Args:
        problem: A configuration of a problem.
        agent: The policy to judge.
        n_envs: Independent instances.
        n_steps: As in :func:`evaluate`.
        seed: The random numbers; take one that training has not used.
        burn_in: As in :func:`evaluate`.
        confidence: Level of the two-sided interval.
    """
    if not problem.maximizes_mean:
        raise ConfigError(
            f"problem {problem.kind!r} trades mean for less risk, so its mean is no score; "
            "use risk_score on the returns of evaluate() instead"
        )
    policies, base = problem.policies(), problem.solve().base
    names = {"agent": agent, "base": policies[base], "optimal": policies["optimal"]}
    means = {
        name: evaluate(
            problem, policy, n_envs=n_envs, n_steps=n_steps, seed=seed, burn_in=burn_in
        ).rewards.mean(axis=1)
        for name, policy in names.items()
    }
    gain, room = means["agent"] - means["base"], means["optimal"] - means["base"]
    if room.mean() <= 0.0:
        raise ConfigError(
            f"problem {problem.kind!r}: the optimum must beat the base policy {base!r} to score an "
            f"agent; the difference was {room.mean():.3g}. Take more steps, or other parameters."
        )
    fraction = float(gain.mean() / room.mean())
    spread = float((gain - fraction * room).std(ddof=1)) / math.sqrt(n_envs) / float(room.mean())
    reach = NormalDist().inv_cdf(0.5 + 0.5 * confidence) * spread
    return Score(
        fraction=fraction,
        low=fraction - reach,
        high=fraction + reach,
        agent_value=float(means["agent"].mean()),
        base_value=float(means["base"].mean()),
        optimal_value=float(means["optimal"].mean()),
    )
