"""Reads a run folder as far as it goes: a run may have been stopped at any moment.

::

    run/
    ├── config.yaml            resolved settings
    ├── provenance.json        versions, seed, fingerprint of the data
    ├── metrics.jsonl          one line per record of training: {"step": 2048, "train/loss": 0.1}
    └── evaluation/{validation,test}/

What is missing or damaged becomes a sentence of the report; only a folder that holds nothing of a
run at all is refused.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from quantail.errors import DataError
from quantail.evaluation.record import Evaluation
from quantail.evaluation.record_file import load_evaluation
from quantail.types import FloatArray, IntArray

CONFIG: Final = "config.yaml"
PROVENANCE: Final = "provenance.json"
METRICS: Final = "metrics.jsonl"
EVALUATION: Final = "evaluation"
STEP: Final = "step"

Role = Literal["test", "validation"]
ROLES: Final[tuple[Role, ...]] = ("test", "validation")


@dataclass(frozen=True, slots=True, eq=False)
class Curve:
    """One metric over training."""

    steps: IntArray
    values: FloatArray
    """As recorded; NaN and infinities stay, as they are news."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RunRecord:
    """What a run folder holds."""

    folder: Path
    config: str | None
    provenance: Mapping[str, Any] | None
    curves: Mapping[str, Curve]
    """By tag; empty when training left no record."""
    evaluations: Mapping[Role, Evaluation]
    problems: tuple[str, ...]
    """One sentence for each thing that is missing or damaged."""


def read_run(folder: Path) -> RunRecord:
    """Read everything readable in a run folder.

    Raises:
        DataError: The folder does not exist, cannot be read, or holds no run.
    """
    _check_is_run(folder)
    problems: list[str] = []
    config = _read_text(folder / CONFIG, "The settings are not on record", problems)
    provenance = _read_provenance(folder / PROVENANCE, problems)
    curves = _read_curves(folder / METRICS, problems)
    evaluations: dict[Role, Evaluation] = {}
    for role in ROLES:
        found = _read_evaluation(folder / EVALUATION / role, role, problems)
        if found is not None:
            evaluations[role] = found
    return RunRecord(
        folder=folder,
        config=config,
        provenance=provenance,
        curves=curves,
        evaluations=evaluations,
        problems=tuple(problems),
    )


def _check_is_run(folder: Path) -> None:
    known = (CONFIG, PROVENANCE, METRICS, EVALUATION)
    try:
        names = {path.name for path in folder.iterdir()}
    except OSError as error:
        raise DataError(
            f"run folder {folder} cannot be read ({error.strerror}). Give the folder that "
            "`quantail train` named."
        ) from error
    if names.isdisjoint(known):
        raise DataError(
            f"run folder {folder} holds no run: none of {', '.join(known)} is in it. Give the "
            "folder that `quantail train` named."
        )


def _read_text(path: Path, sentence: str, problems: list[str]) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        problems.append(f"{sentence}: {path.name} is missing.")
    except OSError as error:
        problems.append(f"{sentence}: {path.name} cannot be read ({error.strerror}).")
    except UnicodeDecodeError:
        problems.append(f"{sentence}: {path.name} is damaged, as it is not text.")
    return None


def _read_provenance(path: Path, problems: list[str]) -> dict[str, Any] | None:
    sentence = "Versions, seed and data are not on record"
    content = _read_text(path, sentence, problems)
    if content is None:
        return None
    try:
        values = json.loads(content)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        problems.append(f"{sentence}: {path.name} is damaged.")
        return None
    return values


def _read_curves(path: Path, problems: list[str]) -> dict[str, Curve]:
    content = _read_text(path, "Training curves are missing", problems)
    if content is None:
        return {}
    points: dict[str, tuple[list[int], list[float]]] = {}
    damaged = 0
    for text in content.splitlines():
        row = _metrics_row(text)
        if row is None:
            damaged += 1
            continue
        for tag, value in row.items():
            if tag != STEP:
                steps, values = points.setdefault(tag, ([], []))
                steps.append(int(row[STEP]))
                values.append(value)
    if damaged:
        lines = "1 line is" if damaged == 1 else f"{damaged} lines are"
        problems.append(f"{lines} damaged in {path.name} and left out of the training curves.")
    if not points:
        problems.append(f"Training curves are missing: {path.name} holds no record yet.")
    return {
        tag: Curve(np.array(steps, dtype=np.int64), np.array(values, dtype=np.float64))
        for tag, (steps, values) in points.items()
    }


def _metrics_row(text: str) -> dict[str, float] | None:
    """Return the numbers of one line; None when it is damaged."""
    try:
        row = json.loads(text)
    except ValueError:
        return None
    if not isinstance(row, dict) or not _is_number(row.get(STEP)) or not math.isfinite(row[STEP]):
        return None
    # JSON has no NaN: a writer may put null in its place.
    return {
        tag: math.nan if value is None else float(value)
        for tag, value in row.items()
        if value is None or _is_number(value)
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read_evaluation(folder: Path, role: Role, problems: list[str]) -> Evaluation | None:
    if not folder.exists():
        problems.append(
            "The run was not tested: there is no test evaluation. It may have been stopped early."
            if role == "test"
            else "There is no validation evaluation."
        )
        return None
    try:
        return load_evaluation(folder)
    except DataError as error:
        problems.append(f"The {role} evaluation cannot be used: {error}")
        return None
