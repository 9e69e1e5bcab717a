"""Saving and loading an evaluation: a folder of one JSON and two Parquet files per track.

::

    evaluation/
    ├── evaluation.json            everything but the bars, and the SHA-256 of every other file
    ├── agent.bars.parquet         window, symbol, and the columns of a Series
    └── agent.portfolio.parquet

The folder is written beside its place and renamed, so that it is there as a whole or not at all.
"""

import hashlib
import io
import json
import os
import secrets
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from quantail.errors import DataError
from quantail.evaluation.plain import from_plain, to_plain
from quantail.evaluation.record import SERIES_NUMBERS, Evaluation, Series, Track

FORMAT: Final = 1
SUMMARY: Final = "evaluation.json"
_AGAIN: Final = "Evaluate again, with another folder."


def save_evaluation(evaluation: Evaluation, folder: Path) -> None:
    """Write an evaluation into a new folder.

    Raises:
        DataError: When the folder exists already or cannot be written.
    """
    if folder.exists():
        raise DataError(f"cannot save the evaluation to {folder}: it exists already. {_AGAIN}")
    temporary = folder.with_name(f".{folder.name}.{secrets.token_hex(8)}.tmp")
    try:
        temporary.mkdir(parents=True)
        for name, data in _files(evaluation).items():
            _write(temporary / name, data)
        temporary.rename(folder)
    except OSError as error:
        raise DataError(f"cannot save the evaluation to {folder}: {error}.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def load_evaluation(folder: Path) -> Evaluation:
    """Read an evaluation and check that it is whole.

    Raises:
        DataError: When the folder holds none, or a file is missing, damaged or of another format.
    """
    summary = _summary(folder)
    files = {name: _checked(folder / name, digest) for name, digest in summary["files"].items()}
    plain = summary["evaluation"]
    try:
        for track in plain["tracks"]:
            bars, portfolio = _names(track["name"])
            track["bars"], track["portfolio"] = _series(files[bars]), _series(files[portfolio])
        return from_plain(Evaluation, plain)
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise DataError(
            f"{folder / SUMMARY} is no evaluation of this version ({error}). Evaluate again."
        ) from error


def _files(evaluation: Evaluation) -> dict[str, bytes]:
    """Return the content of every file, the summary last."""
    files: dict[str, bytes] = {}
    plain = to_plain(evaluation, skip=Series)
    for track in evaluation.tracks:
        bars, portfolio = _names(track.name)
        files[bars] = _parquet(_bars_frame(track))
        files[portfolio] = _parquet(_frame(track.portfolio))
    summary = {
        "format": FORMAT,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        "evaluation": plain,
    }
    files[SUMMARY] = json.dumps(summary, indent=1, allow_nan=False).encode()
    return files


def _names(track: str) -> tuple[str, str]:
    return f"{track}.bars.parquet", f"{track}.portfolio.parquet"


def _frame(series: Series) -> pd.DataFrame:
    return pd.DataFrame({field.name: getattr(series, field.name) for field in fields(series)})


def _bars_frame(track: Track) -> pd.DataFrame:
    frame = _frame(track.bars)
    counts = [window.stop - window.start for window in track.windows]
    symbols = np.array([window.symbol for window in track.windows], dtype=object)
    frame.insert(0, "window", np.repeat(np.arange(len(counts)), counts))
    frame.insert(1, "symbol", np.repeat(symbols, counts))
    return frame


def _parquet(frame: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), buffer)
    return buffer.getvalue()


def _series(data: bytes) -> Series:
    frame = pq.read_table(io.BytesIO(data)).to_pandas()
    numbers = [frame[name].to_numpy(np.float64) for name in SERIES_NUMBERS]
    time = frame["time"].to_numpy()
    kind = "datetime64[ns]" if time.dtype.kind == "M" else np.int64
    return Series(time.astype(kind), *numbers)


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _summary(folder: Path) -> dict[str, Any]:
    path = folder / SUMMARY
    try:
        summary = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(
            f"{folder} holds no evaluation: {SUMMARY} cannot be read ({error.strerror}). Give the "
            "folder that an evaluation was saved to."
        ) from error
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error}). Evaluate again.") from error
    keys = ("format", "files", "evaluation")
    if not isinstance(summary, dict) or any(key not in summary for key in keys):
        raise DataError(f"{path} is no summary of an evaluation. Evaluate again.")
    if summary["format"] != FORMAT:
        raise DataError(
            f"{path} has format {summary['format']}; this version reads format {FORMAT}. Evaluate "
            "again, or use the version that wrote it."
        )
    return summary


def _checked(path: Path, digest: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}). Evaluate again.") from error
    if hashlib.sha256(data).hexdigest() != digest:
        raise DataError(f"{path} is damaged: it does not match its checksum. Evaluate again.")
    return data
