"""One split of a market as the task of a run."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import numpy as np

from quantail.errors import DataError
from quantail.evaluation import measures as m
from quantail.evaluation.agent_policy import AgentPolicy
from quantail.evaluation.backtest import MarketTask, backtest
from quantail.evaluation.constant import constant_position, largest_position
from quantail.evaluation.evaluate_market import judge_market
from quantail.evaluation.periods import periods_per_year
from quantail.evaluation.record import Series
from quantail.experiment.config import MarketEnvironment, RunConfig
from quantail.experiment.provenance import role_seed
from quantail.experiment.tasks import Judgment, TrainingEnvironment, Tried, Validation
from quantail.market.bars import Bars
from quantail.market.dataset import Dataset, Fold
from quantail.sb3.agent import DistributionalPPO
from quantail.sb3.vec_env import MarketVecEnv
from quantail.sim.simulator import MarketSim
from quantail.types import FloatArray

_PER_YEAR: Final[Mapping[str, Callable[[FloatArray, float], FloatArray]]] = {
    "annual_return": m.annual_return,
    "volatility": m.volatility,
    "sharpe": m.sharpe,
    "sortino": m.sortino,
    "calmar": m.calmar,
}
_PER_BAR: Final[Mapping[str, Callable[[FloatArray], FloatArray]]] = {
    "total_return": m.total_return,
    "max_drawdown": m.max_drawdown,
    "max_drawdown_bars": m.max_drawdown_bars,
    "var_95": partial(m.value_at_risk, alpha=0.05),
    "var_99": partial(m.value_at_risk, alpha=0.01),
    "cvar_95": partial(m.cvar, alpha=0.05),
    "cvar_99": partial(m.cvar, alpha=0.01),
    "profit_factor": m.profit_factor,
    "hit_rate": m.hit_rate,
}
_OF_TRADING: Final[Mapping[str, Callable[[Series, float], float]]] = {
    "turnover": lambda series, periods: float(series.turnover.mean()) * periods,
    "costs_paid": lambda series, _: float(series.costs.sum()),
}
_NEUTRAL: Final[Mapping[str, float]] = {"profit_factor": 1.0, "hit_rate": 0.5}
_UNBOUNDED: Final = 1e6


def score(series: Series, metric: str, periods: float) -> float:
    """Return a measure of a portfolio as a score: higher is better, also of losses and costs.

    Ratios are not defined without risk. An account that never traded then has the score of neither
    gain nor loss; one that gained or lost the same in every bar has one beyond any ratio.
    """
    returns = series.net_return
    if metric in _PER_YEAR:
        value = float(_PER_YEAR[metric](returns, periods))
    elif metric in _PER_BAR:
        value = float(_PER_BAR[metric](returns))
    else:
        value = float(_OF_TRADING[metric](series, periods))
    if np.isnan(value):
        total = float(returns.sum())
        return math.copysign(_UNBOUNDED, total) if total != 0.0 else _NEUTRAL.get(metric, 0.0)
    return -value if m.MEASURES[metric].better == "lower" else value


@dataclass(frozen=True, slots=True, eq=False)
class MarketSplit:
    """One split: its training windows to learn in, the others to be judged on."""

    environment: MarketEnvironment
    seed: int
    metric: str
    index: int
    bars: Bars
    fold: Fold

    @staticmethod
    def all_of(
        config: RunConfig, environment: MarketEnvironment, dataset: Dataset
    ) -> tuple["MarketSplit", ...]:
        """Return every split, scaled with the statistics of its own training rows.

        Raises:
            DataError: A split has no validation or no test window.
        """
        splits = []
        for index in range(len(dataset.splits)):
            fold = dataset.fold(index)
            for role, rows in (("validation", fold.validation), ("test", fold.test)):
                if not len(rows):
                    raise DataError(
                        f"split {fold.split.name} has no {role} bars, and a run needs them: agents "
                        "are chosen on validation bars and judged on test bars. Set a size for it "
                        "in environment.data.splits."
                    )
            splits.append(
                MarketSplit(environment, config.seed, config.metric, index, dataset.bars, fold)
            )
        for split in splits:
            split.training_environment(1)  # refuses windows too short for an episode, before hours
            split._task("validation").simulator()
            split._task("test").simulator()
        return tuple(splits)

    @property
    def name(self) -> str:
        """Of the split."""
        return self.fold.split.name

    def training_environment(self, n_envs: int) -> TrainingEnvironment:
        """Return N accounts over the training windows."""
        sim = MarketSim(
            self.bars,
            self._features,
            windows=self._task("train").windows,
            config=self.environment.simulator,
            n_envs=n_envs,
            seed=role_seed(self.seed, "train", self.index),
        )
        env = MarketVecEnv(sim, cost=self.environment.cost)
        return TrainingEnvironment(env, sim.set_cost_scale)

    def validate(self, agent: DistributionalPPO) -> Validation:
        """Return the chosen measure over the validation windows."""
        task = self._task("validation")
        policy = AgentPolicy(agent, budget_steps=task.config.episodes.length)
        track = backtest(task, policy)
        returns = track.portfolio.net_return
        value = score(track.portfolio, self.metric, periods_per_year(self.bars))
        constant = constant_position(
            track.bars.position, largest_position(self.environment.simulator)
        )
        return Validation(value, returns=returns, constant=constant)

    def evaluate(
        self, agent: DistributionalPPO, role: Literal["validation", "test"], tried: Tried
    ) -> Judgment:
        """Judge an agent on the windows of a role."""
        evaluation, evidence = judge_market(
            self._task(role),
            agent,
            role=role,
            split=self.name,
            seeds=(self.seed,),
            n_trials=tried.count + tried.earlier,
            trial_returns=np.column_stack(tried.returns) if tried.returns else None,
            settings=self.environment.evaluation,
        )
        if tried.earlier:
            note = (
                f"Of the {evaluation.n_trials} trials that count, {tried.earlier} were made by "
                "earlier runs on the same bars, beside this one."
            )
            evaluation = dataclasses.replace(evaluation, notes=(*evaluation.notes, note))
        return Judgment(evaluation, evidence.constant, evidence)

    @property
    def _features(self) -> FloatArray | None:
        values = self.fold.features.values
        return np.asarray(values) if values.shape[1] else None

    def _task(self, role: Literal["train", "validation", "test"]) -> MarketTask:
        rows = {
            "train": self.fold.train,
            "validation": self.fold.validation,
            "test": self.fold.test,
        }[role]
        return MarketTask.of_rows(self.bars, self._features, rows, self.environment.simulator)
