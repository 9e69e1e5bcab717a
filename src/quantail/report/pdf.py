"""Prints a report to PDF with a browser that the machine already has."""

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from quantail.errors import DataError

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_TIMEOUT_SECONDS: Final = 120


def find_browser() -> str | None:
    """Return the path of a headless-capable Chromium, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def write_pdf(report: Path) -> Path:
    """Print a report to a PDF file beside it and return its path.

    Raises:
        DataError: There is no browser on this machine, or it failed.
    """
    browser = find_browser()
    if browser is None:
        raise DataError(
            f"a PDF needs one of {', '.join(BROWSERS)} on the PATH; there is none. Install "
            "Chromium (on Debian: apt-get install chromium), or open the HTML report in any "
            "browser and print it."
        )
    target = report.with_suffix(".pdf")
    with tempfile.TemporaryDirectory() as scratch:
        printed = Path(scratch) / "report.pdf"
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-background-networking",
            f"--user-data-dir={scratch}/profile",
            "--no-pdf-header-footer",
            "--virtual-time-budget=10000",
            f"--print-to-pdf={printed}",
            report.resolve().as_uri(),
        ]
        try:
            done = subprocess.run(  # noqa: S603  the command is built above, no shell
                command, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise DataError(
                f"{browser} did not print {report} within {_TIMEOUT_SECONDS} s. Open the HTML "
                "report and print it there."
            ) from error
        if done.returncode != 0 or not printed.exists():
            reason = done.stderr.strip().splitlines()[-1:] or ["no message"]
            raise DataError(
                f"{browser} could not print {report} (exit code {done.returncode}: {reason[0]})."
            )
        shutil.move(printed, target)
    return target
