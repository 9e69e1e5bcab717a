"""What an action means: a target position, as a fraction of the largest one."""

from typing import Annotated, Literal, TypeAlias

import numpy as np
from annotated_types import MinLen

from quantail.config_class import BY_KIND, config
from quantail.errors import ConfigError, ConfigProblem
from quantail.sim.compiled import helper, loop
from quantail.types import FloatArray


@config
class ContinuousActions:
    """One number in [-1, 1]: the target position."""

    kind: Literal["continuous"] = "continuous"
    long_only: bool = False
    """Map a to (a + 1) / 2, so that -1 is flat and the whole range stays useful."""
    out_of_range: Literal["refuse", "clip"] = "refuse"
    """An action outside [-1, 1] is an error, or is clipped and counted. NaN is always an error."""


@config
class DiscreteActions:
    """A choice among target positions."""

    kind: Literal["discrete"] = "discrete"
    levels: Annotated[tuple[float, ...], MinLen(2)] = (-1.0, 0.0, 1.0)
    """Target positions in [-1, 1], in rising order; without negative ones it is long-only."""
    hold: bool = True
    """One more action, the last one, that leaves the position alone."""

    def check(self) -> None:
        """Refuse levels outside the space or out of order."""
        if any(not -1.0 <= level <= 1.0 for level in self.levels):
            problem = f"must lie in [-1, 1]; was {self.levels!r}. Scale with account.max_leverage"
            raise ConfigError([ConfigProblem("levels", problem)])
        if list(self.levels) != sorted(set(self.levels)):
            problem = f"must rise from one to the next; was {self.levels!r}. Sort them"
            raise ConfigError([ConfigProblem("levels", problem)])

    @property
    def n_actions(self) -> int:
        """Number of choices."""
        return len(self.levels) + self.hold


ActionConfig: TypeAlias = Annotated[ContinuousActions | DiscreteActions, BY_KIND]


def is_long_only(actions: ContinuousActions | DiscreteActions) -> bool:
    """Return whether no action can ask for a short position."""
    if isinstance(actions, DiscreteActions):
        return actions.levels[0] >= 0.0
    return actions.long_only


def level_table(actions: ContinuousActions | DiscreteActions) -> FloatArray:
    """Return the position of each discrete action, NaN for hold; empty for continuous actions."""
    if isinstance(actions, ContinuousActions):
        return np.zeros(0)
    return np.array([*actions.levels, *([np.nan] if actions.hold else [])])


@loop
def first_bad_action_nb(actions: FloatArray, n_levels: int, may_clip: bool) -> int:
    """Return the first env whose action is no element of the space, -1 when all are."""
    n_inside = 0
    for i in range(actions.shape[0]):  # counts without a branch; mostly this is all there is to do
        if n_levels > 0:
            n_inside += (actions[i] >= 0.0) & (actions[i] < n_levels)
        else:
            n_inside += abs(actions[i]) <= 1.0
    if n_inside == actions.shape[0]:
        return -1
    for i in range(actions.shape[0]):
        action = actions[i]
        if n_levels > 0:
            if not (0.0 <= action < n_levels):
                return i
        elif not (-1.0 <= action <= 1.0) and not (may_clip and np.isfinite(action)):
            return i
    return -1


@helper
def target_nb(action: float, long_only: bool) -> tuple[float, bool]:
    """Return the target position in [-1, 1] of a continuous action, and whether it was clipped."""
    clipped = min(1.0, max(-1.0, action))
    return 0.5 * (clipped + 1.0) if long_only else clipped, clipped != action
