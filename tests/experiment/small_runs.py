"""Runs that take a second or two: real, only small."""

from pathlib import Path

from quantail.config_file import read_config
from quantail.experiment.config import RunConfig
from quantail.experiment.training import Progress

TINY = (
    "agent.core.hidden_size=8",
    "agent.actor_layers=[8]",
    "agent.critic_layers=[8]",
    "agent.critic.n_quantiles=4",
    "agent.n_steps=16",
    "agent.batch_size=64",
    "agent.n_epochs=1",
    "budget.n_envs=8",
    "budget.steps=1024",
    "selection.validations=3",
    "selection.keep=2",
)
PROBLEM = (
    *TINY,
    "environment.problem.kind=positive_control",
    "environment.validation_envs=8",
    "environment.validation_steps=30",
    "environment.test_envs=30",
    "environment.test_steps=60",
    "environment.evaluation.bootstrap.samples=100",
    "environment.evaluation.cost_factors=[1.0]",
    "environment.evaluation.sampled=false",
)
MARKET = (
    *TINY,
    "environment.kind=market",
    "environment.data.source.kind=synthetic",
    "environment.data.source.bars=700",
    "environment.data.source.symbols=2",
    "environment.data.features=[{kind: log_return, horizons: [1, 5]}]",
    "environment.data.splits.kind=walk_forward",
    "environment.data.splits.train_size=300",
    "environment.data.splits.validation_size=100",
    "environment.data.splits.test_size=150",
    "environment.simulator.episodes.length=32",
    "environment.evaluation.bootstrap.samples=100",
    "environment.evaluation.delays=[]",
    "environment.evaluation.sampled=false",
    "environment.evaluation.cost_factors=[]",
    "budget.steps=512",
    "selection.validations=2",
)


def small(*overrides: str, of: tuple[str, ...] = PROBLEM) -> RunConfig:
    return read_config(RunConfig, None, (*of, *overrides))


class Watcher:
    """Remembers what it was told."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.stages: list[str] = []
        self.seen: list[Progress] = []
        self.messages: list[str] = []
        self._stop_after = stop_after

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def progress(self, progress: Progress) -> None:
        self.seen.append(progress)

    def message(self, text: str) -> None:
        self.messages.append(text)

    def should_stop(self) -> bool:
        return self._stop_after is not None and len(self.seen) >= self._stop_after


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
