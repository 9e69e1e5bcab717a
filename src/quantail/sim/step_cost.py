"""What a step costs, for agents that limit the mean cost of an episode."""

from typing import Literal, TypeAlias, get_args

from quantail.errors import ConfigError
from quantail.sim.state import StepBuffers
from quantail.types import FloatArray

StepCost: TypeAlias = Literal["costs", "turnover"]
"""``costs``: all that was paid. ``turnover``: notional traded. Both over the equity before."""


def check_step_cost(kind: object) -> None:
    """Refuse an unknown kind of cost; None is none."""
    if kind is not None and kind not in get_args(StepCost):
        raise ConfigError(f"cost must be {' or '.join(get_args(StepCost))}, or None; was {kind!r}")


def step_cost(out: StepBuffers, kind: StepCost) -> FloatArray:
    """Return the cost of the latest step, [N]."""
    if kind == "costs":
        return out.column("cost_fraction")
    return out.column("traded") / out.column("equity_before")
