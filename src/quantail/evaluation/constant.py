"""Does a policy hold one and the same position, whatever happens?"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from quantail.sim.actions import DiscreteActions
from quantail.sim.config import SimConfig
from quantail.types import FloatArray

LEAST_SHARE: Final = 0.98
"""Share of the bars in which one position is held, from which a policy counts as constant."""
_NEAR: Final = 0.05
"""Difference to it that is drift of a price and no trade, as a share of the largest position."""


@dataclass(frozen=True, slots=True)
class ConstantPosition:
    """The position that a policy holds nearly always."""

    position: float
    share: float
    """Of the bars."""

    def sentence(self, where: str) -> str:
        """Return what this means.

        Args:
            where: Over what it was held, such as ``the test``.
        """
        held = f"{self.position:+.2f}" if abs(self.position) >= 0.005 else "0"
        return (
            f"The agent holds a position of about {held} for {100.0 * self.share:.1f}% of "
            f"{where}: all but one constant position, whatever it sees."
        )


def constant_position(positions: FloatArray, largest: float) -> ConstantPosition | None:
    """Return the position that is held nearly always, of whatever size; None if there is none.

    Args:
        positions: In all bars of all windows; NaN where there is no such thing as a position.
        largest: The largest position that is possible, or usual.
    """
    if not positions.size or np.isnan(positions).any():
        return None
    middle = float(np.median(positions))
    share = float((np.abs(positions - middle) <= _NEAR * largest).mean())
    return ConstantPosition(middle, share) if share >= LEAST_SHARE else None


def largest_position(config: SimConfig) -> float:
    """Return the largest position, notional over equity, that an account can take at its start."""
    account, actions = config.account, config.actions
    levels = actions.levels if isinstance(actions, DiscreteActions) else (1.0,)
    wanted = account.max_leverage * max(abs(level) for level in levels)
    notional = math.inf if account.max_notional is None else account.max_notional
    return min(wanted, notional / account.initial_equity)


def size_of(positions: FloatArray) -> float:
    """Return the largest position of a policy that trades.

    NaN for one that has no position or holds a single one: where that is the best there is, holding
    one is no fault, and :func:`constant_position` finds none beside NaN.
    """
    largest = float(np.abs(positions).max())
    return float("nan") if constant_position(positions, largest) is not None else largest
