"""What is not finite is named, counted and left out; too much of it in a row stops the run.

A place is where the bad number was found first. Micro-batches are left out whole (their weight out
of the denominator), rows of a rollout by their weight, and a step that would spoil a parameter is
undone.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

from annotated_types import Ge

from quantail.config_class import config

Place: TypeAlias = Literal[
    "log_ratio", "loss", "gradient", "parameter", "observation", "reward", "action"
]
PLACES: Final[tuple[Place, ...]] = (
    "log_ratio",
    "loss",
    "gradient",
    "parameter",
    "observation",
    "reward",
    "action",
)


@config
class Guard:
    """How long a run goes on with numbers that are not finite."""

    limit: Annotated[int, Ge(1)] = 20
    """Micro-batches, steps of the optimizer or steps of the environments in a row that may be
    bad; the run stops at this many."""
    rollbacks: Annotated[int, Ge(0)] = 0
    """Times that the last healthy weights are put back instead of stopping."""
    report_path: str | None = None
    """File for the report, in JSON; None puts it into the folder of the logger."""


@config
class GuardState:
    """What the guard remembers from cycle to cycle."""

    learning_row: int = 0
    """Bad micro-batches or optimizer steps in a row."""
    acting_row: int = 0
    """Bad steps of the environments in a row."""
    rollbacks: int = 0
    """Times that weights were put back, in the whole run."""
    counts: tuple[int, ...] = (0,) * len(PLACES)
    """Of all bad things, by place in the order of ``PLACES``, in the whole run."""

    def counted(self) -> Mapping[Place, int]:
        """Return the counts by place."""
        return dict(zip(PLACES, self.counts, strict=True))
