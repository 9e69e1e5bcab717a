"""``quantail data``: look at the data before training on it."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer

from quantail.cli.options import AsJson
from quantail.config_file import read_config
from quantail.errors import ConfigError, ConfigProblem
from quantail.market.dataset import USUAL_CACHE, DataConfig, Dataset, prepare
from quantail.market.segments import iso
from quantail.types import IntArray
from quantail.yaml_values import Given

EXAMPLES = """
[bold]Examples[/bold]

  quantail data check configs/data_check.yaml
  quantail data check my.yaml
  quantail data check my_data.yaml --repair duplicates=last --json
"""

# Spelled out, as their class comes with torch, which takes seconds.
RUN_KEYS: Final = frozenset({"environment", "agent", "budget", "selection", "seed"})

app = typer.Typer(
    no_args_is_help=True, help="Look at the data before training on it.", epilog=EXAMPLES
)


@app.callback()
def data() -> None:
    """Look at the data before training on it."""


@app.command(epilog=EXAMPLES)
def check(
    config: Annotated[
        Path, typer.Argument(help="YAML file of a run, or with the data configuration alone.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a key, for example --set source.seed=1."),
    ] = None,
    repair: Annotated[
        list[str] | None,
        typer.Option(
            "--repair",
            help="Allow a repair of the bars, for example --repair duplicates=last; short for "
            "--set source.repair.duplicates=last. What was done is listed.",
        ),
    ] = None,
    cache: Annotated[Path, typer.Option(help="Folder where downloads are kept.")] = USUAL_CACHE,
    as_json: AsJson = False,
) -> None:
    """Load the bars, look for leaks in the features, and try every split.

    Refuses with the column and the first offending bar when a feature knows the future.
    """
    repairs = [f"source.repair.{given}" for given in repair or ()]
    dataset = prepare(_data_config(config, [*(overrides or ()), *repairs]), cache)
    if as_json:
        typer.echo(json.dumps(_plain(dataset)))
        return
    for line in _summary(dataset):
        typer.echo(line)


def _data_config(path: Path, overrides: Sequence[str]) -> DataConfig:
    """Read a data configuration, which may be that of a run."""
    if not _is_run(path):
        return read_config(DataConfig, path, overrides)
    # Imported here: torch takes seconds, and a data configuration alone does not need it.
    from quantail.experiment.config import MarketEnvironment, RunConfig  # noqa: PLC0415

    of_run = [f"environment.data.{given}" for given in overrides]
    environment = read_config(RunConfig, path, of_run).environment
    if isinstance(environment, MarketEnvironment):
        return environment.data
    problem = f"must be 'market' for data to be checked; was {environment.kind!r}"
    raise ConfigError([ConfigProblem("environment.kind", problem)])


def _is_run(path: Path) -> bool:
    """Whether a file configures a run; what cannot be read is left to the reader to refuse."""
    given = Given()
    given.read_file(path)
    if given.problems:
        return False
    of_data = {field.name for field in dataclasses.fields(DataConfig)}
    others = RUN_KEYS.intersection(given.data)
    return "environment" in others or (bool(others) and of_data.isdisjoint(given.data))


def _plain(dataset: Dataset) -> dict[str, Any]:
    bars = dataset.bars
    folds = [dataset.fold(index) for index in range(len(dataset.splits))]
    return {
        "bars": bars.n_bars,
        "symbols": list(bars.symbols),
        "first": iso(bars.time.min()),
        "last": iso(bars.time.max()),
        "fingerprint": bars.fingerprint(),
        "features": list(dataset.table.names),
        "warmup": dataset.table.warmup,
        "splits": [
            {
                "name": fold.split.name,
                "train": _count(fold.train),
                "validation": _count(fold.validation),
                "test": _count(fold.test),
            }
            for fold in folds
        ],
        "repairs": [str(action) for action in bars.repairs],
        "allowed_leaks": [str(leak) for leak in dataset.leaks.leaks],
    }


def _summary(dataset: Dataset) -> list[str]:
    bars, table, report = dataset.bars, dataset.table, dataset.leaks
    lines = [
        f"bars      {bars.n_bars} of {bars.n_symbols} symbol(s), {iso(bars.time.min())} to "
        f"{iso(bars.time.max())}",
        *(f"repaired  {action}" for action in bars.repairs),
        f"features  {table.n_features} column(s), warm-up {table.warmup} bars: "
        f"{', '.join(table.names) or 'none'}",
    ]
    for index in range(len(dataset.splits)):
        fold = dataset.fold(index)
        parts = {"train": fold.train, "validation": fold.validation, "test": fold.test}
        counts = ", ".join(f"{role} {_count(windows)}" for role, windows in parts.items())
        lines.append(f"split     {fold.split.name}: {counts} bars")
    lines += [f"allowed   {leak}" for leak in report.leaks]
    lines.append(
        f"leaks     {'none but those allowed' if report.leaks else 'none'} in "
        f"{len(report.columns)} column(s), tried on {', '.join(report.symbols) or 'no symbol'}"
    )
    return lines


def _count(windows: IntArray) -> int:
    return int(np.sum(windows[:, 1] - windows[:, 0]))
