"""The progress display shows everything, also on a narrow terminal."""

import io

import pytest
from rich.console import Console

from quantail.cli import display as module
from quantail.cli.display import Display
from quantail.cli.interrupt import Interrupt
from quantail.experiment.training import Progress

HALF = Progress(
    split="walk_forward_0", step=1_300_000, steps=2_600_000, seconds=100.0, reward=-0.0001234,
    cvar=-1.5, cost_scale=0.41, score=-1.874,
    shares={"collect": 0.41, "learn": 0.44, "validate": 0.15},
)  # fmt: skip


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal of 80 columns that remembers what was written."""
    written = io.StringIO()

    def console(**settings: object) -> Console:
        settings.pop("stderr")
        return Console(file=written, force_terminal=True, width=80, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "Console", console)
    return written


def test_bar_and_figures_fit_on_80_columns(screen: io.StringIO) -> None:
    with Display(Interrupt()) as shown:
        shown.progress(HALF)
        shown._bar.refresh()
    said = screen.getvalue()
    for part in (
        "walk_forward_0", "━", "50%", "left", "1.30 M steps", "13.0 k/s", "reward -0.0001234",
        "CVaR -1.5", "costs 41%", "best validation -1.874",
        "time: collect 41%, learn 44%, validate 15%",
    ):  # fmt: skip
        assert part in said, part


def test_messages_are_shown_as_they_are_and_kept(screen: io.StringIO) -> None:
    text = "The interval [-1, 1] of [bold] is no markup."
    with Display(Interrupt()) as shown:
        shown.message(text)
    assert text in screen.getvalue()
    assert shown.messages == [text]


def test_machines_hear_nothing_but_messages_are_kept(screen: io.StringIO) -> None:
    with Display(Interrupt(), quiet=True) as shown:
        shown.stage("Training")
        shown.progress(HALF)
        shown.message("A word.")
    assert screen.getvalue() == ""
    assert shown.messages == ["A word."]
