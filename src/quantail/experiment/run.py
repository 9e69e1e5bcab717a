"""One run from its configuration to its report.

Leak check, scaling on training rows, training with validation, choice of the best agent on
validation, one test, report: the order is here, and nowhere else.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

import torch

from quantail.config_file import write_config
from quantail.evaluation.record import Evaluation
from quantail.evaluation.record_file import save_evaluation
from quantail.experiment.agent import build_agent
from quantail.experiment.config import MarketEnvironment, RunConfig
from quantail.experiment.earlier import earlier_trials
from quantail.experiment.folder import CONFIG, PROVENANCE, RunFolder, usual_folder
from quantail.experiment.market_task import MarketSplit
from quantail.experiment.problem_task import KnownProblem
from quantail.experiment.provenance import provenance, role_seed
from quantail.experiment.selection import Selection
from quantail.experiment.tasks import Judgment, Task, Tried
from quantail.experiment.training import Training, Watcher
from quantail.experiment.walk_forward import join_evaluations
from quantail.market.dataset import USUAL_CACHE, Dataset, prepare
from quantail.report import write_report
from quantail.sb3.agent import DistributionalPPO

Role = Literal["validation", "test"]
ROLES: Final[tuple[Role, ...]] = ("validation", "test")


@dataclass(frozen=True, slots=True, eq=False)
class RunResult:
    """What a run came to."""

    folder: Path
    report: Path
    test: Evaluation | None
    """None when the user stopped it before the test."""


def run(
    config: RunConfig,
    watcher: Watcher,
    folder: Path | None = None,
    cache: Path = USUAL_CACHE,
) -> RunResult:
    """Train, choose, judge and report.

    Args:
        config: The run.
        watcher: Who is told of progress, and asked whether to stop.
        folder: Where everything is written; must be new or empty. By default a new one in ``runs``.
        cache: Folder where downloads keep what they fetched.

    Raises:
        ConfigError: The configuration is refused.
        DataError: The data are refused, or the folder cannot be written.
    """
    torch.set_num_threads(config.budget.threads)
    watcher.stage("Preparing data and checking it for leaks")
    dataset, tasks = prepare_tasks(config, cache)
    place = RunFolder.create(folder or usual_folder(_run_name(config)))
    place.write_text(CONFIG, write_config(config))
    place.write_json(PROVENANCE, provenance(config, dataset))
    place.set_status("running", 0)
    try:
        evaluations = _train_and_judge(config, place, tasks, watcher)
    except KeyboardInterrupt:
        place.set_status("interrupted", _last_step(place))
        raise
    except BaseException as error:
        place.set_status("failed", _last_step(place), f"{type(error).__name__}: {error}")
        raise
    watcher.stage("Writing the report")
    test = evaluations["test"] if evaluations is not None else None
    state: Literal["finished", "interrupted"] = "finished" if test is not None else "interrupted"
    place.set_status(state, _last_step(place), "" if test is None else test.verdict.sentence)
    return RunResult(place.path, write_report(place.path), test)


def prepare_tasks(
    config: RunConfig, cache: Path = USUAL_CACHE
) -> tuple[Dataset | None, tuple[Task, ...]]:
    """Return the data, if there are any, and a task for each split.

    :func:`quantail.market.dataset.prepare` is the only road from a configuration to features; it
    refuses what leaks.
    """
    environment = config.environment
    if not isinstance(environment, MarketEnvironment):
        return None, (KnownProblem.of(config, environment),)
    dataset = prepare(environment.data, cache)
    return dataset, MarketSplit.all_of(config, environment, dataset)


def _train_and_judge(
    config: RunConfig, folder: RunFolder, tasks: tuple[Task, ...], watcher: Watcher
) -> dict[Role, Evaluation] | None:
    """Train on every task and judge; None when the user stopped it."""
    found: dict[Role, list[Judgment]] = {role: [] for role in ROLES}
    for index, task in enumerate(tasks):
        of_several = f", split {index + 1} of {len(tasks)}" if len(tasks) > 1 else ""
        watcher.stage(f"Training on {task.name}{of_several}")
        trained = _train(config, folder, index, task, watcher)
        if trained is None:
            return None
        watcher.stage(f"Judging the best agent on {task.name}{of_several}")
        selection, tried = trained
        tried = replace(tried, earlier=earlier_trials(folder, task.name))
        agent = load_best(folder, selection)
        for role in ROLES:
            judgment = task.evaluate(agent, role, tried)
            found[role].append(judgment)
            if len(tasks) > 1:
                save_evaluation(judgment.evaluation, folder.path / "folds" / task.name / role)
        constant = found["test"][-1].constant
        if constant is not None:
            watcher.message(constant.sentence(f"the test on {task.name}"))
    joined = {role: _joined(config, judgments) for role, judgments in found.items()}
    for role, evaluation in joined.items():
        save_evaluation(evaluation, folder.path / "evaluation" / role)
    return joined


def _joined(config: RunConfig, judgments: Sequence[Judgment]) -> Evaluation:
    """Return the judgments of all splits as one evaluation."""
    parts = [judgment.evaluation for judgment in judgments]
    if len(parts) == 1:
        return parts[0]
    environment = config.environment
    assert isinstance(environment, MarketEnvironment), "only a market has several splits"
    evidence = [each.evidence for each in judgments if each.evidence is not None]
    return join_evaluations(parts, evidence, environment.evaluation)


def _train(
    config: RunConfig, folder: RunFolder, index: int, task: Task, watcher: Watcher
) -> tuple[Selection, Tried] | None:
    environment = task.training_environment(config.budget.n_envs)
    agent = build_agent(config.agent, environment.env, role_seed(config.seed, "agent", index))
    first_step = index * config.budget.steps
    training = Training(config, folder, task, first_step, agent, environment, watcher)
    training.run()
    return None if training.was_stopped else (training.selection, training.tried)


def load_best(folder: RunFolder, selection: Selection) -> DistributionalPPO:
    """Return the best agent on file."""
    return DistributionalPPO.load(folder.path / selection.best.file, device="cpu")


def _run_name(config: RunConfig) -> str:
    environment = config.environment
    if isinstance(environment, MarketEnvironment):
        return environment.data.source.kind
    return environment.problem.kind


def _last_step(folder: RunFolder) -> int:
    rows = folder.read_lines("metrics.jsonl")
    return int(rows[-1]["step"]) if rows else 0
