"""``quantail train``: from a configuration to a judged agent and its report."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quantail.cli.interrupt import INTERRUPTED, Interrupt
from quantail.cli.options import AsJson, Cache, Overrides
from quantail.market.dataset import USUAL_CACHE

if TYPE_CHECKING:
    from quantail.evaluation.record import Evaluation
    from quantail.experiment.run import RunResult

EXAMPLES = """
[bold]Examples[/bold]

  quantail train
  quantail train my.yaml --out runs/first
  quantail train --set budget.steps=500000 --set seed=1
  quantail train configs/eurusd.yaml --json
"""


def train(
    config: Annotated[
        Path | None,
        typer.Argument(help="YAML file; without it, the embedded market with a hidden regime."),
    ] = None,
    overrides: Overrides = None,
    out: Annotated[
        Path | None, typer.Option(help="New folder of the run; by default one in runs/.")
    ] = None,
    cache: Cache = USUAL_CACHE,
    as_json: AsJson = False,
) -> None:
    """Train an agent, choose it on validation data, judge it once on test data, write a report.

    Ctrl-C saves the agent and stops; a second one stops at once.
    """
    # Imported here: torch takes seconds, and the help should not.
    from quantail.cli.display import Display  # noqa: PLC0415
    from quantail.config_file import read_config  # noqa: PLC0415
    from quantail.experiment.config import RunConfig  # noqa: PLC0415
    from quantail.experiment.run import run  # noqa: PLC0415

    settings = read_config(RunConfig, config, overrides or ())
    with Interrupt() as interrupt, Display(interrupt, quiet=as_json) as display:
        result = run(settings, display, out, cache)
    if as_json:
        typer.echo(json.dumps(_plain(result) | {"messages": display.messages}))
    else:
        _print(result)
    if result.test is None:
        raise typer.Exit(INTERRUPTED)


def _print(result: "RunResult") -> None:
    if result.test is None:
        typer.echo("Stopped before the test; the agent so far is in the run's checkpoints.")
    else:
        for line in summary(result.test):
            typer.echo(line)
    typer.echo(f"run       {result.folder}")
    typer.echo(f"report    {result.report}")


def summary(evaluation: "Evaluation") -> list[str]:
    """Return the result of an evaluation in a few lines."""
    lines = [f"verdict   {evaluation.verdict.sentence}"]
    optimum = evaluation.optimum
    if optimum is not None:
        reach = ""
        if optimum.fraction.low is not None and optimum.fraction.high is not None:
            reach = f" [{optimum.fraction.low:.3f}, {optimum.fraction.high:.3f}]"
        lines.append(
            f"optimum   {optimum.fraction.value:.3f}{reach} of the way from the "
            f"{optimum.base.replace('_', ' ')} rule to the known optimum"
        )
    for name in ("agent", "buy_and_hold"):
        measures = evaluation.measures.get(name)
        if measures is not None and evaluation.unit == "return":
            lines.append(
                f"{name.replace('_', ' '):<13} return {measures.total_return.value:+.2%}, Sharpe "
                f"{measures.sharpe.value:.2f}, worst drawdown {measures.max_drawdown.value:.2%}"
            )
    return lines


def _plain(result: "RunResult") -> dict[str, Any]:
    plain: dict[str, Any] = {"run": str(result.folder), "report": str(result.report)}
    return plain | ({} if result.test is None else plain_evaluation(result.test))


def plain_evaluation(evaluation: "Evaluation") -> dict[str, Any]:
    """Return the result of an evaluation as plain values."""
    return {
        "role": evaluation.role,
        "split": evaluation.split,
        "level": evaluation.verdict.level,
        "evidence": evaluation.verdict.evidence,
        "verdict": evaluation.verdict.sentence,
        "numbers": dict(evaluation.verdict.numbers),
        "n_trials": evaluation.n_trials,
    }
