"""Bars from Parquet files."""

from pathlib import Path
from typing import Final, Literal

import pyarrow as pa
from pyarrow import parquet

from quantail.config_class import config
from quantail.errors import DataError
from quantail.market.bars import Bars
from quantail.market.sources.table import FileRules, find_files, tables_to_bars

_SUFFIXES: Final = (".parquet", ".pq")


@config
class ParquetSource(FileRules):
    """Parquet files, one symbol per file or a symbol column."""

    kind: Literal["parquet"] = "parquet"

    def load(self) -> Bars:
        """Read the files and check them."""
        files = find_files(self.path, _SUFFIXES)
        return tables_to_bars({file: read_table(file) for file in files}, self)


def read_table(file: Path) -> pa.Table:
    """Read one Parquet file."""
    try:
        return parquet.ParquetFile(file).read()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file}: cannot be read as Parquet: {error}. Write it anew.") from error
