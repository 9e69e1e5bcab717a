"""Problems with known answers: an agent far from the optimum is broken, one above it has a leak.

Each problem is a frozen configuration that builds N instances, solves itself exactly and offers its
policies. The union ``ProblemConfig`` is the register.
"""

from typing import Annotated, TypeAlias

from quantail.config_class import BY_KIND
from quantail.sim.problems.evaluation import Evaluation, Score, evaluate, score
from quantail.sim.problems.execution import OptimalExecution
from quantail.sim.problems.gaussian import GaussianWeight
from quantail.sim.problems.interface import Policy, Problem, Solution, StepResult, VectorProblem
from quantail.sim.problems.lottery import (
    BettingGame,
    GambleChain,
    RiskScore,
    peso_game,
    risk_score,
)
from quantail.sim.problems.martingale import NegativeControl, block_permuted_signs
from quantail.sim.problems.merton import Merton
from quantail.sim.problems.regime import HiddenRegime
from quantail.sim.problems.signal import (
    NoTradeBand,
    PositiveControl,
    ProportionalCost,
    QuadraticCost,
)
from quantail.sim.problems.small import DistractorBandit, OneStateChain, TMaze

ProblemConfig: TypeAlias = Annotated[
    QuadraticCost
    | ProportionalCost
    | NoTradeBand
    | PositiveControl
    | NegativeControl
    | HiddenRegime
    | Merton
    | OptimalExecution
    | BettingGame
    | GambleChain
    | GaussianWeight
    | TMaze
    | OneStateChain
    | DistractorBandit,
    BY_KIND,
]

__all__ = [
    "BettingGame",
    "DistractorBandit",
    "Evaluation",
    "GambleChain",
    "GaussianWeight",
    "HiddenRegime",
    "Merton",
    "NegativeControl",
    "NoTradeBand",
    "OneStateChain",
    "OptimalExecution",
    "Policy",
    "PositiveControl",
    "Problem",
    "ProblemConfig",
    "ProportionalCost",
    "QuadraticCost",
    "RiskScore",
    "Score",
    "Solution",
    "StepResult",
    "TMaze",
    "VectorProblem",
    "block_permuted_signs",
    "evaluate",
    "peso_game",
    "risk_score",
    "score",
]
