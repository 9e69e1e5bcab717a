"""Reads a run folder as far as it goes: a run may have been stopped at any moment.

::

    run/
    ├── config.yaml            resolved settings
    ├── provenance.json        versions, seed, fingerprint of the data
    ├── status.json            {"state": "running", "step": 2048}: how far the run came
    ├── messages.jsonl         {"step": 2048, "level": "warning", "text": "..."}
    ├── metrics.jsonl          one line per record of training: {"step": 2048, "train/loss": 0.1}
    ├── evaluation/{validation,test}/
    └── folds/SPLIT/test/      the same for each split, where there are several

What is missing or damaged becomes a sentence of the report; only a folder that holds nothing of a
run at all is refused.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeGuard

import numpy as np

from quantail.errors import DataError
from quantail.evaluation.record import Evaluation
from quantail.evaluation.record_file import load_evaluation
from quantail.report.numbers import number
from quantail.types import FloatArray, IntArray

CONFIG: Final = "config.yaml"
PROVENANCE: Final = "provenance.json"
METRICS: Final = "metrics.jsonl"
MESSAGES: Final = "messages.jsonl"
STATUS: Final = "status.json"
EVALUATION: Final = "evaluation"
SPLITS: Final = "folds"
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
    splits: Mapping[str, Evaluation]
    """Tests of single splits by name, where there are several."""
    warnings: tuple[str, ...]
    """What training said while it ran, such as a collapse of the policy."""
    notes: tuple[str, ...]
    problems: tuple[str, ...]
    """One sentence for each thing that is missing or damaged."""


def read_run(folder: Path) -> RunRecord:
    """Read everything readable in a run folder.

    Raises:
        DataError: The folder does not exist, cannot be read, or holds no run.
    """
    _check_is_run(folder)
    problems: list[str] = []
    _read_status(folder / STATUS, problems)
    config = _read_text(folder / CONFIG, "The settings are not on record", problems)
    provenance = _read_mapping(
        folder / PROVENANCE, "Versions, seed and data are not on record", problems
    )
    curves = _read_curves(folder / METRICS, problems)
    said = _read_messages(folder / MESSAGES, problems)
    evaluations: dict[Role, Evaluation] = {}
    for role in ROLES:
        found = _read_evaluation(folder / EVALUATION / role, role, problems)
        if found is not None:
            evaluations[role] = found
    if not (folder / EVALUATION / "test").exists():
        problems.append("The run was not tested: there is no test evaluation.")
    return RunRecord(
        folder=folder,
        config=config,
        provenance=provenance,
        curves=curves,
        evaluations=evaluations,
        splits=_read_splits(folder / SPLITS, problems),
        warnings=tuple(text for level, text in said if level == "warning"),
        notes=tuple(text for level, text in said if level != "warning"),
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


def _read_mapping(path: Path, sentence: str, problems: list[str]) -> dict[str, Any] | None:
    content = _read_text(path, sentence, problems)
    if content is None:
        return None
    values = _parsed(content)
    if values is None:
        problems.append(f"{sentence}: {path.name} is damaged.")
    return values


def _parsed(content: str) -> dict[str, Any] | None:
    """Return a JSON object; None when the text is none."""
    try:
        values = json.loads(content)
    except ValueError:
        return None
    return values if isinstance(values, dict) else None


def _read_status(path: Path, problems: list[str]) -> None:
    """Say so when the run did not come to its end."""
    status = _read_mapping(path, "How the run ended is not on record", problems)
    if status is None or status.get("state") == "finished":
        return
    step = status.get("step")
    at = f" at step {number(step, 'count')}" if _is_number(step) else ""
    words = {
        "running": f"The run had not ended when this report was written; last sign of life{at}.",
        "interrupted": f"The run was interrupted{at}.",
        "failed": f"The run failed{at}: {status.get('result', 'no reason on record')}",
    }
    state = str(status.get("state"))
    problems.append(words.get(state, f"The state of the run on record is {state!r}{at}."))


def _read_messages(path: Path, problems: list[str]) -> list[tuple[str, str]]:
    """Return level and text of each message, each text once."""
    if not path.exists():
        return []
    content = _read_text(path, "Messages of the run are missing", problems) or ""
    rows = [_parsed(line) for line in content.splitlines()]
    damaged = sum(row is None or not isinstance(row.get("text"), str) for row in rows)
    if damaged:
        problems.append(_damaged_lines(damaged, path))
    found: dict[str, str] = {}
    for row in rows:
        if row is not None and isinstance(row.get("text"), str):
            step = row.get("step")
            at = f"At step {number(step, 'count')}: " if _is_number(step) else ""
            found.setdefault(f"{at}{row['text']}", str(row.get("level", "warning")))
    return [(level, text) for text, level in found.items()]


def _damaged_lines(count: int, path: Path) -> str:
    lines = "1 line is" if count == 1 else f"{count} lines are"
    return f"{lines} damaged in {path.name} and left out."


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
        problems.append(_damaged_lines(damaged, path))
    if not points:
        problems.append(f"Training curves are missing: {path.name} holds no record yet.")
    return {
        tag: Curve(np.array(steps, dtype=np.int64), np.array(values, dtype=np.float64))
        for tag, (steps, values) in points.items()
    }


def _metrics_row(text: str) -> dict[str, float] | None:
    """Return the numbers of one line; None when it is damaged."""
    row = _parsed(text)
    if row is None or not _is_number(row.get(STEP)) or not math.isfinite(row[STEP]):
        return None
    # JSON has no NaN: a writer may put null in its place.
    return {
        tag: math.nan if value is None else float(value)
        for tag, value in row.items()
        if value is None or _is_number(value)
    }


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read_evaluation(folder: Path, name: str, problems: list[str]) -> Evaluation | None:
    if not folder.exists():
        return None
    try:
        return load_evaluation(folder)
    except DataError as error:
        problems.append(f"The {name} evaluation cannot be used: {error}")
        return None


def _read_splits(folder: Path, problems: list[str]) -> dict[str, Evaluation]:
    if not folder.is_dir():
        return {}
    found = {}
    for path in sorted(folder.iterdir()):
        evaluation = _read_evaluation(path / "test", f"{path.name} split's test", problems)
        if evaluation is not None:
            found[path.name] = evaluation
    return found
