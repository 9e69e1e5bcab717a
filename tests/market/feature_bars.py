"""Bars for the tests of features, splits and the leak guard."""

import numpy as np

from quantail.market.bars import Bars
from quantail.market.calendars import AlwaysOpen
from quantail.market.features import Columns

HOUR = np.timedelta64(3600, "s")
START = np.datetime64("2024-01-01T00:00:00", "ns")


def random_columns(n: int = 300, seed: int = 0, symbol: str = "AAA") -> Columns:
    """A random walk with gaps between close and open; every optional column is there."""
    rng = np.random.default_rng(seed)
    close = 100.0 * np.exp(np.cumsum(rng.normal(0.0, 0.01, n)))
    before = np.concatenate(([100.0], close[:-1]))
    open_ = before * np.exp(rng.normal(0.0, 0.003, n))
    return Columns(
        symbol=symbol,
        interval=HOUR,
        time=START + np.arange(n) * HOUR,
        open=open_,
        high=np.maximum(open_, close) * np.exp(np.abs(rng.normal(0.0, 0.004, n))),
        low=np.minimum(open_, close) / np.exp(np.abs(rng.normal(0.0, 0.004, n))),
        close=close,
        volume=rng.lognormal(5.0, 1.0, n),
        spread=rng.uniform(1e-4, 1e-3, n),
        funding=rng.normal(0.0, 1e-4, n),
        adjusted_close=close * 0.5,
        no_trade=rng.random(n) < 0.05,
    )


def as_bars(*parts: Columns) -> Bars:
    """The symbols one after another."""
    joined = {
        name: np.concatenate([getattr(part, name) for part in parts])
        for name in ("time", "open", "high", "low", "close", "volume", "spread", "funding")
    }
    return Bars(
        symbols=tuple(part.symbol for part in parts),
        offsets=np.cumsum([0, *(part.n_bars for part in parts)]),
        interval=parts[0].interval,
        calendar=AlwaysOpen(),
        **joined,
    )


def random_bars(n: int = 300, symbols: int = 1, seed: int = 0) -> Bars:
    """Independent symbols AAA, BBB, ... of ``n`` bars each."""
    names = [chr(ord("A") + s) * 3 for s in range(symbols)]
    return as_bars(*(random_columns(n, seed + s, name) for s, name in enumerate(names)))
