"""What an agent with tail risk did in stretches as long as its episodes of training.

A window is one long run, while CVaR is that of an episode's return. So a budget starts anew after
as many bars as an episode had, and the stretches between are what its weight or limit speaks of.
"""

import numpy as np

from quantail.evaluation.backtest import MarketRun
from quantail.evaluation.measures import cvar
from quantail.sb3.agent import DistributionalPPO
from quantail.types import FloatArray


def stretch_returns(run: MarketRun, length: int, gamma: float) -> FloatArray:
    """Return the discounted rewards of all whole stretches, [n].

    The last stretch of a ruined account is whole too: nothing follows. What is left at the end of a
    window is not.

    Args:
        run: Of N accounts.
        length: Steps of a stretch; the first starts with the window.
        gamma: Discount.
    """
    n_steps, n_envs = run.rewards.shape
    count = -(-n_steps // length)
    shape = (count, length, n_envs)
    rewards, alive = np.zeros(shape), np.zeros(shape, np.bool_)
    rewards.reshape(-1, n_envs)[:n_steps] = run.rewards
    alive.reshape(-1, n_envs)[:n_steps] = run.alive
    ruined = np.array([bool(reason) for reason in run.ended])
    whole = alive.all(axis=1) | (alive[:, 0] & ruined)
    discounted: FloatArray = np.einsum("l,cln->cn", gamma ** np.arange(length), rewards)
    return np.asarray(discounted[whole])


def tail_note(agent: DistributionalPPO, run: MarketRun, length: int | None) -> str | None:
    """Return what a reader must know of an agent with tail risk; None for one without.

    Args:
        agent: The agent.
        run: Its own run over the windows.
        length: Steps of its episodes in training; None if they ran to the end of their window.
    """
    risk = agent.learner_config.tail_risk
    if risk is None:
        return None
    if length is None:
        return (
            "The agent's budget of tail risk was carried through each whole window, which may lead "
            "it far from those of training: episodes.length is null, so there is no length after "
            "which it starts anew."
        )
    name, value = ("weight", risk.weight) if risk.limit is None else ("limit", risk.limit)
    wanted = f"cvar_{name} is {value:g}"
    anew = (
        f"The agent's budget of tail risk started anew every {length} bars, as its episodes did in "
        "training."
    )
    returns = stretch_returns(run, length, agent.gamma)
    if not returns.size:
        return f"{anew} No window was as long, so there is no CVaR to report; {wanted}."
    return (
        f"{anew} CVaR at {risk.alpha:.4g} of the discounted reward over {returns.size} such "
        f"stretches was {float(cvar(returns, risk.alpha)):.4g}, which rests on "
        f"{risk.alpha * returns.size:.3g} of them; {wanted}."
    )
