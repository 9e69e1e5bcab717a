"""Log returns over several horizons."""

from functools import partial
from typing import Annotated, Literal

import numpy as np
from annotated_types import MinLen

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem, DataError
from quantail.market.features.columns import Columns, Feature
from quantail.market.features.windows import lagged, log_ratio
from quantail.types import FloatArray


@config
class LogReturn:
    """``ln(price_t / price_{t-h})`` for each horizon h."""

    kind: Literal["log_return"] = "log_return"
    horizons: Annotated[tuple[int, ...], MinLen(1)] = (1,)
    """Horizons in bars, one column each."""
    price: Literal["close", "adjusted_close"] = "close"
    """``adjusted_close`` counts dividends and splits as return; the bars must have the column."""

    def check(self) -> None:
        """Refuse horizons that look ahead or repeat."""
        if min(self.horizons) < 1:
            raise ConfigError(
                [
                    ConfigProblem(
                        "horizons",
                        f"must all be at least 1 bar; was {list(self.horizons)}. "
                        "A horizon of zero or less would look at the present or the future",
                    )
                ]
            )
        if len(set(self.horizons)) < len(self.horizons):
            raise ConfigError(
                [ConfigProblem("horizons", f"must differ; was {list(self.horizons)}")]
            )

    def build(self) -> Feature:
        """One column for each horizon, in the order given."""
        stem = "log_return" if self.price == "close" else "adjusted_log_return"
        names = tuple(f"{stem}_{horizon}" for horizon in self.horizons)
        compute = partial(_log_returns, horizons=self.horizons, price=self.price)
        return Feature(names, max(self.horizons), compute)


def log_return(price: FloatArray, horizon: int) -> FloatArray:
    """``ln(price_t / price_{t-horizon})``.

    Args:
        price: Prices [T].
        horizon: Bars, at least 1.

    Returns:
        Log returns [T], NaN for the first ``horizon`` rows.
    """
    return log_ratio(price, lagged(price, horizon))


def _log_returns(columns: Columns, horizons: tuple[int, ...], price: str) -> FloatArray:
    prices: FloatArray | None = getattr(columns, price)
    if prices is None:
        raise DataError(
            f"feature log_return with price: {price} needs that column; the bars of "
            f"{columns.symbol!r} have none. Use price: close, or a source that provides it."
        )
    return np.column_stack([log_return(prices, horizon) for horizon in horizons])
