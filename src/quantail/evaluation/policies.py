"""Who acts in an evaluation: an agent with its memory, or a rule.

A policy is stateless: what it carries from step to step is handed to it and handed back.
"""

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from quantail.sim.actions import ActionConfig, ContinuousActions, DiscreteActions
from quantail.sim.problems import Policy as ProblemRule
from quantail.types import BoolArray, Float32Array, FloatArray, IntArray

StateT = TypeVar("StateT")


@dataclass(frozen=True, slots=True)
class Moment:
    """What is known when N accounts decide."""

    observations: Float32Array
    """[N, O]"""
    rows: IntArray
    """[N] the bar that has just closed; the number of the step in a problem."""
    starts: BoolArray
    """[N] the first decision of an episode."""


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """A critic's law of the discounted return from now on, for N accounts."""

    atoms: FloatArray
    """[N, M] in rising order."""
    weights: FloatArray
    """[N, M]; each row sums to 1."""

    def mean(self) -> FloatArray:
        """Return the mean of each law, [N]."""
        mean: FloatArray = (self.atoms * self.weights).sum(axis=1)
        return mean


class ActingPolicy(Protocol[StateT]):
    """What can be evaluated. The state is None before the first decision."""

    def act(self, moment: Moment, state: StateT | None) -> tuple[NDArray[Any], StateT]:
        """Return actions [N] or [N, A] and the state after the decision."""
        ...

    def receive(self, state: StateT, rewards: FloatArray) -> StateT:
        """Take in the rewards [N] of the step; for a policy that observes what it has earned."""
        ...

    def forecast(self, state: StateT) -> Forecast | None:
        """Return what the policy expected when it decided; None if it expects nothing."""
        ...


@dataclass(frozen=True, slots=True)
class TargetRule:
    """A rule that wants a position in [-1, 1], given as a table over the bars.

    G rules run side by side over G copies of the W windows: env i follows rule i // W.
    """

    targets: FloatArray
    """[R, G] position wanted after the close of each bar."""
    actions: ActionConfig
    """How the simulator wants to be told."""
    n_windows: int
    """W"""

    def act(self, moment: Moment, state: None) -> tuple[NDArray[Any], None]:
        """Return the action nearest to the target."""
        rule = np.arange(len(moment.rows)) // self.n_windows
        return target_actions(self.targets[moment.rows, rule], self.actions), None

    def receive(self, state: None, rewards: FloatArray) -> None:
        """Rewards change nothing."""
        return

    def forecast(self, state: None) -> None:
        """A rule expects nothing."""
        return


@dataclass(frozen=True, slots=True)
class RuleOfProblem:
    """A fixed rule of a problem with a known answer; its state is the rule's memory."""

    rule: ProblemRule

    def act(self, moment: Moment, state: FloatArray | None) -> tuple[NDArray[Any], FloatArray]:
        """Act with a memory that is zero at the start of an episode."""
        memory = np.zeros((len(moment.rows), self.rule.memory_size)) if state is None else state
        return self.rule.act(moment.observations, np.where(moment.starts[:, None], 0.0, memory))

    def receive(self, state: FloatArray, rewards: FloatArray) -> FloatArray:
        """Rewards change nothing."""
        return state

    def forecast(self, state: FloatArray) -> None:
        """A rule expects nothing."""
        return


def target_actions(targets: FloatArray, actions: ActionConfig) -> NDArray[Any]:
    """Return the actions [N] that ask for the positions [N], the nearest ones if discrete."""
    match actions:
        case ContinuousActions(long_only=True):
            return np.clip(2.0 * targets - 1.0, -1.0, 1.0)
        case ContinuousActions():
            return np.clip(targets, -1.0, 1.0)
        case DiscreteActions(levels=levels):
            return np.asarray(np.abs(np.array(levels) - targets[:, None]).argmin(axis=1))
