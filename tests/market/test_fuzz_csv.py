"""2,000 damaged CSV files: each loads as it was written, or is refused with a DataError.

A file's right row count is the number of bars in its whole lines. A line that was cut off anywhere
is not whole, so such a file must be refused. Every damage says what it allows: a table that must
come back, or nothing.
"""

import gzip
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from quantail.errors import DataError
from quantail.market.sources import CsvSource
from tests.market.bar_tables import bar_table

Rng = np.random.Generator
FILES = 2_000
BATCHES = 20
SHEETS = 64
SECONDS_PER_FILE = 5.0


@dataclass(frozen=True)
class Sheet:
    """A written file and the table that it holds."""

    table: pd.DataFrame
    lines: list[str]
    """Header first, without line breaks."""
    delimiter: str

    def text(self) -> str:
        return "".join(f"{line}\n" for line in self.lines)


@dataclass(frozen=True)
class Damaged:
    """A damaged file and what may come of it."""

    content: bytes
    loads: pd.DataFrame | None
    """The table that must come back if the file loads; None: it must be refused."""
    must_load: bool = False
    values_may_differ: bool = False
    """Only the number of rows is known, because a digit may have become another."""


Damage = Callable[[Rng, Sheet], Damaged]


def write_times(times: "pd.Series[pd.Timestamp]", style: str) -> list[str]:
    if style == "epoch":
        return [str(int(instant.timestamp())) for instant in times]
    return list(times.dt.strftime(style))


@cache
def sheet_number(number: int) -> Sheet:
    rng = np.random.default_rng(number)
    table = bar_table(int(rng.integers(5, 30)), start="2024-01-20", freq="6h", seed=number)
    styles = ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ", "%d.%m.%Y %H:%M", "epoch"]
    times = write_times(table["time"], styles[number % 4])
    return write_sheet(table, times, [",", ";", "\t", "|"][number // 4 % 4])


def damaged_file(number: int) -> tuple[str, Damaged]:
    rng = np.random.default_rng(number)
    damage = DAMAGES[number // BATCHES % len(DAMAGES)]
    return damage.__name__, damage(rng, sheet_number(int(rng.integers(SHEETS))))


def write_sheet(table: pd.DataFrame, times: list[str], delimiter: str) -> Sheet:
    names = ["open", "high", "low", "close", "volume"]
    rows = [
        delimiter.join([instant, *(repr(float(value)) for value in values)])
        for instant, values in zip(times, table[names].to_numpy(), strict=True)
    ]
    return Sheet(table, [delimiter.join(["Date", *names]), *rows], delimiter)


def refused(text: str | bytes) -> Damaged:
    return Damaged(text if isinstance(text, bytes) else text.encode(), None)


def with_cell(rng: Rng, sheet: Sheet, columns: list[int], cell: str) -> Damaged:
    """Write ``cell`` over a random row's value in one of ``columns``."""
    row, column = int(rng.integers(1, len(sheet.lines))), int(rng.choice(columns))
    cells = sheet.lines[row].split(sheet.delimiter)
    cells[column] = cell
    lines = [*sheet.lines[:row], sheet.delimiter.join(cells), *sheet.lines[row + 1 :]]
    return refused("".join(f"{line}\n" for line in lines))


def with_lines(lines: list[str]) -> Damaged:
    return refused("".join(f"{line}\n" for line in lines))


def intact(_: Rng, sheet: Sheet) -> Damaged:
    return Damaged(sheet.text().encode(), sheet.table, must_load=True)


def cut_off(rng: Rng, sheet: Sheet) -> Damaged:
    data = sheet.text().encode()
    kept = data[: int(rng.integers(0, len(data)))]
    rows = kept.count(b"\n") - 1
    whole = kept.endswith(b"\n") and rows >= 2
    return Damaged(kept, sheet.table.iloc[:rows] if whole else None, must_load=whole)


def cut_off_in_last_field(rng: Rng, sheet: Sheet) -> Damaged:
    last = sheet.lines[-1].rsplit(sheet.delimiter, 1)[1]
    return refused(sheet.text()[: -1 - int(rng.integers(0, len(last)))])


def shuffled(rng: Rng, sheet: Sheet) -> Damaged:
    order = rng.permutation(len(sheet.table))
    lines = [sheet.lines[0], *(sheet.lines[1 + n] for n in order)]
    if (np.diff(order) > 0).all():
        return intact(rng, sheet)
    return with_lines(lines)


def wrong_delimiter(rng: Rng, sheet: Sheet) -> Damaged:
    return refused(sheet.text().replace(sheet.delimiter, str(rng.choice([":", "^", "~", "  "]))))


def delimiter_changed_in_a_line(rng: Rng, sheet: Sheet) -> Damaged:
    row = int(rng.integers(0, len(sheet.lines)))
    lines = list(sheet.lines)
    lines[row] = lines[row].replace(sheet.delimiter, "#")
    return with_lines(lines)


def offsets_mixed(rng: Rng, sheet: Sheet) -> Damaged:
    """The same instants written in several zones: they must come back as the instants they are."""
    hours = rng.integers(-11, 12, len(sheet.table))
    times = [
        f"{(instant + pd.Timedelta(hours=int(hour))).strftime('%Y-%m-%dT%H:%M:%S')}{hour:+03d}:00"
        for instant, hour in zip(sheet.table["time"], hours, strict=True)
    ]
    return Damaged(
        write_sheet(sheet.table, times, ",").text().encode(), sheet.table, must_load=True
    )


def zone_in_some_lines(rng: Rng, sheet: Sheet) -> Damaged:
    zoned = rng.random(len(sheet.table)) < 0.5
    zoned[0], zoned[-1] = True, False
    times = write_times(sheet.table["time"], "%Y-%m-%dT%H:%M:%S")
    mixed = [text + "+00:00" * bool(flag) for text, flag in zip(times, zoned, strict=True)]
    return refused(write_sheet(sheet.table, mixed, ",").text())


def impossible_price(rng: Rng, sheet: Sheet) -> Damaged:
    bad = ["-1.5", "0", "-0.0", "1e300", "-1e300", "inf", "-inf", "nan", "", "1e-300", "NA"]
    return with_cell(rng, sheet, [1, 2, 3, 4], str(rng.choice(bad)))


def impossible_volume(rng: Rng, sheet: Sheet) -> Damaged:
    return with_cell(rng, sheet, [5], str(rng.choice(["-1", "1e300", "nan", "inf", "", "null"])))


def text_for_a_number(rng: Rng, sheet: Sheet) -> Damaged:
    return with_cell(
        rng,
        sheet,
        [1, 2, 3, 4, 5],
        str(rng.choice(["abc", "1.2.3", "--1", "0x1F", "1_0", "#REF!"])),
    )


def no_time(rng: Rng, sheet: Sheet) -> Damaged:
    bad = ["", "soon", "2024-13-45", "0", "nan", "99/99/9999", "-1", "2024", "1e300", "31.12.2023"]
    return with_cell(rng, sheet, [0], str(rng.choice(bad)))


def high_below_low(rng: Rng, sheet: Sheet) -> Damaged:
    row = int(rng.integers(1, len(sheet.lines)))
    cells = sheet.lines[row].split(sheet.delimiter)
    cells[2], cells[3] = cells[3], cells[2]
    return with_lines([*sheet.lines[:row], sheet.delimiter.join(cells), *sheet.lines[row + 1 :]])


def line_lost(rng: Rng, sheet: Sheet) -> Damaged:
    row = int(rng.integers(2, len(sheet.lines) - 1))
    return with_lines([*sheet.lines[:row], *sheet.lines[row + 1 :]])


def line_twice(rng: Rng, sheet: Sheet) -> Damaged:
    row = int(rng.integers(1, len(sheet.lines)))
    return with_lines([*sheet.lines[: row + 1], *sheet.lines[row:]])


def header_lost(_: Rng, sheet: Sheet) -> Damaged:
    return with_lines(sheet.lines[1:])


def file_twice(_: Rng, sheet: Sheet) -> Damaged:
    return refused(sheet.text() * 2)


def field_lost(rng: Rng, sheet: Sheet) -> Damaged:
    row = int(rng.integers(1, len(sheet.lines)))
    cells = sheet.lines[row].split(sheet.delimiter)
    del cells[int(rng.integers(0, len(cells)))]
    return with_lines([*sheet.lines[:row], sheet.delimiter.join(cells), *sheet.lines[row + 1 :]])


def field_too_many(rng: Rng, sheet: Sheet) -> Damaged:
    row = int(rng.integers(1, len(sheet.lines)))
    longer = f"{sheet.lines[row]}{sheet.delimiter}{'7' if rng.random() < 0.5 else ''}"
    return with_lines([*sheet.lines[:row], longer, *sheet.lines[row + 1 :]])


def column_lost(rng: Rng, sheet: Sheet) -> Damaged:
    column = int(rng.integers(0, 6))
    parts = [line.split(sheet.delimiter) for line in sheet.lines]
    return with_lines([sheet.delimiter.join([*p[:column], *p[column + 1 :]]) for p in parts])


def columns_in_another_order(rng: Rng, sheet: Sheet) -> Damaged:
    order = rng.permutation(6)
    lines = [
        sheet.delimiter.join([line.split(sheet.delimiter)[n] for n in order])
        for line in sheet.lines
    ]
    return Damaged("".join(f"{line}\n" for line in lines).encode(), sheet.table, must_load=True)


def empty(rng: Rng, sheet: Sheet) -> Damaged:
    return refused(
        str(rng.choice(["", "\n", "   \n\n", "\t", f"{sheet.lines[0]}\n", sheet.lines[0]]))
    )


def binary(rng: Rng, _: Sheet) -> Damaged:
    start = [b"", b"\x89PNG\r\n\x1a\n", b"PK\x03\x04", b"\x1f\x8b", b"PAR1", b"%PDF-1.7\n"]
    return refused(start[int(rng.integers(len(start)))] + rng.bytes(int(rng.integers(1, 400))))


def other_encoding(rng: Rng, sheet: Sheet) -> Damaged:
    return refused(sheet.text().encode(str(rng.choice(["utf-16", "utf-32", "cp037"]))))


def byte_order_mark(_: Rng, sheet: Sheet) -> Damaged:
    return Damaged(b"\xef\xbb\xbf" + sheet.text().encode(), sheet.table, must_load=True)


def other_line_ends(rng: Rng, sheet: Sheet) -> Damaged:
    text = sheet.text().replace("\n", str(rng.choice(["\r\n", "\r", "\n\n", "\n \n"])))
    return Damaged(text.encode(), sheet.table, must_load=True)


def bytes_put_in(rng: Rng, sheet: Sheet) -> Damaged:
    data = sheet.text().encode()
    place = int(rng.integers(0, len(data)))
    junk = [b"\x00", b"\xff\xfe", b"\xc3", b"\x00" * 40, b"\x80abc"][int(rng.integers(5))]
    return refused(data[:place] + junk + data[place:])


def byte_changed(rng: Rng, sheet: Sheet) -> Damaged:
    data = bytearray(sheet.text().encode())
    data[int(rng.integers(0, len(data)))] = int(rng.integers(9, 127))
    return Damaged(bytes(data), sheet.table, values_may_differ=True)


def quote_opened(rng: Rng, sheet: Sheet) -> Damaged:
    row = int(rng.integers(1, len(sheet.lines)))
    line = sheet.lines[row]
    place = 0 if rng.random() < 0.5 else line.index(sheet.delimiter) + 1
    return with_lines(
        [*sheet.lines[:row], f'{line[:place]}"{line[place:]}', *sheet.lines[row + 1 :]]
    )


def all_quoted(_: Rng, sheet: Sheet) -> Damaged:
    lines = [
        sheet.delimiter.join(f'"{c}"' for c in line.split(sheet.delimiter)) for line in sheet.lines
    ]
    return Damaged("".join(f"{line}\n" for line in lines).encode(), sheet.table, must_load=True)


def ambiguous_dates(rng: Rng, sheet: Sheet) -> Damaged:
    table = sheet.table.iloc[:9].assign(
        time=pd.date_range("2024-02-03", periods=len(sheet.table.iloc[:9]))
    )
    style = str(rng.choice(["%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y"]))
    return refused(write_sheet(table, write_times(table["time"], style), ";").text())


def telling_dates(rng: Rng, sheet: Sheet) -> Damaged:
    table = sheet.table.assign(time=pd.date_range("2024-02-10", periods=len(sheet.table)))
    style = str(rng.choice(["%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%m-%d-%Y"]))
    text = write_sheet(table, write_times(table["time"], style), ";").text()
    return Damaged(text.encode(), table, must_load=True)


def epochs_of_two_units(rng: Rng, sheet: Sheet) -> Damaged:
    seconds = [int(instant.timestamp()) for instant in sheet.table["time"]]
    place = int(rng.integers(0, len(seconds)))
    seconds[place] *= 1000
    return refused(write_sheet(sheet.table, [str(n) for n in seconds], ",").text())


def packed(rng: Rng, sheet: Sheet) -> Damaged:
    data = gzip.compress(sheet.text().encode(), mtime=0)
    if rng.random() < 0.5:
        return Damaged(data, sheet.table, must_load=True)
    return refused(data[: int(rng.integers(3, len(data)))])


def huge_line(rng: Rng, sheet: Sheet) -> Damaged:
    row = int(rng.integers(0, len(sheet.lines) + 1))
    return with_lines([*sheet.lines[:row], "9" * 100_000, *sheet.lines[row:]])


def thousands_separated(_: Rng, sheet: Sheet) -> Damaged:
    times = write_times(sheet.table["time"], "%Y-%m-%d %H:%M:%S")
    sheet = write_sheet(sheet.table, times, ",")
    lines = [line.replace("0", "0,000", 1) if n > 1 else line for n, line in enumerate(sheet.lines)]
    return with_lines(lines)


DAMAGES: list[Damage] = [
    intact, cut_off, cut_off, cut_off_in_last_field, shuffled, wrong_delimiter,
    delimiter_changed_in_a_line, offsets_mixed, zone_in_some_lines, impossible_price,
    impossible_volume, text_for_a_number, no_time, high_below_low, line_lost, line_twice,
    header_lost, file_twice, field_lost, field_too_many, column_lost, columns_in_another_order,
    empty, binary, other_encoding, byte_order_mark, other_line_ends, bytes_put_in, byte_changed,
    byte_changed, byte_changed, quote_opened, all_quoted, ambiguous_dates, telling_dates,
    epochs_of_two_units, packed, huge_line, thousands_separated,
]  # fmt: skip


def verdict(file: Path, damaged: Damaged) -> str | None:
    """Load the file; return what is wrong with the outcome, or None."""
    file.write_bytes(damaged.content)
    started = time.perf_counter()
    try:
        bars = CsvSource(path=str(file)).load()
    except DataError as error:
        if len(str(error)) > 2_000:
            return f"refused with a message of {len(str(error))} characters"
        return f"refused, though it is whole: {error}" if damaged.must_load else None
    finally:
        took = time.perf_counter() - started
    if took > SECONDS_PER_FILE:
        return f"took {took:.1f} s"
    if damaged.loads is None:
        return f"loaded {bars.n_bars} bars, though it is damaged"
    if bars.n_bars != len(damaged.loads):
        return f"loaded {bars.n_bars} bars instead of {len(damaged.loads)}"
    if damaged.values_may_differ:
        return None
    same = np.array_equal(bars.time, damaged.loads["time"].to_numpy("datetime64[ns]"))
    for name in ("open", "high", "low", "close", "volume"):
        same = same and np.array_equal(getattr(bars, name), damaged.loads[name].to_numpy())
    return None if same else "loaded other values than were written"


@pytest.mark.parametrize("batch", range(BATCHES))
def test_damaged_files_load_as_written_or_are_refused(tmp_path: Path, batch: int) -> None:
    file = tmp_path / "AAA.csv"
    for number in range(batch, FILES, BATCHES):
        name, damaged = damaged_file(number)
        wrong = verdict(file, damaged)
        assert wrong is None, f"file {number} ({name}): {wrong}\n{damaged.content[:400]!r}"


def test_the_files_are_many_and_of_every_kind() -> None:
    """Guards the fuzz itself: it would prove nothing with few different files or one outcome."""
    made = [damaged_file(number) for number in range(FILES)]
    assert {name for name, _ in made} == {damage.__name__ for damage in DAMAGES}
    assert len({one.content for _, one in made}) > 0.8 * FILES
    assert sum(one.must_load for _, one in made) > 0.1 * FILES
    assert sum(one.loads is None for _, one in made) > 0.5 * FILES
