"""What downloads share: a cache of Parquet files that is never half written, and patience.

A cache file appears under its name only when it is whole (temporary file, fsync, rename), so a
download that was cut off goes on where it stopped.
"""

import importlib
import logging
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from quantail.errors import ConfigError, ConfigProblem, DataError
from quantail.market.sources.table import parse_instant

_LOG: Final = logging.getLogger(__name__)
_ResultT = TypeVar("_ResultT")
_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 60.0


def optional_package(name: str) -> Any:
    """Import a package of the extra ``data``, or say how to install it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise DataError(
            f"this source needs the package {name}, which is not installed; run: pip install "
            "'quantail[data]'"
        ) from error


def check_request(start: str, stop: str, symbols: Sequence[str], base_url: str | None) -> None:
    """Refuse instants and addresses that cannot be read, an empty span, and a symbol twice."""
    first, last = parse_instant(start, "start"), parse_instant(stop, "stop")
    if not first < last:
        raise ConfigError([ConfigProblem("stop", f"must be after start; was {stop!r}")])
    if len(set(symbols)) != len(symbols):
        raise ConfigError([ConfigProblem("symbols", f"must differ; was {symbols!r}")])
    if base_url is not None and not urlsplit(base_url).netloc:
        message = f"must read http://host or https://host; was {base_url!r}"
        raise ConfigError([ConfigProblem("base_url", message)])


def folder_name(text: str) -> str:
    """Return a name that is safe as a folder: BTC/USDT becomes BTC-USDT."""
    return re.sub(r"[^A-Za-z0-9.=^_]+", "-", text).strip(".") or "-"


def write_cache(file: Path, frame: pd.DataFrame) -> None:
    """Write a table so that ``file`` is either whole or not there."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as stream:
            parquet.write_table(pa.Table.from_pandas(frame, preserve_index=False), stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def read_cache(file: Path) -> pd.DataFrame:
    """Read a table that :func:`write_cache` wrote."""
    try:
        frame: pd.DataFrame = parquet.ParquetFile(file).read().to_pandas()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file}: the cache is damaged: {error}. Delete this file.") from error
    return frame


def with_patience(
    call: Callable[[], _ResultT],
    transient: tuple[type[BaseException], ...],
    *,
    what: str,
    retries: int,
    sleep: Callable[[float], None],
) -> _ResultT:
    """Call until it works, waiting 1, 2, 4, ... up to 60 s after each passing failure.

    Raises:
        DataError: When it still fails after ``retries`` more tries.
    """
    for attempt in range(retries + 1):
        try:
            return call()
        except transient as error:
            if attempt == retries:
                raise DataError(
                    f"{what}: failed {retries + 1} times, last {type(error).__name__}: {error}. "
                    "What was fetched is kept; run again later to go on from there."
                ) from error
            wait = min(_FIRST_WAIT * 2.0**attempt, _LONGEST_WAIT)
            _LOG.info("%s: %s; trying again in %g s", what, type(error).__name__, wait)
            sleep(wait)
    raise AssertionError("the loop returns or raises")
