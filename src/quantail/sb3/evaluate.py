"""Fresh episodes of a trained agent, with the budget of tail risk carried from step to step."""

from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from quantail.errors import ConfigError
from quantail.risk.budget import next_budget
from quantail.sb3.environment import step_costs
from quantail.sb3.normalization import check_raw_rewards, raw_rewards
from quantail.types import FloatArray, IntArray

if TYPE_CHECKING:
    from quantail.sb3.agent import DistributionalPPO

State = tuple[NDArray[Any], ...] | None
"""What ``predict`` returns to be passed in again."""


@dataclass(frozen=True, slots=True)
class EpisodeReturns:
    """Episodes in order of their environment, then of their end."""

    returns: FloatArray
    """[E], sums of raw rewards."""
    discounted: FloatArray
    """[E], the same with the agent's discount: what CVaR limits and weights speak of."""
    lengths: IntArray
    """[E]"""
    costs: FloatArray | None
    """[E], discounted sums of ``info["cost"]``: what a limit on a mean cost speaks of; None where
    the environment tells no costs."""


def advance_budget(model: "DistributionalPPO", state: State, rewards: NDArray[Any]) -> State:
    """Return the state of ``predict`` after the environments gave their rewards.

    An agent with tail risk acts on what is left of its budget, so it must be told the rewards::

        actions, state = model.predict(observations, state, episode_start=done)
        observations, rewards, done, infos = env.step(actions)
        state = advance_budget(model, state, rewards)

    Args:
        model: An agent; without tail risk the state comes back as it is.
        state: From ``predict``.
        rewards: [N], raw.
    """
    budget = model.policy.net.budget
    if budget is None or state is None:
        return state
    left, given = torch.as_tensor(state[-1]), torch.as_tensor(np.asarray(rewards, np.float64))
    if left.shape != given.shape:
        raise ConfigError(
            f"rewards must be one for each of the {len(left)} environment(s) of the state; shape "
            f"was {tuple(given.shape)}"
        )
    return (*state[:-1], next_budget(left, given, budget.config.discount).numpy())


def evaluate_episodes(
    model: "DistributionalPPO", env: VecEnv, n_episodes: int, deterministic: bool = True
) -> EpisodeReturns:
    """Play fresh episodes, as many in each environment, so that short ones are not favored.

    Args:
        model: An agent.
        env: It is reset first. Where a ``VecNormalize`` scales rewards, the raw ones count.
        n_episodes: At least; rounded up to a multiple of the number of environments.
        deterministic: Take the most likely actions.

    Raises:
        ConfigError: The agent has a budget, and an environment hides its raw rewards.
    """
    if n_episodes < 1:
        raise ConfigError(f"n_episodes must be at least 1; was {n_episodes}")
    if model.policy.net.budget is not None:
        check_raw_rewards(env, "tail risk")
    each, n_envs = -(-n_episodes // env.num_envs), env.num_envs
    found = np.zeros((4, n_envs, each))
    running = np.zeros((3, n_envs))
    length = np.zeros(n_envs, dtype=np.int64)
    count = np.zeros(n_envs, dtype=np.int64)
    starts = np.ones(n_envs, dtype=np.bool_)
    observations: Any = env.reset()
    state: State = None
    step, tells_costs = 0, False
    while count.min() < each:
        actions, state = model.predict(observations, state, starts, deterministic)
        observations, given, starts, infos = env.step(actions)
        rewards = raw_rewards(env, given)
        state = advance_budget(model, state, rewards)
        if step == 0:
            limited = model.learner_config.cost is not None
            # Without a limit an info may mean anything by "cost".
            kinds = (Real, np.bool_)
            tells_costs = limited or all(isinstance(info.get("cost"), kinds) for info in infos)
        costs = step_costs(infos, step) if tells_costs else np.zeros(n_envs)
        discount = model.gamma**length
        running += np.stack([rewards, rewards * discount, costs * discount])
        step += 1
        length += 1
        for row in np.flatnonzero(starts & (count < each)):
            found[:, row, count[row]] = (*running[:, row], length[row])
        count += starts
        running[:, starts], length[starts] = 0.0, 0
    return EpisodeReturns(
        returns=found[0].ravel(),
        discounted=found[1].ravel(),
        lengths=found[3].ravel().astype(np.int64),
        costs=found[2].ravel() if tells_costs else None,
    )
