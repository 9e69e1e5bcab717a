"""``quantail doctor``: is this build sound?"""

import json
import time
from typing import Annotated

import typer

from quantail.cli.options import AsJson
from quantail.errors import ConfigError

EXAMPLES = """
[bold]Examples[/bold]

  quantail doctor
  quantail doctor --only oracle --only critic
  quantail doctor --json
"""


def doctor(
    only: Annotated[
        list[str] | None, typer.Option(help="Run this control alone; may be given several times.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the controls: small trials with known answers that only a sound build passes.

    Tells "the learner is broken" from "there is nothing to learn". Exit code 1 if a control fails.
    """
    # Imported here: torch takes seconds, and the help should not.
    import torch  # noqa: PLC0415
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import Progress  # noqa: PLC0415

    from quantail.experiment.controls import CONTROLS  # noqa: PLC0415

    unknown = [name for name in only or () if name not in CONTROLS]
    if unknown:
        raise ConfigError(f"--only must be one of {', '.join(CONTROLS)}; was {unknown[0]!r}.")
    torch.set_num_threads(1)
    chosen = {name: run for name, run in CONTROLS.items() if not only or name in only}
    console = Console(stderr=True, quiet=as_json)
    rows = []
    start = time.monotonic()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        for name, control in chosen.items():
            task = bar.add_task(name, total=1.0)
            finding = control(lambda share, task=task: bar.update(task, completed=share))  # type: ignore[misc]
            bar.remove_task(task)
            rows.append({"control": name, "passed": finding.passed, "figure": finding.figure,
                         "fault": finding.fault, "fraction": finding.fraction})  # fmt: skip
            if not as_json:
                typer.echo(f"{'pass' if finding.passed else 'FAIL'}  {name:<14} {finding.figure}")
    failed = [row for row in rows if not row["passed"]]
    if as_json:
        seconds = round(time.monotonic() - start, 1)
        typer.echo(json.dumps({"healthy": not failed, "seconds": seconds, "controls": rows}))
    else:
        for line in _verdict(failed, time.monotonic() - start):
            typer.echo(line)
    raise typer.Exit(1 if failed else 0)


def _verdict(failed: list[dict[str, object]], seconds: float) -> list[str]:
    if not failed:
        return [f"verdict   healthy: every control passed, in {seconds / 60:.1f} minutes"]
    names = ", ".join(str(row["control"]) for row in failed)
    return [
        f"verdict   broken: {names} failed, in {seconds / 60:.1f} minutes",
        *(f"{row['control']}: {row['fault']}" for row in failed),
    ]
