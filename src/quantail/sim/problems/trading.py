"""The books that the trading problems share: a position, a return, a cost."""

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from quantail.errors import ConfigError, ConfigProblem
from quantail.sim.compiled import kernel
from quantail.sim.problems.interface import VectorProblem
from quantail.sim.trade_costs import trade_costs_nb
from quantail.types import FloatArray, IntArray

POSITION_STEP = spaces.Discrete(3)
"""Short, flat or long."""


@kernel
def _costs_nb(rate: float, before: FloatArray, after: FloatArray, out: FloatArray) -> None:
    for i in range(out.size):
        fee, half, slippage = trade_costs_nb(
            abs(after[i] - before[i]), 1.0, rate, 0.0, 0.0, math.inf
        )
        out[i] = fee + half + slippage


def proportional_cost(rate: float, before: FloatArray, after: FloatArray) -> FloatArray:
    """Return c·|x_after − x_before|, what it costs to change the position. [N].

    The cost function of the market's accounts, for a fee of c on an asset of price 1.
    """
    out = np.empty(before.size)
    _costs_nb(float(rate), before, after, out)
    return out


def as_choice(position: FloatArray) -> IntArray:
    """Return the discrete action that sets a position of −1, 0 or 1. [N]."""
    return np.rint(position).astype(np.int64) + 1


def as_position(choice: NDArray[Any]) -> FloatArray:
    """Return the position that a discrete action sets. [N]."""
    return choice.astype(np.float64) - 1.0


class TradingProblem(VectorProblem):
    """A problem in which the action sets a position and changing it costs something."""

    def __init__(
        self,
        *,
        n_envs: int,
        seed: int,
        first_env: int,
        observation_space: spaces.Box,
        action_space: spaces.Box | spaces.Discrete,
        episode_length: int | None,
    ) -> None:
        super().__init__(
            n_envs=n_envs,
            seed=seed,
            first_env=first_env,
            observation_space=observation_space,
            action_space=action_space,
            episode_length=episode_length,
        )
        self._arrays["position"] = np.zeros(n_envs)
        self._arrays["cost_scale"] = np.ones(())

    @property
    def cost_scale(self) -> float:
        """The factor on all trading costs, 1 unless a ramp has set it."""
        return float(self._arrays["cost_scale"])

    def set_cost_scale(self, scale: float) -> None:
        """Multiply all trading costs by ``scale`` from now on.

        A learner that meets the full cost at once may stop trading before it has found the signal;
        a ramp from 0 to 1 avoids that. The exact solutions are those of scale 1.
        """
        if not (np.isfinite(scale) and scale >= 0.0):
            raise ConfigError(
                [ConfigProblem("scale", f"must be finite and at least 0; was {scale}")]
            )
        self._arrays["cost_scale"][...] = scale
