"""The entropy coefficient: decay that a plateau may delay, a boost for bad critics, a floor.

    raw      base, before the decay starts; then a straight line to ``final``
    nominal  max(raw, floor)
    boosted  min(nominal factor^(bad - patience), cap), where bad > patience
    in use   max(boosted, floor)

``bad`` counts the cycles in a row whose explained variance was below 0. Coefficients are read at
the start of a cycle, from what the cycles before it showed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

from annotated_types import Ge, Gt

from quantail.config_class import config
from quantail.errors import ConfigError

_CAP_OF_BASE = 5.0
"""The default cap, in units of the base coefficient (or of the floor, if that is greater)."""


@config
class Plateau:
    """Waits for the policy's entropy to stop moving."""

    window: Annotated[int, Ge(2)]
    """Cycles over which the slope of the entropy is fitted."""
    tolerance: Annotated[float, Ge(0)] = 0.002
    """Largest absolute slope that counts as flat, in nats per cycle."""
    min_updates: Annotated[int, Ge(0)] = 0
    """Cycles before which no plateau counts."""

    def check(self) -> None:
        """Refuse a wait that the window covers anyway."""
        if 0 < self.min_updates < self.window:
            raise ConfigError(
                f"plateau.min_updates has no effect below window ({self.window}), which takes as "
                f"long to fill; was {self.min_updates}. Leave it out"
            )


@config
class EntropyDecay:
    """A straight line from the base coefficient to ``final``."""

    final: Annotated[float, Ge(0)] = 0.0
    updates: Annotated[int, Ge(1)]
    """Cycles that the decay takes."""
    plateau: Plateau | None = None
    """The decay starts when the entropy is flat; None starts it at once."""


@config
class EntropyBoost:
    """Explores more while the critics predict worse than a constant."""

    factor: Annotated[float, Gt(1)] = 1.5
    patience: Annotated[int, Ge(0)] = 2
    """Bad cycles in a row that change nothing yet."""
    cap: Annotated[float, Gt(0)] | None = None
    """Greatest coefficient; None is five times the base one."""


@config
class EntropyControl:
    """What happens to the entropy coefficient."""

    floor: Annotated[float, Ge(0)] = 0.0
    """The coefficient in use is never less."""
    decay: EntropyDecay | None = None
    boost: EntropyBoost | None = None

    def check(self) -> None:
        """Refuse bounds in the wrong order, and a control without effect."""
        if self.floor == 0 and self.decay is None and self.boost is None:
            raise ConfigError(
                "entropy_control with a floor of 0, no decay and no boost has no effect; leave it "
                "out"
            )
        cap = None if self.boost is None else self.boost.cap
        if cap is not None and cap <= self.floor:
            raise ConfigError(
                f"boost.cap must be greater than floor ({self.floor}), or the boost has no effect; "
                f"was {cap}"
            )


@config
class EntropyState:
    """What the controller remembers from cycle to cycle."""

    entropies: tuple[float, ...] = ()
    """Of the policy in the last cycles, as many as the plateau's window, oldest first."""
    slope: float | None = None
    """Of those, once the window is full."""
    decay_start: int | None = None
    """Cycle at which the decay started."""
    bad: int = 0
    """Cycles in a row with an explained variance below 0."""
    told: bool = False
    """Whether it has been said that the decay changes nothing."""


@dataclass(frozen=True, slots=True)
class EntropyCoefficient:
    """The stages of one cycle's coefficient."""

    raw: float
    nominal: float
    used: float


def coefficient(
    control: EntropyControl | None, state: EntropyState, base: float, update: int
) -> EntropyCoefficient:
    """Return the coefficient of a cycle.

    Args:
        control: None uses ``base`` as it is.
        state: After the cycle before.
        base: As given or scheduled.
        update: Number of the cycle, from 0.
    """
    if control is None:
        return EntropyCoefficient(base, base, base)
    raw = base
    if control.decay is not None:
        start = 0 if control.decay.plateau is None else state.decay_start
        passed = 0.0 if start is None else min((update - start) / control.decay.updates, 1.0)
        raw = base + (control.decay.final - base) * passed
    nominal = boosted = max(raw, control.floor)
    if control.boost is not None:
        beyond = max(state.bad - control.boost.patience, 0)
        boosted = min(
            nominal * control.boost.factor ** min(beyond, 1000), cap(control.boost, control, base)
        )
    return EntropyCoefficient(raw, nominal, max(boosted, control.floor))


def cap(boost: EntropyBoost, control: EntropyControl, base: float) -> float:
    """Return the greatest coefficient."""
    return boost.cap if boost.cap is not None else _CAP_OF_BASE * max(base, control.floor)


def observe(
    control: EntropyControl | None,
    state: EntropyState,
    update: int,
    entropy: float,
    explained_variance: float,
) -> EntropyState:
    """Return the state after a cycle.

    Args:
        control: None leaves the state alone.
        state: Before the cycle.
        update: Number of the cycle, from 0.
        entropy: Mean over the rollout's rows of the acting law's analytic base entropy: for a
            squashed Gaussian that of the Gaussian, in which no sampling noise moves the slope.
        explained_variance: NaN, where it is undefined, leaves the count of bad cycles alone.
    """
    if control is None:
        return state
    if explained_variance < 0:
        state = replace(state, bad=state.bad + 1)
    elif explained_variance >= 0:
        state = replace(state, bad=0)
    if control.decay is None or state.decay_start is not None:
        return state
    plateau = control.decay.plateau
    if plateau is None:
        return replace(state, decay_start=0)
    entropies = (*state.entropies, entropy)[-plateau.window :]
    state = replace(state, entropies=entropies)
    if len(entropies) < plateau.window:
        return state
    state = replace(state, slope=slope(entropies))
    assert state.slope is not None
    flat = abs(state.slope) <= plateau.tolerance
    # The window ends with this cycle; the next one is the first to use the decay.
    due = flat and update + 1 >= plateau.min_updates
    return replace(state, decay_start=update) if due else state


def slope(values: Sequence[float]) -> float:
    """Return the least-squares slope of equally spaced values, per step."""
    center = (len(values) - 1) / 2
    mean = sum(values) / len(values)
    top = sum((index - center) * (value - mean) for index, value in enumerate(values))
    return top / sum((index - center) ** 2 for index in range(len(values)))


def without_effect(control: EntropyControl | None, base: float) -> str | None:
    """Return what to tell the user when the decay changes nothing, or None."""
    if control is None or control.decay is None or max(base, control.decay.final) > control.floor:
        return None
    return (
        f"the entropy decay changes nothing: it runs from ent_coef {base:g} to "
        f"{control.decay.final:g}, and entropy_control.floor is {control.floor:g}, so the floor "
        "is used throughout. Lower the floor, raise ent_coef, or leave the decay out"
    )
