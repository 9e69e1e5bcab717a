"""Rewards: one file each, one union.

To add one: a file with a config (a new ``code``) and its ``_nb`` function, a word in
``RewardConfig`` and a branch in :func:`reward_nb`. A reward sees one step of one account and two
numbers of memory that start at 0 in every episode.
"""

from typing import Annotated, TypeAlias

from quantail.config_class import BY_KIND
from quantail.errors import ConfigError, ConfigProblem
from quantail.sim.compiled import helper
from quantail.sim.rewards.differential_sharpe import DifferentialSharpe, differential_sharpe_nb
from quantail.sim.rewards.drawdown_penalty import DrawdownPenalty, drawdown_penalty_nb
from quantail.sim.rewards.log_return import LogReturn, log_return_nb
from quantail.sim.rewards.outcome import Outcome
from quantail.sim.rewards.potential import PotentialShaped, potential_nb
from quantail.sim.rewards.simple_return import SimpleReturn, simple_return_nb

__all__ = [
    "DifferentialSharpe",
    "DrawdownPenalty",
    "LogReturn",
    "Outcome",
    "PotentialShaped",
    "RewardConfig",
    "SimpleReturn",
    "check_gamma",
    "reward_nb",
]

AnyReward: TypeAlias = (
    LogReturn | SimpleReturn | DifferentialSharpe | DrawdownPenalty | PotentialShaped
)
RewardConfig: TypeAlias = Annotated[AnyReward, BY_KIND]


def check_gamma(reward: AnyReward, agent_gamma: float) -> None:
    """Refuse potential shaping with another discount than the agent's."""
    if isinstance(reward, PotentialShaped) and reward.gamma != agent_gamma:
        problem = (
            f"must equal the agent's gamma, {agent_gamma!r}; was {reward.gamma!r}. With another "
            "discount the shaping changes the best policy"
        )
        raise ConfigError([ConfigProblem("reward.gamma", problem)])


@helper
def reward_nb(
    code: int, o: Outcome, memory_0: float, memory_1: float, p0: float, p1: float, p2: float
) -> tuple[float, float, float]:
    """Return the reward of one step and the memory for the next one."""
    if code == 0:
        return log_return_nb(o, memory_0, memory_1, p0, p1, p2)
    if code == 1:
        return simple_return_nb(o, memory_0, memory_1, p0, p1, p2)
    if code == 2:
        return differential_sharpe_nb(o, memory_0, memory_1, p0, p1, p2)
    if code == 3:
        return drawdown_penalty_nb(o, memory_0, memory_1, p0, p1, p2)
    return potential_nb(o, memory_0, memory_1, p0, p1, p2)
