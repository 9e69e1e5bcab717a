"""What can be wrong, by cause.

A message says which parameter or place, what is allowed, what it was, and what to do.
Every error is also a built-in one (``ValueError`` and friends), so callers may catch either.
"""

from collections.abc import Sequence
from dataclasses import dataclass


class QuantailError(Exception):
    """The parent of every error that Quantail raises on purpose."""


class QuantailWarning(UserWarning):
    """Something allowed, but probably not what the user wants."""


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """One thing that is wrong with a configuration."""

    path: str
    """Dotted path of the key, as the user writes it; empty for the file as a whole."""
    message: str
    """What is allowed, what it was, what to do."""
    source: str = ""
    """Where the value came from: file and line, an override, or the program."""

    def __str__(self) -> str:
        place = f"   [{self.source}]" if self.source else ""
        return f"{self.path}: {self.message}{place}" if self.path else f"{self.message}{place}"


class ConfigError(QuantailError, ValueError):
    """A configuration was refused; ``problems`` lists everything wrong with it at once."""

    def __init__(self, problems: Sequence[ConfigProblem] | str) -> None:
        if isinstance(problems, str):
            self.problems: tuple[ConfigProblem, ...] = (ConfigProblem("", problems),)
            super().__init__(problems)
            return
        self.problems = tuple(problems)
        count = f"{len(self.problems)} error{'s' if len(self.problems) != 1 else ''}"
        lines = "".join(f"\n  {problem}" for problem in self.problems)
        super().__init__(f"Configuration has {count}:{lines}")


class DataError(QuantailError, ValueError):
    """Market data was refused: corrupt data is worse than no data."""


class AccountingError(QuantailError, ArithmeticError):
    """An account's books do not balance; this is a fault of the simulator, never of the user."""
