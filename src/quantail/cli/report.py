"""``quantail report``: the report of a run, finished or not."""

import json
from typing import Annotated

import typer

from quantail.cli.options import AsJson, RunPath

EXAMPLES = """
[bold]Examples[/bold]

  quantail report runs/hidden_regime-20260131-120000
  quantail report runs/first --pdf
"""


def report(
    run: RunPath,
    pdf: Annotated[
        bool, typer.Option("--pdf", help="Print it to a PDF file too; needs Chromium.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the report of a run anew: one HTML file that needs nothing else.

    Works at any moment, also for a run that was killed: what is missing is said in the report.
    """
    # Imported here: plotly takes a second, and the help should not.
    from quantail.report import write_pdf, write_report  # noqa: PLC0415

    written = {"report": write_report(run)}
    if pdf:
        written["pdf"] = write_pdf(written["report"])
    if as_json:
        typer.echo(json.dumps({name: str(path) for name, path in written.items()}))
    else:
        for name, path in written.items():
            typer.echo(f"{name:<9} {path}")
