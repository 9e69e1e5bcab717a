"""Random compositions of pandas operations: causal ones, and ones with a leak planted inside."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from hypothesis import strategies as st

Series = pd.Series
Expression = Callable[[pd.DataFrame], Series]
Step = tuple[str, Callable[[Series, pd.DataFrame], Series]]


def leaf(name: str) -> tuple[str, Expression]:
    return name, lambda bars: bars[name].astype(float)


LEAVES = st.sampled_from(["open", "high", "low", "close", "volume", "spread"]).map(leaf)

# Each keeps a dependence on the newest row it is given, so it cannot hide a leak beneath it.
KEEPING: list[Step] = [
    ("scaled", lambda x, _: 3.0 * x - 1.0),
    ("log", lambda x, _: np.log1p(x.abs())),
    ("diff", lambda x, _: x.diff()),
    ("mean4", lambda x, _: x.rolling(4).mean()),
    ("ewm", lambda x, _: x.ewm(span=6).mean()),
    ("expanding", lambda x, _: x - x.expanding().mean()),
    ("plus close", lambda x, bars: x + bars["close"]),
    ("per volume", lambda x, bars: x / (1.0 + bars["volume"])),
]

CAUSAL: list[Step] = [
    *KEEPING,
    ("lag3", lambda x, _: x.shift(3)),
    ("max5", lambda x, _: x.rolling(5).max()),
    ("std5", lambda x, _: x.rolling(5).std()),
    ("cumsum", lambda x, _: x.cumsum()),
    ("ffill", lambda x, bars: x.where(bars["volume"] > 150.0).ffill()),
    ("rank", lambda x, _: x.expanding().rank(pct=True)),
    ("hour", lambda x, bars: x * bars.index.hour),
]

LEAKS: list[Step] = [
    ("shift(-1)", lambda x, _: x.shift(-1)),
    ("shift(-7)", lambda x, _: x.shift(-7)),
    ("centered window", lambda x, _: x.rolling(5, center=True).mean()),
    ("full-sample z-score", lambda x, _: (x - x.mean()) / x.std()),
    ("full-sample maximum", lambda x, _: x / x.abs().max()),
    ("bfill", lambda x, bars: x.where(bars["volume"] > 150.0).bfill()),
    ("interpolate", lambda x, bars: x.where(bars["volume"] > 150.0).interpolate()),
    ("reversed ewm", lambda x, _: x[::-1].ewm(span=6).mean()[::-1]),
    ("gradient", lambda x, _: (x.shift(-1) - x.shift(1)) / 2.0),
    ("full-sample rank", lambda x, _: x.rank(pct=True)),
    ("daily close", lambda x, bars: x.groupby(bars.index.floor("6h")).transform("last")),
]


def composed(start: tuple[str, Expression], steps: list[Step]) -> tuple[str, Expression]:
    name, leaf_of = start

    def expression(bars: pd.DataFrame) -> Series:
        x = leaf_of(bars)
        for _, step in steps:
            x = step(x, bars)
        return x

    return " > ".join([name, *(step_name for step_name, _ in steps)]), expression


causal_expressions = st.builds(composed, LEAVES, st.lists(st.sampled_from(CAUSAL), max_size=4))
leaking_expressions = st.builds(
    lambda start, below, leak, above: composed(start, [*below, leak, *above]),
    LEAVES,
    st.lists(st.sampled_from(KEEPING), max_size=2),
    st.sampled_from(LEAKS),
    st.lists(st.sampled_from(KEEPING), max_size=2),
)
