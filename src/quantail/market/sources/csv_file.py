"""Bars from CSV files, read strictly: a row that is not whole is an error, not a NaN."""

import csv
import gzip
import io
import re
import zlib
from pathlib import Path
from typing import Annotated, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc
from annotated_types import Ge
from pyarrow import csv as arrow_csv

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem, DataError
from quantail.market.bars import Bars
from quantail.market.sources.table import (
    FileRules,
    find_files,
    read_bytes,
    tables_to_bars,
)

_DELIMITERS: Final = (",", ";", "\t", "|")
_SUFFIXES: Final = (".csv", ".csv.gz", ".tsv", ".txt")
_BLANK_LINE: Final = re.compile(r"\n[^\S\n]*\n")
_LEAST_COLUMNS: Final = 5
"""Time, open, high, low, close."""


@config
class CsvSource(FileRules):
    """CSV files with a header line, one symbol per file or a symbol column."""

    kind: Literal["csv"] = "csv"
    delimiter: Literal["detect", ",", ";", "\t", "|"] = "detect"
    """What stands between fields; "detect" takes the one that the header has most of."""
    decimal: Literal[".", ","] = "."
    """What stands before the decimals."""
    skip_lines: Annotated[int, Ge(0)] = 0
    """Lines before the header, such as a notice of the provider."""
    final_newline: Literal["required", "optional"] = "required"
    """Whether the last line must end; one that does not may have been cut off in mid-number."""

    def check(self) -> None:
        """Also refuse a delimiter that is the decimal mark."""
        FileRules.check(self)
        if self.delimiter == self.decimal == ",":
            message = 'must differ from the delimiter; both were ","'
            raise ConfigError([ConfigProblem("decimal", message)])

    def load(self) -> Bars:
        """Read the files and check them."""
        files = find_files(self.path, _SUFFIXES)
        return tables_to_bars({file: read_table(file, self) for file in files}, self)


def read_table(file: Path, rules: CsvSource) -> pa.Table:
    """Read one CSV file as text, every row with as many fields as the header."""
    header_line, body = _header_and_body(_unpacked(read_bytes(file), file), file, rules)
    delimiter = _delimiter(header_line, file, rules)
    header = next(csv.reader([header_line], delimiter=delimiter))
    places = [str(place) for place in range(len(header))]
    lines = body.count(b"\n")
    if not lines:
        return pa.table([pa.array([], pa.string())] * len(header), names=header)
    try:
        table = arrow_csv.read_csv(
            io.BytesIO(body),
            read_options=arrow_csv.ReadOptions(column_names=places, block_size=len(body) + 1),
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=False),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(places, pa.string()), strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        raise DataError(
            f"{file}: every row must have {len(header)} fields, as the header has; {error}. The "
            "file is cut off or damaged, or delimiter must be given."
        ) from error
    if table.num_rows != lines:
        raise DataError(
            f"{file}: {lines} lines gave {table.num_rows} rows; a quote is open or a field holds a "
            "line break. Write one bar per line."
        )
    if rules.decimal == ",":
        table = _with_decimal_points(table)
    return table.rename_columns(header)


def _unpacked(data: bytes, file: Path) -> bytes:
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file}: is damaged as a gzip file: {error}. Fetch it again.") from error


def _header_and_body(data: bytes, file: Path, rules: CsvSource) -> tuple[str, bytes]:
    """Return the header line and the lines after it, none of them blank, each one ended."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = f"byte {error.start} is 0x{error.object[error.start]:02x}"
        raise DataError(f"{file}: must be UTF-8 text; {where}. Save the file as UTF-8.") from error
    if "\0" in text:
        raise DataError(f"{file}: holds a NUL byte, so it is no text. Save the file as UTF-8 CSV.")
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    for _ in range(rules.skip_lines):
        text = text.partition("\n")[2]
    is_ended = text.endswith("\n")
    if not is_ended or text[:1].isspace() or _BLANK_LINE.search(text):
        text = "".join(f"{line}\n" for line in text.split("\n") if line.strip())
    if not text:
        raise DataError(f"{file}: is empty; a header and at least one row are needed.")
    if rules.final_newline == "required" and not is_ended:
        raise DataError(
            f"{file}: the last line does not end, so it may be cut off: {text[-61:-1]!r}. Fetch "
            'the file again, or set final_newline to "optional" if it is whole.'
        )
    header, _, body = text.partition("\n")
    return header, body.encode()


def _delimiter(header: str, file: Path, rules: CsvSource) -> str:
    if rules.delimiter != "detect":
        return rules.delimiter
    best = max(_DELIMITERS, key=header.count)
    if header.count(best) < _LEAST_COLUMNS - 1:
        raise DataError(
            f"{file}: no delimiter among comma, semicolon, tab and | parts the header into "
            f"{_LEAST_COLUMNS} or more fields; it begins {header[:60]!r}. Convert the file, or set "
            "skip_lines to the number of lines before the header."
        )
    return best


def _with_decimal_points(table: pa.Table) -> pa.Table:
    """Turn decimal commas into points; times are left alone, where a comma has no place."""
    for place, column in enumerate(table.columns):
        replaced = pc.replace_substring_regex(column, r"^\s*([-+]?\d+),(\d+)\s*$", r"\1.\2")
        table = table.set_column(place, table.column_names[place], replaced)
    return table
