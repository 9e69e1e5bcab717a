"""Ctrl-C: the first one asks politely, the second one stops at once."""

import os
import signal
import sys
from types import FrameType, TracebackType
from typing import Any, Self

INTERRUPTED = 130
"""Exit code of a process that the user stopped, as shells have it."""


class Interrupt:
    """While it is entered, Ctrl-C becomes a wish during training and an exception elsewhere.

    Attributes:
        is_polite: Whether the first Ctrl-C only sets :attr:`is_wanted`.
        is_wanted: Whether the user asked to stop.
    """

    def __init__(self) -> None:
        self.is_polite = False
        self.is_wanted = False
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.is_wanted:
            os._exit(INTERRUPTED)  # files are whole at every moment, so there is nothing to save
        self.is_wanted = True
        if not self.is_polite:
            raise KeyboardInterrupt
        print("\nStopping after this step and saving; Ctrl-C again stops at once.", file=sys.stderr)
