"""What a run shows while it goes on: a bar on a terminal, lines elsewhere, nothing if quiet."""

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from quantail.cli.interrupt import Interrupt
from quantail.experiment.training import Progress as RunProgress

_SECONDS_BETWEEN_LINES: Final = 10.0


class _Bar(Progress):
    """A bar with the figures in lines of their own below it.

    In columns beside it they would squeeze the bar and the time left out of a narrow terminal.
    """

    def get_renderables(self) -> Iterable[RenderableType]:
        """Return the bar of each task, then its figures."""
        yield self.make_tasks_table(self.tasks)
        for task in self.tasks:
            yield from (Text(f"  {line}") for line in task.fields["lines"])


class Display:
    """Watches a run.

    Attributes:
        messages: What deserved a word so far.

    Args:
        quiet: Show nothing, as for machines.
        interrupt: Where the user's wish to stop arrives.
    """

    def __init__(self, interrupt: Interrupt, quiet: bool = False) -> None:
        self.messages: list[str] = []
        self._interrupt = interrupt
        self._console = Console(stderr=True, quiet=quiet, soft_wrap=True, highlight=False)
        self._bar = _Bar(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=self._console,
            disable=quiet or not self._console.is_terminal,
            transient=True,
        )
        self._task: TaskID | None = None
        self._last_line = 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def stage(self, text: str) -> None:
        """Say what begins; Ctrl-C is no longer a wish to stop training."""
        self._interrupt.is_polite = False
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None
        self._console.print(text, markup=False)

    def progress(self, progress: RunProgress) -> None:
        """Show how far training is."""
        self._interrupt.is_polite = True
        lines = (progress_line(progress), time_line(progress))
        if self._bar.disable:
            if time.monotonic() - self._last_line > _SECONDS_BETWEEN_LINES:
                self._last_line = time.monotonic()
                share = 100 * progress.step / progress.steps
                self._console.print(f"{share:3.0f}%  {'  '.join(lines)}{_remaining(progress)}")
            return
        if self._task is None:
            self._task = self._bar.add_task(progress.split, total=progress.steps, lines=())
        self._bar.update(self._task, completed=progress.step, lines=lines)

    def message(self, text: str) -> None:
        """Say something that deserves a word."""
        self.messages.append(text)
        self._console.print(text, style="yellow", markup=False)

    def should_stop(self) -> bool:
        """Whether the user asked to stop."""
        return self._interrupt.is_wanted


def progress_line(progress: RunProgress) -> str:
    """Return the figures of training in one line."""
    speed = progress.step / progress.seconds if progress.seconds > 0 else 0.0
    parts = [
        f"{progress.step / 1e6:.2f} M steps",
        f"{speed / 1e3:.1f} k/s",
        f"reward {progress.reward:+.4g}",
        f"CVaR {progress.cvar:+.3g}" if progress.cvar is not None else "",
        f"costs {100 * progress.cost_scale:.0f}%" if progress.cost_scale < 1.0 else "",
    ]
    return "  ".join(part for part in parts if part)


def time_line(progress: RunProgress) -> str:
    """Return what the time went into, and the best score so far."""
    shares = ", ".join(f"{name} {100 * share:.0f}%" for name, share in progress.shares.items())
    best = f"  best validation {progress.score:.4g}" if progress.score is not None else ""
    return f"time: {shares}{best}"


def _remaining(progress: RunProgress) -> str:
    if not progress.step:
        return ""
    seconds = progress.seconds * (progress.steps - progress.step) / progress.step
    return f"  {seconds / 60:.1f} min left"
