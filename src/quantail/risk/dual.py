"""The multiplier of a CVaR limit: PID control in absolute form.

    e = (limit - CVaR) / scale                                 positive is violation
    ē ← ē + s (1 - β) (e - ē)                                  smoothed
    I ← clip(I + s k_i e, 0, cap), held while λ is at its cap and e > 0
    λ = clip(k_p ē + I + k_d max(0, Δē), 0, cap)

λ does not stand on the right side: what the control remembers is in I and ē alone. The pace s is
min(1, n/k_i) where n is the share of the measurement that is new: I moves no faster than 1 per
renewed measurement and unit of error, or it would run ahead of the few episodes that answer to it.
A limit that is over-fulfilled by no more than ``slack`` scales counts as met exactly, so that the
multiplier rests between two policies of which only one meets the limit, instead of cycling through
both; beyond, e is multiplied by ``relief``.

References:
    Stooke et al. 2020, Responsive safety in reinforcement learning by PID Lagrangian methods.
"""

from quantail.config_class import config
from quantail.risk.config import DualConfig


@config
class DualState:
    """What the control of the multiplier remembers."""

    multiplier: float = 0.0
    """λ."""
    integral: float = 0.0
    error: float = 0.0
    """ē."""
    updates_at_cap: int = 0
    """In a row, with the limit broken all the while."""


def first_dual(settings: DualConfig) -> DualState:
    """Return the state before the first measurement."""
    return DualState(multiplier=settings.start, integral=settings.start)


def violation(cvar: float, limit: float) -> float:
    """Return max(0, limit - CVaR): how far CVaR is on the wrong side."""
    return max(0.0, limit - cvar)


def step_dual(
    settings: DualConfig,
    state: DualState,
    cvar: float,
    limit: float,
    scale: float,
    new: float = 1.0,
) -> DualState:
    """Return the state after one more measurement.

    Args:
        settings: Gains and cap.
        state: Before.
        cvar: Measured CVaR of the return.
        limit: The least CVaR allowed.
        scale: Unit of the violation, in return; greater than 0.
        new: Share of the measurement that is new, in [0, 1].
    """
    error = (limit - cvar) / scale
    if error < 0:
        error = min(0.0, error + settings.slack) * settings.relief
    pace = min(1.0, new / max(settings.integral, 1e-12))
    smoothed = state.error + pace * (1 - settings.smoothing) * (error - state.error)
    integral = state.integral
    if not (state.multiplier >= settings.cap and error > 0):
        integral = min(max(integral + pace * settings.integral * error, 0.0), settings.cap)
    growth = max(0.0, smoothed - state.error)
    wanted = settings.proportional * smoothed + integral + settings.derivative * growth
    multiplier = min(max(wanted, 0.0), settings.cap)
    stuck = multiplier >= settings.cap and error > 0
    return DualState(
        multiplier=multiplier,
        integral=integral,
        error=smoothed,
        updates_at_cap=state.updates_at_cap + 1 if stuck else 0,
    )


def is_infeasible(settings: DualConfig, state: DualState) -> bool:
    """Say whether the limit stayed broken for ``patience`` updates at the largest multiplier."""
    return state.updates_at_cap >= settings.patience
