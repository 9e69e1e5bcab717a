"""The quoted bid-ask spread."""

from typing import Literal

from quantail.config_class import config
from quantail.errors import DataError
from quantail.market.features.columns import Columns, Feature
from quantail.types import FloatArray


@config
class QuotedSpread:
    """Full bid-ask spread of the bar as a fraction of price."""

    kind: Literal["spread"] = "spread"

    def build(self) -> Feature:
        """One column."""
        return Feature(("spread",), 0, quoted_spread)


def quoted_spread(bars: Columns) -> FloatArray:
    """The bars' own spread column [T].

    Raises:
        DataError: If the bars have none.
    """
    if bars.spread is None:
        raise DataError(
            f"feature spread needs a spread (or bid and ask) column; the bars of {bars.symbol!r} "
            "have none. Remove the feature, or use a source that provides quotes."
        )
    return bars.spread
