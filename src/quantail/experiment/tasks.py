"""What a run trains on and is judged on: one task for each split of a market, or a problem."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from stable_baselines3.common.vec_env import VecEnv

from quantail.evaluation.constant import ConstantPosition
from quantail.evaluation.curves import Evidence
from quantail.evaluation.record import Evaluation
from quantail.sb3.agent import DistributionalPPO
from quantail.types import FloatArray


@dataclass(frozen=True, slots=True)
class TrainingEnvironment:
    """Where an agent learns."""

    env: VecEnv
    set_cost_scale: Callable[[float], None]
    """Sets the share of the trading costs that is charged."""


@dataclass(frozen=True, slots=True, eq=False)
class Validation:
    """What a trial on validation data said."""

    score: float
    """Higher is better."""
    fraction: float | None = None
    """Of the optimum, where that is known."""
    returns: FloatArray | None = None
    """[T] net returns of the portfolio, on a market."""
    constant: ConstantPosition | None = None
    """What the agent holds nearly always, if it does."""


@dataclass(frozen=True, slots=True, eq=False)
class Judgment:
    """An evaluation, and what is known beyond what its record holds."""

    evaluation: Evaluation
    constant: ConstantPosition | None
    """What the agent holds nearly always, if it does."""
    evidence: Evidence | None = None
    """What it rests on, on a market."""


@dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """The agents that were tried before one was chosen."""

    count: int = 0
    returns: tuple[FloatArray, ...] = ()
    """[T] each, over the same validation bars; empty where there are no bars."""
    earlier: int = 0
    """Those that earlier runs had tried on the same bars."""

    def and_one(self, validation: Validation) -> "Tried":
        """Return the record with one more trial."""
        more = () if validation.returns is None else (validation.returns,)
        return Tried(self.count + 1, (*self.returns, *more), self.earlier)


class Task(Protocol):
    """One split of the data, or a problem."""

    @property
    def name(self) -> str:
        """Of the split or the problem; a folder can have this name."""

    def training_environment(self, n_envs: int) -> TrainingEnvironment:
        """Return N environments over the training data."""

    def validate(self, agent: DistributionalPPO) -> Validation:
        """Try an agent on validation data, at full cost."""

    def evaluate(
        self, agent: DistributionalPPO, role: Literal["validation", "test"], tried: Tried
    ) -> Judgment:
        """Judge an agent at full cost; ``tried`` is what it was chosen from."""
