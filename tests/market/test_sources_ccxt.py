import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ccxt
import numpy as np
import pandas as pd
import pytest

from quantail.errors import ConfigError, DataError
from quantail.market.bars import Bars
from quantail.market.sources import CcxtSource, load_source
from quantail.market.sources.ccxt_download import _open_exchange
from quantail.market.sources.download import folder_name, read_cache, write_cache
from tests.market.bar_tables import bar_table
from tests.market.exchange_server import Exchange, serving

HOUR = 3_600_000


@pytest.fixture
def exchange() -> Iterator[Exchange]:
    with serving() as running:
        yield running


def offer(exchange: Exchange, table: pd.DataFrame, market: str = "BTCUSDT") -> None:
    instants = table["time"].astype("datetime64[ms]").astype("int64")
    values = table[["open", "high", "low", "close", "volume"]].to_numpy()
    exchange.klines[market] = [
        [int(instant), *map(float, row)] for instant, row in zip(instants, values, strict=True)
    ]


def source(exchange: Exchange, /, **changes: Any) -> CcxtSource:
    settings: dict[str, Any] = {
        "exchange": "binance",
        "symbols": ("BTC/USDT",),
        "start": "2024-01-01",
        "stop": "2024-04-14T04:00",
        "base_url": exchange.url,
    }
    return CcxtSource(**(settings | changes))


def asked(exchange: Exchange) -> list[str]:
    return [query["startTime"] for _, query, _ in exchange.bar_requests]


TABLE = bar_table(2500, "BTC/USDT")
START = int(TABLE["time"].iloc[0].timestamp() * 1000)


def test_pages_are_fetched_once_and_then_read_from_the_cache(
    exchange: Exchange, tmp_path: Path
) -> None:
    offer(exchange, TABLE)
    bars = source(exchange).load(tmp_path)
    assert bars.fingerprint() == Bars.from_frame(TABLE).fingerprint()
    assert asked(exchange) == [str(START + n * HOUR) for n in (0, 1000, 2000)]
    again = load_source(source(exchange), tmp_path)
    assert again.fingerprint() == bars.fingerprint()
    assert len(exchange.bar_requests) == 3


def test_a_complete_cache_needs_neither_network_nor_ccxt(
    exchange: Exchange, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(exchange, TABLE)
    bars = source(exchange).load(tmp_path)
    monkeypatch.setitem(sys.modules, "ccxt", None)
    assert source(exchange, base_url=None).load(tmp_path).fingerprint() == bars.fingerprint()
    with pytest.raises(DataError, match=r"needs the package ccxt.*quantail\[data\]"):
        source(exchange, start="2023-12-31").load(tmp_path)


def test_a_download_goes_on_where_it_was_cut_off(exchange: Exchange, tmp_path: Path) -> None:
    offer(exchange, TABLE)
    exchange.failures.extend([200, 503, 503, 503])
    waits: list[float] = []
    with pytest.raises(DataError, match=r"failed 3 times.*run again later to go on from there"):
        source(exchange, retries=2).load(tmp_path, sleep=waits.append)
    assert waits == [1.0, 2.0]
    exchange.bar_requests.clear()
    bars = source(exchange).load(tmp_path)
    assert asked(exchange) == [str(START + n * HOUR) for n in (1000, 2000)]
    assert bars.fingerprint() == Bars.from_frame(TABLE).fingerprint()


def test_a_longer_span_fetches_only_what_is_new(exchange: Exchange, tmp_path: Path) -> None:
    offer(exchange, TABLE)
    source(exchange, stop="2024-01-11").load(tmp_path)
    exchange.bar_requests.clear()
    assert source(exchange).load(tmp_path).n_bars == 2500
    # The first page brought 1,000 bars already, though only 240 were asked for.
    assert asked(exchange) == [str(START + n * HOUR) for n in (1000, 2000)]
    inner = source(exchange, start="2024-01-05", stop="2024-01-06").load(tmp_path)
    assert (
        inner.fingerprint()
        == Bars.from_frame(TABLE).window("2024-01-05", "2024-01-06").fingerprint()
    )


def test_full_rate_limits_are_waited_out_with_growing_pauses(
    exchange: Exchange, tmp_path: Path
) -> None:
    offer(exchange, TABLE)
    exchange.failures.extend([429, 503, 418])
    waits: list[float] = []
    bars = source(exchange).load(tmp_path, sleep=waits.append)
    assert waits == [1.0, 2.0, 4.0]
    assert bars.n_bars == 2500


def test_requests_keep_their_distance(exchange: Exchange, tmp_path: Path) -> None:
    offer(exchange, TABLE)
    waits: list[float] = []
    source(exchange, pause_seconds=0.75, page=100).load(tmp_path, sleep=waits.append)
    clocks = [clock for _, _, clock in exchange.bar_requests]
    assert len(clocks) == 25
    # ccxt's own limit for this request is 0.4 of 50 ms, so 24 pauses take 0.48 s.
    assert clocks[-1] - clocks[0] > 0.4
    assert _open_exchange(ccxt, source(exchange)).enableRateLimit
    assert waits == [0.75] * 25


def test_a_listing_after_the_start_is_no_error(exchange: Exchange, tmp_path: Path) -> None:
    offer(exchange, TABLE.iloc[100:])
    assert source(exchange).load(tmp_path).n_bars == 2400


def test_an_empty_stretch_does_not_end_the_download(exchange: Exchange, tmp_path: Path) -> None:
    late = bar_table(20, "BTC/USDT", "2024-03-01")
    offer(exchange, late)
    known = exchange.klines["BTCUSDT"]

    def only_near(query: dict[str, str]) -> tuple[int, Any]:
        end = int(query["startTime"]) + 100 * HOUR
        rows = [row for row in known if int(query["startTime"]) <= row[0] < end]
        return 200, [[row[0], *(repr(v) for v in row[1:])] for row in rows]

    exchange._klines = only_near  # type: ignore[method-assign]
    bars = source(exchange, page=100).load(tmp_path)
    assert bars.fingerprint() == Bars.from_frame(late).fingerprint()


def test_a_hole_in_the_exchange_is_refused_like_any_other(
    exchange: Exchange, tmp_path: Path
) -> None:
    offer(exchange, TABLE.drop(index=[7, 8]))
    with pytest.raises(DataError, match=r"BTC/USDT: 2 bar\(s\) of 1h missing"):
        source(exchange).load(tmp_path)


def test_the_bar_that_is_still_forming_is_not_kept(exchange: Exchange, tmp_path: Path) -> None:
    now = pd.Timestamp(time.time(), unit="s").floor("h")
    offer(exchange, bar_table(11, "BTC/USDT", str(now - pd.Timedelta(hours=10))))
    first = now - pd.Timedelta(hours=10)
    span = {"start": first.isoformat(), "stop": (now + pd.Timedelta(days=9)).isoformat()}
    bars = source(exchange, **span).load(tmp_path)
    # The clock may strike between the lines above, which closes one more bar.
    assert bars.n_bars - 10 in (0, 1)
    assert bars.time[-1] + np.timedelta64(1, "h") <= np.datetime64(time.time_ns(), "ns")


def test_many_symbols_are_kept_apart(exchange: Exchange, tmp_path: Path) -> None:
    other = bar_table(2500, "ETH/USDT", seed=1)
    offer(exchange, TABLE)
    offer(exchange, other, "ETHUSDT")
    bars = source(exchange, symbols=("ETH/USDT", "BTC/USDT")).load(tmp_path)
    assert bars.fingerprint() == Bars.from_frame(pd.concat([other, TABLE])).fingerprint()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"symbols": ("XXX/USDT",)}, "refused by the exchange with BadSymbol.*Check symbol"),
        (
            {"exchange": "binanc"},
            "exchange must be a name that ccxt knows; was 'binanc'; did you mean",
        ),
        ({"interval": "7h"}, r"interval must be one that binance offers \(.*1h.*\); was '7h'"),
        ({"start": "2025-01-01", "stop": "2025-01-02"}, "has no bars of BTC/USDT from 2025-01-01"),
    ],
)
def test_what_the_exchange_does_not_have_is_told(
    exchange: Exchange, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    offer(exchange, TABLE)
    with pytest.raises(DataError, match=message):
        source(exchange, **changes).load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stop": "2023-01-01"}, "stop: must be after start"),
        ({"start": "yesterday"}, "start: must be an instant in UTC"),
        ({"base_url": "127.0.0.1"}, "base_url: must read http://host"),
        ({"symbols": ("A/B", "A/B")}, "symbols: must differ"),
        ({"symbols": ()}, r"symbols: must have at least 1 item"),
        ({"page": 0}, "page: must be at least 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        source(Exchange(), **({"base_url": None} | changes))


def test_a_cache_file_is_whole_or_not_there(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "page.parquet"
    write_cache(file, TABLE)
    assert read_cache(file)["close"].tolist() == TABLE["close"].tolist()
    unwritable = pd.DataFrame({"x": [1, "two", object()]})
    with pytest.raises(Exception, match="object"):
        write_cache(file, unwritable)
    assert [entry.name for entry in file.parent.iterdir()] == ["page.parquet"]
    assert len(read_cache(file)) == len(TABLE)
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(DataError, match="the cache is damaged.*Delete this file"):
        read_cache(file)


@pytest.mark.parametrize(
    ("name", "folder"), [("BTC/USDT:USDT", "BTC-USDT-USDT"), ("..", "-"), ("a/../b", "a-..-b")]
)
def test_symbols_become_safe_folder_names(name: str, folder: str) -> None:
    assert folder_name(name) == folder
