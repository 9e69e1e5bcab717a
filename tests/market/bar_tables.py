"""Tables of bars for tests: plain, valid, seeded."""

import numpy as np
import pandas as pd


def bar_table(
    rows: int = 50, symbol: str = "AAA", start: str = "2024-01-01", freq: str = "1h", seed: int = 0
) -> pd.DataFrame:
    """Return a valid table of bars around the clock."""
    rng = np.random.default_rng(seed)
    close = 100.0 * np.exp(np.cumsum(rng.normal(0.0, 0.01, rows)))
    opened = np.concatenate(([100.0], close[:-1]))
    return pd.DataFrame(
        {
            "symbol": symbol,
            "time": pd.date_range(start, periods=rows, freq=freq),
            "open": opened,
            "high": np.maximum(opened, close) * 1.001,
            "low": np.minimum(opened, close) * 0.999,
            "close": close,
            "volume": rng.uniform(1.0, 9.0, rows),
        }
    )
