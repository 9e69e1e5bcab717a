"""Functions of the remaining progress in a form that a file can hold: a table of their values.

A function itself cannot be saved without pickle, and pickle runs code when it is loaded. What a
schedule does is said by its values, though, so these are saved.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from warnings import warn

import numpy as np
from numpy.typing import NDArray

from quantail.checkpoint.archive import CheckpointError
from quantail.errors import ConfigError, QuantailWarning

SCHEDULED: Final = ("learning_rate", "clip_range", "clip_range_vf")
"""Arguments that may be functions of the remaining progress."""
CELLS: Final = 1024
"""Cells of a table; a power of 2, so that halves, quarters and so on are met exactly."""
_WORTH_TELLING: Final = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class TabulatedSchedule:
    """A schedule given by its values, straight between them.

    Raises:
        ConfigError: the table is not one of finite numbers.
    """

    name: str
    """Of the function that was tabulated."""
    values: NDArray[np.float64]
    """[K + 1], at progress remaining k / K."""

    def __post_init__(self) -> None:
        table = self.values
        is_table = isinstance(table, np.ndarray) and table.dtype == np.float64 and table.ndim == 1
        if not (is_table and len(table) > 1 and np.isfinite(table).all()):
            raise ConfigError("values must be an array of at least 2 finite numbers")

    def __call__(self, progress_remaining: float) -> float:
        """Return the value; that at the nearer end when the progress is outside 0 to 1."""
        places = np.linspace(0.0, 1.0, len(self.values))
        return float(np.interp(progress_remaining, places, self.values))

    @property
    def __name__(self) -> str:
        """As functions have it."""
        return self.name


def tabulated(function: Callable[[float], Any], place: str) -> TabulatedSchedule:
    """Return a table of what ``function`` returns; warn where straight lines do not follow it.

    Args:
        function: Of the remaining progress.
        place: The argument it was given as, for messages.

    Raises:
        CheckpointError: The function cannot be told by its values: it fails somewhere, returns what
            is not a finite number, or something else when it is asked again.
    """
    name = str(getattr(function, "__name__", type(function).__name__))
    halves = np.linspace(0.0, 1.0, 2 * CELLS + 1)
    values = _values(function, halves, name, place)
    if not np.array_equal(values, _values(function, halves, name, place)):
        raise CheckpointError(
            f"{place} is {name}, which does not always return the same for the same progress, so "
            f"its values cannot be saved. {_elsewhere(place)}"
        )
    schedule = TabulatedSchedule(name, values[::2].copy())
    errors = np.abs(np.array([schedule(p) for p in halves[1::2]]) - values[1::2])
    worst = int(errors.argmax())
    if errors[worst] > _WORTH_TELLING * np.abs(values).max():
        warn(
            f"{place} is {name}, which is saved as a table of {CELLS + 1:,} values; between them "
            f"it is off by up to {errors[worst]:.3g}, near progress remaining "
            f"{halves[1::2][worst]:.4f}. {_elsewhere(place)}",
            QuantailWarning,
            stacklevel=6,
        )
    return schedule


def _values(
    function: Callable[[float], Any], places: NDArray[np.float64], name: str, place: str
) -> NDArray[np.float64]:
    values = np.empty(len(places))
    for k, progress in enumerate(places.tolist()):
        try:
            values[k] = float(function(progress))
        except (ArithmeticError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"{place} is {name}, which fails at progress remaining {progress:.4f} ({error}), "
                f"so its values cannot be saved. {_elsewhere(place)}"
            ) from error
        if not np.isfinite(values[k]):
            raise CheckpointError(
                f"{place} is {name}, which returns {values[k]} at progress remaining "
                f"{progress:.4f}, so its values cannot be saved. {_elsewhere(place)}"
            )
    return values


def _elsewhere(place: str) -> str:
    return f"Save with exclude=[{place!r}], and load with {place}=... to give the function itself"
