"""The command line: one file per verb, mounted here.

Exit codes: 0 done, 2 the user's input was refused (one sentence each, no traceback), 1 anything
else that went wrong, 130 interrupted.
"""

import sys
from typing import Annotated

import typer

from quantail import __version__
from quantail.cli import data, doctor, evaluate, init, report, train
from quantail.cli.interrupt import INTERRUPTED
from quantail.errors import QuantailError

app = typer.Typer(
    name="quantail",
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
