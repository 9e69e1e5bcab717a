import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from quantail.config_class import config
from quantail.config_file import parse_config, write_config
from quantail.errors import ConfigError, DataError
from quantail.market.bars import Bars
from quantail.market.calendars import Weekdays
from quantail.market.checks import DataChecks
from quantail.market.repair import Repair
from quantail.market.sources import CsvSource, SourceConfig, SyntheticSource
from tests.market.bar_tables import bar_table


def write(folder: Path, table: pd.DataFrame, name: str = "AAA.csv", **options: object) -> Path:
    file = folder / name
    table.to_csv(file, index=False, **options)  # type: ignore[call-overload]
    return file


def same(bars: Bars, table: pd.DataFrame) -> bool:
    return bars.fingerprint() == Bars.from_frame(table, calendar=bars.calendar).fingerprint()


def test_the_file_name_is_the_symbol(tmp_path: Path) -> None:
    table = bar_table()
    file = write(tmp_path, table.drop(columns="symbol"))
    assert same(CsvSource(path=str(file)).load(), table)
    named = CsvSource(path=str(file), symbol="BBB").load()
    assert named.symbols == ("BBB",)


@pytest.mark.parametrize(
    "titles",
    [
        ["Date", "Open", "High", "Low", "Close", "Volume"],
        ["DATETIME", "OPEN", "HIGH", "LOW", "CLOSE", "VOL"],
        ["Gmt time", "Open", "High", "Low", "Close", "Volume "],
        ["open_time", "open", "high", "low", "close", "volume"],
        ["timestamp", "1. open", "2. high", "3. low", "4. close", "5. volume"],
        ["Timestamp", "o", "h", "l", "c", "v"],
        ["time", "<OPEN>", "<HIGH>", "<LOW>", "<CLOSE>", "<TICKVOL>"],
    ],
)
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_usual_names_and_delimiters(tmp_path: Path, titles: list[str], delimiter: str) -> None:
    table = bar_table()
    file = write(tmp_path, table.drop(columns="symbol").set_axis(titles, axis=1), sep=delimiter)
    assert same(CsvSource(path=str(file)).load(), table)


def test_columns_in_any_order_and_further_columns_are_left_alone(tmp_path: Path) -> None:
    table = bar_table()
    mixed = table.drop(columns="symbol").assign(trades=3, note="x").iloc[:, ::-1]
    assert same(CsvSource(path=str(write(tmp_path, mixed))).load(), table)


def test_date_and_time_in_two_columns(tmp_path: Path) -> None:
    table = bar_table(60)
    split = table.drop(columns=["symbol", "time"])
    split.insert(0, "<DATE>", table["time"].dt.strftime("%Y.%m.%d"))
    split.insert(1, "<TIME>", table["time"].dt.strftime("%H:%M:%S"))
    assert same(CsvSource(path=str(write(tmp_path, split))).load(), table)


def test_unusual_names_are_named_in_the_config(tmp_path: Path) -> None:
    table = bar_table()
    odd = table.drop(columns="symbol").rename(columns={"close": "PX_LAST", "time": "when"})
    file = write(tmp_path, odd)
    with pytest.raises(
        DataError, match=r"no column for time, close; the first line has 'when'.*columns"
    ):
        CsvSource(path=str(file)).load()
    assert same(
        CsvSource(path=str(file), columns={"close": "PX_LAST", "time": "when"}).load(), table
    )
    with pytest.raises(DataError, match="no column for close"):
        CsvSource(path=str(file), columns={"close": "PX", "time": "when"}).load()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"columns": {"closing": "PX"}}, "columns: must name some of symbol, time.*had closing"),
        ({"columns": {"volume": "V"}, "volume": False}, "columns: names a column for volume"),
        ({"columns": {"symbol": "S"}, "symbol": "AAA"}, "columns: names a column for symbol"),
        (
            {"repair": Repair(splits="apply"), "checks": DataChecks(splits="real")},
            'repair.splits: has no effect with checks.splits "real"',
        ),
        (
            {"repair": Repair(gaps="fill"), "checks": DataChecks(gaps="allow")},
            'checks.gaps: has no effect with repair.gaps "fill"',
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        CsvSource(path="x", **settings)


def test_a_path_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path, bar_table())
    assert (
        CsvSource(path="~/AAA.csv").load().n_bars == CsvSource(path="~/*.csv").load().n_bars == 50
    )


def test_two_columns_for_one_thing_are_refused(tmp_path: Path) -> None:
    table = bar_table().drop(columns="symbol").assign(Vol=1.0)
    file = write(tmp_path, table)
    with pytest.raises(DataError, match="'volume', 'Vol' could all be volume. Name the right one"):
        CsvSource(path=str(file)).load()
    assert CsvSource(path=str(file), columns={"volume": "Vol"}).load().volume[0] == 1.0


def test_optional_columns_are_read(tmp_path: Path) -> None:
    table = bar_table().assign(
        adjusted_close=lambda t: t["close"] * 0.9, bid=1.0, ask=1.1, funding=0.01, no_trade=False
    )
    table.loc[2, "no_trade"] = True
    titles = {"adjusted_close": "Adj Close", "funding": "Funding Rate", "no_trade": "No trade"}
    bars = CsvSource(path=str(write(tmp_path, table.rename(columns=titles)))).load()
    assert same(bars, table)
    assert bars.no_trade is not None
    assert bars.no_trade.sum() == 1


def test_a_file_without_volume_needs_a_word(tmp_path: Path) -> None:
    table = bar_table().drop(columns="volume")
    file = write(tmp_path, table)
    with pytest.raises(DataError, match="no column for volume.*set volume to false"):
        CsvSource(path=str(file)).load()
    assert CsvSource(path=str(file), volume=False).load().volume.sum() == 0.0
    with pytest.raises(DataError, match="volume is set to false, but the file has one"):
        CsvSource(path=str(write(tmp_path, bar_table())), volume=False).load()


def test_a_symbol_column_holds_many_symbols(tmp_path: Path) -> None:
    table = pd.concat([bar_table(20), bar_table(30, "BBB", seed=1)])
    file = write(tmp_path, table.rename(columns={"symbol": "Ticker"}))
    assert same(CsvSource(path=str(file)).load(), table)
    with pytest.raises(DataError, match="symbol is set, but the file has a symbol column"):
        CsvSource(path=str(file), symbol="AAA").load()


def test_a_folder_or_a_pattern_holds_one_symbol_per_file(tmp_path: Path) -> None:
    tables = [bar_table(20, name, seed=n) for n, name in enumerate(("AAA", "BBB", "CCC"))]
    for table in reversed(tables):
        write(tmp_path, table.drop(columns="symbol"), f"{table['symbol'].iloc[0]}.csv")
    (tmp_path / "readme.md").write_text("not bars")
    assert same(CsvSource(path=str(tmp_path)).load(), pd.concat(tables))
    assert same(CsvSource(path=str(tmp_path / "[AB]*.csv")).load(), pd.concat(tables[:2]))
    with pytest.raises(DataError, match="symbol 'X' is given for 3 files"):
        CsvSource(path=str(tmp_path), symbol="X").load()
    with pytest.raises(DataError, match="names no file; allowed: a file, a folder"):
        CsvSource(path=str(tmp_path / "nothing")).load()


def test_a_gzip_file_is_unpacked_and_a_damaged_one_refused(tmp_path: Path) -> None:
    table = bar_table()
    packed = gzip.compress(table.drop(columns="symbol").to_csv(index=False).encode())
    (tmp_path / "AAA.csv.gz").write_bytes(packed)
    assert same(CsvSource(path=str(tmp_path)).load(), table)
    for damaged in (packed[:-20], packed[:10] + b"\xff" * 9 + packed[19:]):
        (tmp_path / "AAA.csv.gz").write_bytes(damaged)
        with pytest.raises(DataError, match="damaged as a gzip file"):
            CsvSource(path=str(tmp_path)).load()


def test_decimal_commas_need_a_word(tmp_path: Path) -> None:
    table = bar_table().round({"open": 4, "high": 4, "low": 4, "close": 4, "volume": 4})
    file = write(tmp_path, table, sep=";", decimal=",")
    with pytest.raises(DataError, match=r"column 'open' must hold numbers.*set decimal to"):
        CsvSource(path=str(file)).load()
    assert same(CsvSource(path=str(file), decimal=",").load(), table)
    with pytest.raises(ConfigError, match="decimal: must differ from the delimiter"):
        CsvSource(path=str(file), decimal=",", delimiter=",")


def test_lines_before_the_header_are_skipped_when_told(tmp_path: Path) -> None:
    file = write(tmp_path, bar_table())
    file.write_text("https://example.org\n" + file.read_text())
    with pytest.raises(DataError, match="no delimiter among.*set skip_lines"):
        CsvSource(path=str(file)).load()
    assert same(CsvSource(path=str(file), skip_lines=1).load(), bar_table())


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_file_cut_off_inside_its_last_line_is_refused(tmp_path: Path, cut: int) -> None:
    file = write(tmp_path, bar_table(10))
    whole = file.read_bytes()
    last = whole.rstrip(b"\n").rsplit(b"\n", 1)[1]
    assert cut < len(last)
    file.write_bytes(whole[: -1 - cut])
    with pytest.raises(DataError, match="does not end, so it may be cut off|fields"):
        CsvSource(path=str(file)).load()


def test_a_whole_file_without_a_last_line_break_needs_a_word(tmp_path: Path) -> None:
    file = write(tmp_path, bar_table())
    file.write_bytes(file.read_bytes().rstrip(b"\n"))
    with pytest.raises(DataError, match='set final_newline to "optional" if it is whole'):
        CsvSource(path=str(file)).load()
    assert same(CsvSource(path=str(file), final_newline="optional").load(), bar_table())


@pytest.mark.parametrize("ending", ["\r\n", "\r"])
def test_other_line_endings_a_byte_order_mark_and_blank_lines(tmp_path: Path, ending: str) -> None:
    file = write(tmp_path, bar_table())
    lines = file.read_text().splitlines()
    text = ending.join([*lines[:3], "", *lines[3:], ""])
    file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert same(CsvSource(path=str(file)).load(), bar_table())


@pytest.mark.parametrize("blank", ["\n", "  \n", "\n\t\n"])
def test_blank_lines_before_the_header_alone(tmp_path: Path, blank: str) -> None:
    file = write(tmp_path, bar_table())
    file.write_text(blank + file.read_text())
    assert same(CsvSource(path=str(file)).load(), bar_table())


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    table = bar_table()
    file = write(tmp_path, table.drop(columns="symbol").rename(columns={"time": "when"}))
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert same(CsvSource(path=str(file), columns={"time": "when"}).load(), table)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"time,open,high,low,close,volume\n", "holds no bar, only a header"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "must be UTF-8 text; byte 0 is 0x89"),
        ("time,open,high,low,close,volume\n".encode("utf-16"), "must be UTF-8 text"),
        (b"time,open,high,low,close,volume\n\x00\n", "holds a NUL byte"),
        (b"time open high low close volume\n", "no delimiter among"),
        (
            b"time,open,high,low,close,volume\n2024-01-01,1,1,1,1,1\n2024-01-02,1,1,1,1\n",
            "every row must have 6 fields",
        ),
        (
            b"time,open,high,low,close,volume\n2024-01-01,1,1,1,1,1\n2024-01-02,1,1,1,1,1,1\n",
            "every row must have 6 fields",
        ),
        (
            b'time,open,high,low,close,volume\n2024-01-01,1,1,1,1,"1\n2024-01-02,1,1,1,1,1"\n',
            "fields|a quote is open",
        ),
        (
            b"time,open,high,low,close,volume\n2024-01-01,1,1,1,1,1\n2024-01-02,1,1,1,one,1\n",
            r"column 'close' must hold numbers; 1 do not, first in row 2 \('one'\)",
        ),
        (
            b"time,open,high,low,close,volume\n2024-01-01,1,1,1,1,1\n2024-01-02,1,1,1,,1\n",
            r"1 value\(s\) of close.*first was nan.*first at 2024-01-02",
        ),
    ],
)
def test_what_is_no_table_of_bars_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "AAA.csv"
    file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        CsvSource(path=str(file)).load()


def test_settings_reach_the_bars(tmp_path: Path) -> None:
    days = bar_table(31, freq="1D")
    table = days[np.is_busday(days["time"].to_numpy("datetime64[D]"))]
    file = write(tmp_path, table.iloc[[1, 0, *range(2, len(table))]])
    source = CsvSource(path=str(file), interval="1d", calendar=Weekdays(), repair=Repair(sort=True))
    bars = source.load()
    assert bars.n_bars == len(table)
    assert bars.repairs[0].action == "sorted by time"
    with pytest.raises(ConfigError, match="interval: must be a number and s, m, h, d or w"):
        CsvSource(path="x", interval="1 day")
    with pytest.raises(ConfigError, match="timezone: must be a name"):
        CsvSource(path="x", timezone="Mars")


@config
class OneSource:
    source: SourceConfig = SyntheticSource()


@pytest.mark.parametrize(
    "text",
    [
        "source: {kind: csv, path: a.csv, calendar: {kind: weekdays}, columns: {close: PX}}",
        "source: {kind: parquet, path: a, interval: 15m, repair: {gaps: fill}}",
        "source: {kind: feather, path: a, checks: {real_moves: ['AAPL@2000-09-29']}}",
        "source: {kind: ccxt, exchange: okx, symbols: [A/B], start: 2024-01-01, stop: 2025-01-01}",
        "source: {kind: yfinance, symbols: [MSFT], start: 2024-01-01, stop: 2024-02-01}",
        "source: {kind: synthetic, law: {kind: garch, alpha: 0.05}, bars: 100}",
        "source: {kind: stocks_demo}",
        "source: {kind: eurusd_demo}",
    ],
)
def test_every_source_is_read_from_text_and_written_back(text: str) -> None:
    read = parse_config(OneSource, text)
    assert parse_config(OneSource, write_config(read)) == read


@pytest.mark.parametrize("path", ["a**b", "~nosuch-user-here/x", "x" * 5000, "a\0b*"])
def test_a_path_that_cannot_be_looked_up_is_refused(path: str) -> None:
    with pytest.raises(DataError, match=r"path '.* (cannot be looked up|names no file)"):
        CsvSource(path=path).load()


def test_a_spread_in_units_of_price_is_divided_by_it(tmp_path: Path) -> None:
    table = bar_table(20).drop(columns="symbol")
    path = str(write(tmp_path, table.assign(spread=0.3 * table["close"])))
    with pytest.raises(DataError, match=r'spread.*fraction of the price.*spread_unit to "price"'):
        CsvSource(path=path).load()
    spread = CsvSource(path=path, spread_unit="price").load().spread
    assert spread == pytest.approx(np.full(20, 0.3))
    path = str(write(tmp_path, table.assign(spread=0.3)))
    with pytest.raises(DataError, match=r'half of them exceed .*spread_unit to "price"'):
        CsvSource(path=path).load()
    without = str(write(tmp_path, table))
    with pytest.raises(DataError, match='spread_unit "price" has no effect without a spread'):
        CsvSource(path=without, spread_unit="price").load()
