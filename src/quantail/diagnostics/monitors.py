"""Watches that look at one cycle after another."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

VANISHING_NORM: Final = 1e-8
"""A critic whose gradient norm is below this does not learn."""
IMBALANCE: Final = 100.0
"""Ratio of the critics' gradient norms, either way, beyond which one of them starves."""
PATIENCE: Final = 5
"""Cycles in a row that an imbalance may last before advice is given."""

_ADVICE: Final = (
    "The gradient norms of the two critics have differed by a factor of more than {limit:g} for "
    "{cycles} cycles in a row ({first:.3g} and {second:.3g}). Look at the critics' layers (are "
    "they alike?), at their initialization (was one loaded or frozen?) and at the learning rate "
    "(too high for one of them?)."
)


@dataclass(frozen=True, slots=True)
class CriticWatch:
    """What one cycle says about the critics' gradients."""

    imbalanced: bool
    ratio: float | None
    """Norm of critic 1 over that of critic 2; None for one critic or a norm of 0."""
    vanishing: tuple[bool, ...]
    """For each critic."""
    cycles_imbalanced: int
    """In a row, this one included."""
    advice: str | None
    """Given once, when an imbalance outlasts the patience."""


def watch_critics(norms: Sequence[float], cycles_imbalanced: int) -> CriticWatch:
    """Judge the critics' gradient norms of one cycle.

    Args:
        norms: L2 norm of each critic's gradient before clipping, mean over the cycle's steps.
        cycles_imbalanced: From the cycle before; 0 at the start.
    """
    vanishing = tuple(norm < VANISHING_NORM for norm in norms)
    if len(norms) < 2 or norms[1] == 0.0:
        return CriticWatch(False, None, vanishing, 0, None)
    ratio = norms[0] / norms[1]
    imbalanced = ratio > IMBALANCE or ratio < 1 / IMBALANCE
    cycles = cycles_imbalanced + 1 if imbalanced else 0
    advice = None
    if cycles == PATIENCE + 1:
        advice = _ADVICE.format(limit=IMBALANCE, cycles=cycles, first=norms[0], second=norms[1])
    return CriticWatch(imbalanced, ratio, vanishing, cycles, advice)
