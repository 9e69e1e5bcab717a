"""Where bars come from: one file per kind, one union over all.

A source is a configuration with ``load() -> Bars``; downloads take the folder of their cache, which
:func:`load_source` hands to them.
"""

from pathlib import Path
from typing import Annotated, TypeAlias

from quantail.config_class import BY_KIND
from quantail.market.bars import Bars
from quantail.market.sources.ccxt_download import CcxtSource
from quantail.market.sources.csv_file import CsvSource
from quantail.market.sources.eurusd_demo import EurUsdDemo
from quantail.market.sources.feather_file import FeatherSource
from quantail.market.sources.parquet_file import ParquetSource
from quantail.market.sources.stocks_demo import StocksDemo
from quantail.market.sources.synthetic import SyntheticSource
from quantail.market.sources.yfinance_download import YFinanceSource

__all__ = [
    "CcxtSource",
    "CsvSource",
    "EurUsdDemo",
    "FeatherSource",
    "ParquetSource",
    "SourceConfig",
    "StocksDemo",
    "SyntheticSource",
    "YFinanceSource",
    "load_source",
]

SourceConfig: TypeAlias = Annotated[
    CsvSource
    | ParquetSource
    | FeatherSource
    | CcxtSource
    | YFinanceSource
    | SyntheticSource
    | StocksDemo
    | EurUsdDemo,
    BY_KIND,
]


def load_source(source: SourceConfig, cache: Path) -> Bars:
    """Load bars from any source; ``cache`` is the folder where downloads keep what they fetched."""
    if isinstance(source, CcxtSource | YFinanceSource):
        return source.load(cache)
    return source.load()
