"""Bars from Feather (Arrow IPC) files."""

from pathlib import Path
from typing import Final, Literal

import pyarrow as pa
from pyarrow import feather

from quantail.config_class import config
from quantail.errors import DataError
from quantail.market.bars import Bars
from quantail.market.sources.table import FileRules, find_files, tables_to_bars

_SUFFIXES: Final = (".feather", ".arrow", ".ft")


@config
class FeatherSource(FileRules):
    """Feather files, one symbol per file or a symbol column."""

    kind: Literal["feather"] = "feather"

    def load(self) -> Bars:
        """Read the files and check them."""
        files = find_files(self.path, _SUFFIXES)
        return tables_to_bars({file: read_table(file) for file in files}, self)


def read_table(file: Path) -> pa.Table:
    """Read one Feather file."""
    try:
        return feather.read_table(file, memory_map=False)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file}: cannot be read as Feather: {error}. Write it anew.") from error
