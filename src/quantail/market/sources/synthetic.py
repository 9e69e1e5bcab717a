"""Bars of a known law, seeded: for controls, tests and benchmarks."""

from typing import Annotated, Final, Literal

import numpy as np
from annotated_types import Ge, Gt, Lt

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem, DataError
from quantail.market.bars import Bars
from quantail.market.sources.laws import GeometricBrownian, LawConfig
from quantail.market.sources.table import parse_instant, parse_interval

_MAX_LOG_MOVE: Final = 20.0
"""Largest |log(price / start)|: a factor of 5e8, far inside the range of prices that bars allow."""


@config
class SyntheticSource:
    """Bars drawn from a law, around the clock; the same seed gives the same bars."""

    kind: Literal["synthetic"] = "synthetic"
    law: LawConfig = GeometricBrownian()
    """What moves the price."""
    seed: Annotated[int, Ge(0)] = 0
    """Seed of the generator that draws these bars and nothing else."""
    symbols: Annotated[int, Ge(1)] = 1
    """Number of independent symbols; they are called SYN0, SYN1, ..."""
    bars: Annotated[int, Ge(2)] = 10_000
    """Bars of each symbol."""
    interval: str = "1h"
    """Length of a bar: a number and s, m, h, d or w."""
    start: str = "2020-01-01"
    """Time of the first bar, ISO 8601, in UTC."""
    start_price: Annotated[float, Gt(0)] = 100.0
    """Open of the first bar of each symbol."""
    steps_per_bar: Annotated[int, Ge(2)] = 8
    """Steps inside a bar, from which high and low are read."""
    volume_mean: Annotated[float, Gt(0)] = 1000.0
    """Mean of the volume of a bar, which is lognormal and independent of the price."""
    volume_spread: Annotated[float, Ge(0)] = 0.5
    """Standard deviation of the log volume."""
    spread: Annotated[float, Ge(0), Lt(1)] | None = None
    """Full bid-ask spread as a fraction of the price, the same in every bar; null gives none."""

    def check(self) -> None:
        """Refuse an interval or start that cannot be read, and an end after the year 2200."""
        interval = parse_interval(self.interval)
        start = parse_instant(self.start, "start")
        seconds = self.bars * (interval / np.timedelta64(1, "s"))
        room = (np.datetime64("2200-01-01", "s") - start) / np.timedelta64(1, "s")
        if seconds > room:
            message = f"must end before 2200 at this interval; was {self.bars}"
            raise ConfigError([ConfigProblem("bars", message)])

    def load(self) -> Bars:
        """Draw the bars."""
        rng = np.random.default_rng(self.seed)
        path = self.law.path(rng, self.symbols, self.bars, self.steps_per_bar)
        furthest = float(np.abs(path).max())
        if furthest > _MAX_LOG_MOVE:
            raise DataError(
                f"the drawn price moved by a factor of exp({furthest:.0f}); at most "
                f"exp({_MAX_LOG_MOVE:.0f}) is a market. Lower law.volatility or bars, or choose "
                "another drift."
            )
        # Neighboring bars share a grid point: the close of one is the open of the next.
        inner = path[:, :-1].reshape(self.symbols, self.bars, self.steps_per_bar)
        closes = path[:, self.steps_per_bar :: self.steps_per_bar]
        logs = {
            "open": inner[..., 0],
            "high": np.maximum(inner.max(axis=-1), closes),
            "low": np.minimum(inner.min(axis=-1), closes),
            "close": closes,
        }
        prices = {name: self.start_price * np.exp(value).ravel() for name, value in logs.items()}
        count = self.symbols * self.bars
        noise = self.volume_spread * rng.standard_normal(count) - 0.5 * self.volume_spread**2
        interval = parse_interval(self.interval)
        time = parse_instant(self.start, "start") + np.arange(self.bars) * interval
        return Bars(
            symbols=tuple(f"SYN{s}" for s in range(self.symbols)),
            offsets=np.arange(self.symbols + 1) * self.bars,
            time=np.tile(time, self.symbols),
            volume=self.volume_mean * np.exp(noise),
            interval=interval,
            spread=None if self.spread is None else np.full(count, self.spread),
            **prices,
        )
