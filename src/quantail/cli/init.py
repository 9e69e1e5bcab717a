"""``quantail init``: a commented configuration to start from."""

import json
from pathlib import Path
from typing import Annotated

import typer

from quantail.cli.options import AsJson
from quantail.errors import DataError

EXAMPLES = """
[bold]Examples[/bold]

  quantail init
  quantail init my.yaml --csv prices.csv
"""


def init(
    path: Annotated[Path, typer.Argument(help="File to write; must not exist.")] = Path(
        "quantail.yaml"
    ),
    csv: Annotated[
        str | None, typer.Option(help="Start from your own bars in a CSV file instead.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a configuration with every key, its default and what it means."""
    # Imported here: torch takes seconds, and the help should not.
    from quantail.experiment.config import MarketEnvironment, RunConfig  # noqa: PLC0415
    from quantail.experiment.starter import starter_text  # noqa: PLC0415
    from quantail.market.dataset import DataConfig  # noqa: PLC0415
    from quantail.market.sources import CsvSource  # noqa: PLC0415

    config = RunConfig()
    if csv is not None:
        config = RunConfig(
            environment=MarketEnvironment(data=DataConfig(source=CsvSource(path=csv)))
        )
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(starter_text(config))
    except FileExistsError:
        raise DataError(f"{path} exists already. Choose another name, or remove it.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be written: {error.strerror}.") from error
    if as_json:
        typer.echo(json.dumps({"config": str(path)}))
        return
    typer.echo(f"wrote {path}; next: quantail train {path}")
