"""Other futures: bars as they might have come instead, for the leak guard."""

import dataclasses
from typing import Any

import numpy as np

from quantail.market.features.columns import Columns
from quantail.types import FloatArray


def perturbed(columns: Columns, rng: np.random.Generator) -> Columns:
    """Other bars at the same times: every column changes, and high and low stay the extremes."""

    def factor(size: float) -> FloatArray:
        return np.exp(rng.normal(0.0, size, columns.n_bars))

    level = 1.5 * factor(0.1)
    open_, close = columns.open * level * factor(0.02), columns.close * level * factor(0.02)
    high = np.maximum(columns.high * level, np.maximum(open_, close)) * (
        1.0 + rng.random(len(open_))
    )
    low = np.minimum(columns.low * level, np.minimum(open_, close)) / (1.0 + rng.random(len(open_)))
    spread, funding = columns.spread, columns.funding
    adjusted, no_trade = columns.adjusted_close, columns.no_trade
    return dataclasses.replace(
        columns,
        open=open_,
        high=high,
        low=low,
        close=close,
        # The constant also changes bars without volume.
        volume=(columns.volume + 1.0) * factor(0.5),
        spread=None if spread is None else (spread + 1e-4) * factor(0.5),
        funding=None if funding is None else funding + 1e-4 * rng.normal(size=funding.size),
        adjusted_close=None if adjusted is None else adjusted * (close / columns.close),
        no_trade=None if no_trade is None else ~no_trade,
    )


def spliced(past: Columns, future: Columns, known: int) -> Columns:
    """The first ``known`` bars of ``past``, then those of ``future``."""
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(Columns):
        before, after = getattr(past, field.name), getattr(future, field.name)
        if before is not after:
            changed[field.name] = np.concatenate((before[:known], after[known:]))
    return dataclasses.replace(past, **changed)
