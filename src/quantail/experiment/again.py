"""Judging an agent of an earlier run."""

from pathlib import Path

import torch

from quantail.config_file import read_config
from quantail.errors import ConfigError, DataError
from quantail.evaluation.record import Evaluation
from quantail.evaluation.record_file import save_evaluation
from quantail.experiment.config import RunConfig
from quantail.experiment.earlier import earlier_trials
from quantail.experiment.folder import CONFIG, RunFolder
from quantail.experiment.run import ROLES, prepare_tasks
from quantail.experiment.selection import read_selection
from quantail.experiment.tasks import Task, Tried
from quantail.market.dataset import USUAL_CACHE
from quantail.sb3.agent import DistributionalPPO


def evaluate_again(
    run: Path,
    role: str = "test",
    *,
    split: str | None = None,
    agent: Path | None = None,
    out: Path | None = None,
    cache: Path = USUAL_CACHE,
) -> tuple[Evaluation, Path]:
    """Judge an agent of a run and save the result.

    Args:
        run: The run's folder.
        role: test or validation.
        split: Name of the split; needed when the run has several.
        agent: Its file; by default the best one of the split.
        out: New folder of the evaluation; by default the run's own place for it.
        cache: Folder where downloads keep what they fetched.

    Returns:
        The evaluation and its folder.
    """
    if role not in ROLES:
        raise ConfigError(f"--role must be one of {', '.join(ROLES)}; was {role!r}.")
    folder = RunFolder.open(run)
    config = read_config(RunConfig, run / CONFIG)
    torch.set_num_threads(config.budget.threads)
    _, tasks = prepare_tasks(config, cache)
    task = _chosen(tasks, split)
    place = out or (
        run / "evaluation" / role if len(tasks) == 1 else run / "folds" / task.name / role
    )
    if place.exists():
        raise DataError(f"{place} exists already. Give a new folder with --out.")
    selection = read_selection(folder, f"checkpoints/{task.name}")
    file = agent or folder.path / selection.best.file
    tried = Tried(selection.n_tried, earlier=earlier_trials(folder, task.name))
    evaluation = task.evaluate(_load(file), role, tried).evaluation
    save_evaluation(evaluation, place)
    return evaluation, place


def _chosen(tasks: tuple[Task, ...], split: str | None) -> Task:
    names = [task.name for task in tasks]
    if split is None:
        if len(tasks) == 1:
            return tasks[0]
        raise ConfigError(f"--split must name one of {', '.join(names)}; it was left out.")
    if split not in names:
        raise ConfigError(f"--split must be one of {', '.join(names)}; was {split!r}.")
    return tasks[names.index(split)]


def _load(file: Path) -> DistributionalPPO:
    try:
        return DistributionalPPO.load(file, device="cpu")
    except FileNotFoundError as error:
        raise DataError(f"{error}. Give the file of a saved agent.") from error
