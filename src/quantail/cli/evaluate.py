"""``quantail evaluate``: judge an agent of a run."""

import json
from pathlib import Path
from typing import Annotated

import typer

from quantail.cli.options import AsJson, Cache, RunPath
from quantail.cli.train import plain_evaluation, summary
from quantail.market.dataset import USUAL_CACHE

EXAMPLES = """
[bold]Examples[/bold]

  quantail evaluate runs/stopped
  quantail evaluate runs/first --role validation --out again
  quantail evaluate runs/first --agent AGENT.zip --out other
"""


def evaluate(
    run: RunPath,
    role: Annotated[str, typer.Option(help="Which data: test or validation.")] = "test",
    split: Annotated[
        str | None, typer.Option(help="Which split; needed when the run has several.")
    ] = None,
    agent: Annotated[
        Path | None, typer.Option(help="Saved agent; by default the best one of the split.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="New folder; by default the run's own, if it is free.")
    ] = None,
    cache: Cache = USUAL_CACHE,
    as_json: AsJson = False,
) -> None:
    """Judge an agent of a run on its test or validation data, at full cost.

    For a run that was stopped before its test, or to judge another of the agents that were kept.
    """
    # Imported here: torch takes seconds, and the help should not.
    from quantail.experiment.again import evaluate_again  # noqa: PLC0415

    evaluation, folder = evaluate_again(run, role, split=split, agent=agent, out=out, cache=cache)
    if as_json:
        typer.echo(json.dumps(plain_evaluation(evaluation) | {"folder": str(folder)}))
        return
    for line in summary(evaluation):
        typer.echo(line)
    typer.echo(f"folder    {folder}")
