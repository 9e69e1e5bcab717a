"""A run's folder: everything about a run, whole at every moment.

::

    runs/hidden_regime-20260131-120000/
    ├── config.yaml              the resolved configuration; reading it again gives the same run
    ├── provenance.json          versions, machine, data fingerprint, seeds
    ├── status.json              running, finished, interrupted or failed; step; result in words
    ├── metrics.jsonl            one line per update: {"step": ..., "tag": value, ...}
    ├── messages.jsonl           what deserved a word: {"step": ..., "level": ..., "text": ...}
    ├── checkpoints/             agents by split and step, and selection.json: which were kept, why
    ├── evaluation/test/         the judgment (quantail.evaluation.record_file)
    ├── folds/SPLIT/...          the same for each split, where there are several
    └── report.html

A file is written beside its place and renamed; lines are appended by one system call each. A kill
at any moment therefore leaves whole files, and at most an unfinished last line, which is skipped.
"""

import json
import os
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from quantail.checkpoint.archive import replace_file
from quantail.errors import DataError

CONFIG: Final = "config.yaml"
PROVENANCE: Final = "provenance.json"
STATUS: Final = "status.json"
METRICS: Final = "metrics.jsonl"
MESSAGES: Final = "messages.jsonl"
SELECTION: Final = "selection.json"

State = Literal["running", "finished", "interrupted", "failed"]


class RunFolder:
    """The folder of one run.

    Attributes:
        path: Where it is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path) -> "RunFolder":
        """Make a new, empty folder.

        Raises:
            DataError: It exists already with something in it, or cannot be written.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise DataError(
                    f"run folder {path} is not empty, and a run is never overwritten. Choose "
                    "another folder, or remove it."
                )
            (path / "checkpoints").mkdir()
        except OSError as error:
            raise DataError(
                f"run folder {path} cannot be written: {error.strerror}. Choose another with --out."
            ) from error
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open the folder of an earlier run.

        Raises:
            DataError: It holds no run.
        """
        if not (path / CONFIG).is_file():
            raise DataError(
                f"{path} holds no run: there is no {CONFIG} in it. Give the folder that "
                "`quantail train` named."
            )
        return cls(path)

    def write_text(self, name: str, text: str) -> None:
        """Write a file whole, in place of an older one if there is one.

        Raises:
            DataError: It cannot be written.
        """
        try:
            replace_file(self.path / name, text.encode())
        except OSError as error:
            raise DataError(f"{self.path / name} cannot be written: {error.strerror}.") from error

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write plain values as JSON."""
        self.write_text(name, json.dumps(value, indent=1, allow_nan=False) + "\n")

    def append(self, name: str, row: Mapping[str, Any]) -> None:
        """Append one line of JSON by one system call."""
        line = json.dumps(row, allow_nan=False) + "\n"
        handle = os.open(self.path / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)

    def message(self, step: int, text: str, level: Literal["note", "warning"] = "warning") -> None:
        """Keep a sentence that a reader of the report should see."""
        self.append(MESSAGES, {"step": step, "level": level, "text": text})

    def set_status(self, state: State, step: int, result: str = "") -> None:
        """Say how far the run is."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self.write_json(STATUS, {"state": state, "step": step, "result": result, "time": now})

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a JSON file of the run.

        Raises:
            DataError: It is missing or damaged.
        """
        path = self.path / name
        try:
            value = json.loads(path.read_bytes())
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}.") from error
        except ValueError as error:
            raise DataError(f"{path} is damaged: {error}.") from error
        if not isinstance(value, dict):
            raise DataError(f"{path} is damaged: it holds no keys and values.")
        return value

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        """Return the whole lines of a JSON-lines file; an unfinished last line is left out.

        Raises:
            DataError: A line other than the last is damaged.
        """
        path = self.path / name
        if not path.exists():
            return []
        *whole, _unfinished = path.read_bytes().split(b"\n")
        rows = []
        for number, line in enumerate(whole, start=1):
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise DataError(f"{path} is damaged in line {number}: {error}.") from error
        return rows


def usual_folder(name: str, parent: Path = Path("runs")) -> Path:
    """Return a new folder's path for a run: its name and the time."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    path = parent / f"{name}-{stamp}"
    return path if not path.exists() else parent / f"{name}-{stamp}-{secrets.token_hex(2)}"
