"""Did the critic know the law of what came?

A start of a stretch of h steps is judged by its realized discounted return

    G = Σ_{k<h} γ^k r_k + γ^h · (mean of the critic's law h steps later),

with γ^h at most 5 %, so that hardly anything of G is the critic's own word. Stretches do not
overlap. Under a calibrated critic the probability integral transform F(G) is uniform.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from quantail.evaluation.measures import cvar
from quantail.evaluation.policies import Forecast
from quantail.evaluation.record import Calibration
from quantail.types import BoolArray, FloatArray

LEVELS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
CVAR_LEVEL: Final = 0.05
UNJUDGED_CRITIC: Final = (
    "The critic's forecasts cannot be judged: it predicts no law, its returns are not discounted, "
    "or too few whole stretches of its horizon were run."
)
_REST: Final = 0.05
"""Largest weight of what the critic itself says about the time after the stretch."""
_BINS: Final = 10
_MIN_STARTS: Final = 20


def horizon(gamma: float) -> int | None:
    """Return h, the least number of steps with γ^h <= 5 %; None for an undiscounted return."""
    return None if gamma >= 1.0 else max(1, math.ceil(math.log(_REST) / math.log(gamma)))


@dataclass(frozen=True, slots=True, eq=False)
class Stretches:
    """Whole stretches that do not overlap: what the critic foretold of each, and what came."""

    law: Forecast
    """[n, M] at the start of each."""
    realized: FloatArray
    """[n] discounted returns."""
    length: int
    """Steps of a stretch."""


def join_stretches(parts: Sequence[Stretches]) -> Stretches | None:
    """Return all stretches together; None when they are of different kinds or there is none."""
    kinds = {(part.length, part.law.atoms.shape[1]) for part in parts}
    if len(kinds) != 1:
        return None
    law = Forecast(
        np.concatenate([part.law.atoms for part in parts]),
        np.concatenate([part.law.weights for part in parts]),
    )
    realized = np.concatenate([part.realized for part in parts])
    return Stretches(law, realized, parts[0].length)


def calibration_of(found: Stretches | None) -> Calibration | None:
    """Return the calibration over stretches; None with fewer than 20 of them."""
    if found is None or len(found.realized) < _MIN_STARTS:
        return None
    return compare_laws(found.law, found.realized, found.length)


def calibrate(
    forecasts: Sequence[Forecast],
    rewards: FloatArray,
    alive: BoolArray,
    terminated: BoolArray,
    gamma: float,
) -> Calibration | None:
    """Compare forecasts with what came; see :func:`stretches` for the arguments.

    Returns:
        None with fewer than 20 whole stretches, or without discount.
    """
    return calibration_of(stretches(forecasts, rewards, alive, terminated, gamma))


def stretches(
    forecasts: Sequence[Forecast],
    rewards: FloatArray,
    alive: BoolArray,
    terminated: BoolArray,
    gamma: float,
) -> Stretches | None:
    """Cut a run into whole stretches and discount what came in each.

    Args:
        forecasts: At steps 0, h, 2h, ...; of N accounts each.
        rewards: [T, N]
        alive: [T, N] the step was a real one.
        terminated: [N] the account was ruined, so that nothing follows its last step.
        gamma: The discount of the critic's returns.

    Returns:
        None without forecasts or without discount.
    """
    length = horizon(gamma)
    if length is None:
        return None
    weights = gamma ** np.arange(length)
    found = []
    for start, (now, later) in enumerate(pairwise(forecasts)):
        part = slice(start * length, (start + 1) * length)
        whole = alive[part].all(axis=0)
        # A ruined account's stretch is whole too: its rest is known to be zero.
        ended = alive[part.start] & ~whole & terminated
        used = whole | ended
        goes_on = alive[part.stop] if part.stop < len(alive) else whole
        rest = np.where(goes_on, later.mean(), 0.0)
        known = used & (goes_on | terminated)
        returns = (weights @ rewards[part] + gamma**length * rest)[known]
        law = Forecast(now.atoms[known], now.weights[known])
        found.append(Stretches(law, returns, length))
    return join_stretches(found)


def compare_laws(law: Forecast, realized: FloatArray, length: int) -> Calibration:
    """Return the calibration of laws [n, M] against realized returns [n].

    Each law is read as a line through its atoms at the middle of their cells; only levels between
    the first and the last of them are judged.
    """
    middle = np.cumsum(law.weights, axis=1) - 0.5 * law.weights
    levels = tuple(level for level in LEVELS if middle[:, 0].max() <= level <= middle[:, -1].min())
    transform = _interpolate(realized[:, None], law.atoms, middle)[:, 0]
    predicted = _interpolate(np.tile(levels, (len(realized), 1)), middle, law.atoms)
    coverage = (realized[:, None] <= predicted).mean(axis=0)
    counts, _ = np.histogram(transform, bins=_BINS, range=(0.0, 1.0))
    tail = np.clip(CVAR_LEVEL - (np.cumsum(law.weights, axis=1) - law.weights), 0.0, law.weights)
    return Calibration(
        levels=levels,
        coverage=tuple(coverage.tolist()),
        pit=tuple((counts / len(realized)).tolist()),
        predicted_quantiles=tuple(predicted.mean(axis=0).tolist()),
        realized_quantiles=tuple(np.quantile(realized, levels).tolist()),
        predicted_mean=float(law.mean().mean()),
        realized_mean=float(realized.mean()),
        predicted_cvar=float(((tail * law.atoms).sum(axis=1) / CVAR_LEVEL).mean()),
        realized_cvar=float(cvar(realized, CVAR_LEVEL)),
        cvar_level=CVAR_LEVEL,
        n=len(realized),
        horizon=length,
        error=float(np.abs(coverage - np.array(levels)).mean()),
    )


def _interpolate(x: FloatArray, known: FloatArray, values: FloatArray) -> FloatArray:
    """Interpolate row by row: x [n, L] on the line through (known, values), both [n, M].

    Beyond the ends the line goes half way to the end of [0, 1] or stays at the last value.
    """
    right = (known[:, None, :] < x[:, :, None]).sum(axis=2).clip(1, known.shape[1] - 1)
    x0, x1 = (np.take_along_axis(known, right - back, axis=1) for back in (1, 0))
    y0, y1 = (np.take_along_axis(values, right - back, axis=1) for back in (1, 0))
    width = x1 - x0
    share = np.where(width > 0.0, (x - x0) / np.where(width > 0.0, width, 1.0), 0.5)
    return np.asarray(y0 + share.clip(0.0, 1.0) * (y1 - y0))
