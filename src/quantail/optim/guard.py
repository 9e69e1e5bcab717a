"""What is not finite is named, counted and left out; too much of it in a row stops the run.

A place is where the bad number was found first. Micro-batches are left out whole (their weight out
of the denominator), rows of a rollout by their weight, and a step that would spoil a parameter is
undone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final

from annotated_types import Ge

from quantail.config_class import config
from quantail.errors import QuantailError
from quantail.flow import Place

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

    def counted(self) -> dict[Place, int]:
        """Return the counts by place."""
        return dict(zip(PLACES, self.counts, strict=True))


class NonFiniteError(QuantailError, FloatingPointError):
    """Too much was not finite in a row; ``report`` says where and when."""

    def __init__(self, report: Mapping[str, Any]) -> None:
        super().__init__(report["sentence"])
        self.report = dict(report)


def count(
    guard: Guard, state: GuardState, outcomes: Sequence[Place | None], *, acting: bool
) -> tuple[GuardState, bool]:
    """Count what was bad, in order.

    Args:
        guard: Has the limit.
        state: So far.
        outcomes: Where each micro-batch, or each step of the environments, was bad first; None
            where it was not.
        acting: Whether these are steps of the environments.

    Returns:
        The state, and whether the limit was reached.
    """
    row = state.acting_row if acting else state.learning_row
    counts = state.counted()
    longest = 0
    for place in outcomes:
        row = 0 if place is None else row + 1
        longest = max(longest, row)
        if place is not None and not acting:
            counts[place] += 1
    moved = {"acting_row" if acting else "learning_row": row}
    return replace(state, counts=tuple(counts.values()), **moved), longest >= guard.limit


def add(state: GuardState, rows: Mapping[Place, int]) -> GuardState:
    """Count bad rows of a rollout."""
    return replace(
        state, counts=tuple(n + rows.get(place, 0) for place, n in state.counted().items())
    )


def report(
    guard: Guard, state: GuardState, place: Place, first: str, where: Mapping[str, int | float]
) -> dict[str, Any]:
    """Return what to tell when the limit is reached: a sentence, and its parts.

    Args:
        guard: Has the limit.
        state: With this bad thing counted.
        place: Of the latest one.
        first: What was bad in it, in words.
        where: Cycle, environment steps and so on.
    """
    steps = "; ".join(f"{name} {value:g}" for name, value in where.items())
    sentence = (
        f"{guard.limit} times in a row something was not finite, so training stops. Place: "
        f"{place}; first bad: {first}; {steps}. {_REMEDY[place]}"
    )
    return {
        "sentence": sentence,
        "place": place,
        "first_bad": first,
        "in_a_row": guard.limit,
        "counts": dict(state.counted()),
        **where,
    }


_REMEDY: Final[Mapping[Place, str]] = {
    "log_ratio": "Lower the learning rate, or set target_kl; the policy has left its old one.",
    "loss": "Look at the size of rewards and returns; lower the learning rate.",
    "gradient": "Lower the learning rate or max_grad_norm; look at the size of observations.",
    "parameter": "Lower the learning rate; look at the optimizer's eps.",
    "observation": "Repair the environment: it gives observations that are not finite.",
    "reward": "Repair the environment: it gives rewards that are not finite.",
    "action": "Lower the learning rate or log_std_init; the policy's noise has no bound.",
}
