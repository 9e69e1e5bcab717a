from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from quantail.errors import DataError
from quantail.market.bars import Bars
from quantail.market.sources import FeatherSource, ParquetSource
from tests.market.bar_tables import bar_table


def write(file: Path, table: pd.DataFrame) -> None:
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    if file.suffix == ".parquet":
        parquet.write_table(arrow, file)
    else:
        feather.write_feather(arrow, file)


KINDS = [(ParquetSource, "parquet"), (FeatherSource, "feather")]


@pytest.mark.parametrize(("source", "suffix"), KINDS)
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
def test_bars_come_back_as_written(
    tmp_path: Path, source: type[ParquetSource], suffix: str, zone: str | None
) -> None:
    table = pd.concat([bar_table(20), bar_table(30, "BBB", seed=1)])
    zoned = (
        table
        if zone is None
        else table.assign(time=table["time"].dt.tz_localize("UTC").dt.tz_convert(zone))
    )
    write(tmp_path / f"all.{suffix}", zoned)
    bars = source(path=str(tmp_path)).load()
    assert bars.fingerprint() == Bars.from_frame(table).fingerprint()


@pytest.mark.parametrize(("source", "suffix"), KINDS)
def test_one_symbol_per_file_with_epochs_and_dictionaries(
    tmp_path: Path, source: type[ParquetSource], suffix: str
) -> None:
    table = bar_table(20)
    epochs = table.assign(time=table["time"].astype("int64") // 1_000, volume=3)
    write(tmp_path / f"one.{suffix}", epochs.drop(columns="symbol"))
    assert source(path=str(tmp_path), symbol="AAA").load().symbols == ("AAA",)
    write(tmp_path / f"one.{suffix}", epochs.assign(symbol=table["symbol"].astype("category")))
    assert source(path=str(tmp_path)).load().symbols == ("AAA",)


@pytest.mark.parametrize(("source", "suffix"), KINDS)
def test_nulls_and_wrong_types_are_refused(
    tmp_path: Path, source: type[ParquetSource], suffix: str
) -> None:
    file = tmp_path / f"AAA.{suffix}"
    table = bar_table(20)
    table.loc[3, "close"] = None
    write(file, table)
    with pytest.raises(DataError, match=r"1 value\(s\) of close"):
        source(path=str(file)).load()
    write(file, bar_table(20).assign(close=pd.Timestamp("2024-01-01")))
    with pytest.raises(DataError, match="'close' must hold numbers; was timestamp"):
        source(path=str(file)).load()
    write(file, bar_table(20).assign(symbol=3))
    with pytest.raises(DataError, match="'symbol' must hold text; was int64"):
        source(path=str(file)).load()


@pytest.mark.parametrize(("source", "suffix"), KINDS)
def test_damaged_files_are_refused(
    tmp_path: Path, source: type[ParquetSource], suffix: str
) -> None:
    file = tmp_path / f"AAA.{suffix}"
    write(file, bar_table(20))
    whole = file.read_bytes()
    for content in (b"", b"no table", whole[: len(whole) // 2], whole[:-3]):
        file.write_bytes(content)
        with pytest.raises(DataError, match="cannot be read as (Parquet|Feather)"):
            source(path=str(file)).load()


def test_whole_numbers_other_than_0_and_1_are_no_flags(tmp_path: Path) -> None:
    table = bar_table(5)
    table.assign(no_trade=[0, 1, 0, 2, 1]).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"no_trade.*true, false, 1 or 0.*row 4 \('2'\)"):
        ParquetSource(path=str(tmp_path / "a.parquet")).load()
