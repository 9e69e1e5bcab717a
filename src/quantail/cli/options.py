"""Options that several verbs share."""

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

Overrides: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a key, for example --set budget.steps=1000000."),
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON object for machines, and no progress.")
]
Cache: TypeAlias = Annotated[Path, typer.Option(help="Folder where downloads are kept.")]
RunPath: TypeAlias = Annotated[Path, typer.Argument(help="Folder of a run.")]
