"""Has the policy collapsed to doing the same whatever it sees?

The usual failure of learning to trade under costs: the agent stops trading before it has found
anything, its reward is zero with no spread, and no gradient leads back.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from quantail.experiment.config import MarketEnvironment, ProblemEnvironment
from quantail.flow import Rollout
from quantail.sim.actions import ContinuousActions, level_table

LEAST_SHARE_OFF: Final = 0.01
"""Share of rows off the most frequent choice, below which a policy counts as constant."""
LEAST_DEVIATION: Final = 0.01
"""Standard deviation between rows of a continuous law's mode, below which a policy counts as
constant. An action of a market lies in [-1, 1]."""

PATIENCE: Final = 3
"""Rollouts in a row; a single one may be chance."""


@dataclass(frozen=True, slots=True)
class ActionSpread:
    """How much the actions of a rollout differ."""

    spread: float
    is_constant: bool
    action: float
    """The most frequent choice, or the mean action."""


def action_spread(rollout: Rollout) -> ActionSpread:
    """Return how much what the policy prefers differs between the rows of a rollout.

    Looked at is the mode of the acting law, not the draw from it: a policy that explores around one
    and the same action has collapsed too.
    """
    with torch.no_grad():
        modes = rollout.policy.to_env(rollout.policy.mode()).float().flatten(0, 1)
    rows = modes.reshape(len(modes), -1).numpy()
    if torch.is_floating_point(rollout.actions):
        spread = float(rows.std(axis=0).max())
        return ActionSpread(spread, spread < LEAST_DEVIATION, float(rows.mean()))
    choices, counts = np.unique(rows, axis=0, return_counts=True)
    spread = 1.0 - float(counts.max()) / len(rows)
    most = float(choices[counts.argmax()].mean())
    return ActionSpread(spread, spread < LEAST_SHARE_OFF, most)


def action_words(action: float, environment: ProblemEnvironment | MarketEnvironment) -> str:
    """Return what an action means to the user: on a market the position it asks for."""
    if not isinstance(environment, MarketEnvironment):
        return f"action {action:.3g}"
    actions = environment.simulator.actions
    if isinstance(actions, ContinuousActions):
        target = 0.5 * (action + 1.0) if actions.long_only else action
    else:
        target = float(level_table(actions)[round(action)])
    return "hold what is there" if np.isnan(target) else f"target position {target:+.3g}"


def collapse_message(action: str, cost_ramp: float, ent_coef: float) -> str:
    """Return what happened and what to try."""
    remedy = (
        "Costs are ramped already; try a longer ramp, a larger agent.ent_coef than "
        f"{ent_coef:g}, or features that tell more."
        if cost_ramp > 0.0
        else "Try budget.cost_ramp = 0.5, so that trading is learned before it is paid for."
    )
    return (
        f"The policy has collapsed to one action ({action}) whatever it sees, in {PATIENCE} "
        f"rollouts in a row at full cost. {remedy}"
    )
