"""The command line: one file per verb, mounted here.

Exit codes: 0 done, 2 the user's input was refused (one sentence each, no traceback), 1 anything
else that went wrong, 130 interrupted.
"""

import os
import sys
from typing import Annotated

# Read once, when numpy is loaded: on small arrays several threads wait for each other, and on a
# busy machine they take twenty times as long. budget.threads sets those of the networks.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import typer  # noqa: E402

from quantail import __version__  # noqa: E402
from quantail.cli import data, doctor, evaluate, init, report, train  # noqa: E402
from quantail.cli.interrupt import INTERRUPTED  # noqa: E402
from quantail.errors import QuantailError  # noqa: E402

EXAMPLES = """
[bold]Examples[/bold]

  quantail train                            train on the embedded market, report
  quantail init my.yaml --csv prices.csv    start from your own bars
  quantail train my.yaml                    train on them
  quantail doctor                           does this build learn at all?
"""

app = typer.Typer(
    name="quantail",
    epilog=EXAMPLES,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="Train trading agents that know their left tail.",
)
app.command(epilog=init.EXAMPLES)(init.init)
app.command(epilog=train.EXAMPLES)(train.train)
app.command(epilog=evaluate.EXAMPLES)(evaluate.evaluate)
app.command(epilog=report.EXAMPLES)(report.report)
app.command(epilog=doctor.EXAMPLES)(doctor.doctor)
app.add_typer(data.app, name="data")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"quantail {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Train trading agents that know their left tail."""


def main() -> None:
    """Run the command line; errors we raise on purpose become one message and exit code 2."""
    try:
        app()
    except QuantailError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("Interrupted.", file=sys.stderr)
        sys.exit(INTERRUPTED)
