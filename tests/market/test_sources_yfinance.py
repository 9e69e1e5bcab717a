import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from quantail.errors import ConfigError, DataError
from quantail.market.bars import Bars
from quantail.market.calendars import ExchangeSessions
from quantail.market.sources import YFinanceSource, load_source
from quantail.market.sources.yfinance_download import frame_from_history
from tests.market.bar_tables import bar_table
from tests.market.exchange_server import Exchange, serving


@pytest.fixture
def exchange() -> Iterator[Exchange]:
    with serving() as running:
        yield running


def daily(symbol: str, seed: int = 0) -> pd.DataFrame:
    days = bar_table(60, symbol, "2024-01-02", "1D", seed)
    # New York was closed on Martin Luther King Day and on Washington's Birthday.
    holidays = np.array(["2024-01-15", "2024-02-19"], dtype="datetime64[D]")
    kept = days[np.is_busday(days["time"].to_numpy("datetime64[D]"), holidays=holidays)]
    whole = (kept["volume"] * 1e6).round()  # yfinance knows whole numbers of shares only
    adjusted = kept["close"] * 0.98
    return kept.assign(adjusted_close=adjusted, volume=whole).reset_index(drop=True)


def offer(exchange: Exchange, table: pd.DataFrame) -> None:
    opening = table["time"].dt.tz_localize("America/New_York") + pd.Timedelta(hours=9, minutes=30)
    chart = {name: table[name].tolist() for name in table.columns if name not in ("symbol", "time")}
    instants = [int(instant.timestamp()) for instant in opening]
    exchange.charts[table["symbol"].iloc[0]] = {"time": instants, **chart}


def source(exchange: Exchange, *symbols: str, **changes: Any) -> YFinanceSource:
    settings: dict[str, Any] = {
        "symbols": symbols,
        "start": "2024-01-01",
        "stop": "2024-04-01",
        "base_url": exchange.url,
        "pause_seconds": 0.25,
    }
    return YFinanceSource(**(settings | changes))


def test_daily_bars_come_with_local_dates_and_adjusted_closes(
    exchange: Exchange, tmp_path: Path
) -> None:
    tables = [daily("MSFT"), daily("IBM", seed=1)]
    for table in tables:
        offer(exchange, table)
    waits: list[float] = []
    bars = source(exchange, "MSFT", "IBM").load(tmp_path, sleep=waits.append)
    expected = Bars.from_frame(pd.concat(tables), calendar=ExchangeSessions(exchange="XNYS"))
    assert bars.fingerprint() == expected.fingerprint()
    assert waits == [0.25]
    asked = len(exchange.bar_requests)
    again = load_source(source(exchange, "MSFT", "IBM"), tmp_path)
    assert again.fingerprint() == bars.fingerprint()
    assert len(exchange.bar_requests) == asked


def test_a_download_goes_on_with_the_symbols_it_lacks(exchange: Exchange, tmp_path: Path) -> None:
    offer(exchange, daily("AAA"))
    with pytest.raises(DataError, match="yfinance BBB: refused with YFTzMissingError"):
        source(exchange, "AAA", "BBB").load(tmp_path, sleep=lambda _: None)
    exchange.bar_requests.clear()
    offer(exchange, daily("BBB", seed=1))
    assert source(exchange, "AAA", "BBB").load(tmp_path).symbols == ("AAA", "BBB")
    assert all(path.endswith("/BBB") for path, _, _ in exchange.bar_requests)


def test_failures_are_waited_out_with_growing_pauses(exchange: Exchange, tmp_path: Path) -> None:
    offer(exchange, daily("CCC"))
    # yfinance itself asks twice before it reports a full rate limit.
    exchange.failures.extend([429, 429, 429, 429])
    waits: list[float] = []
    bars = source(exchange, "CCC").load(tmp_path, sleep=waits.append)
    assert waits == [1.0, 2.0]
    assert bars.n_bars == len(daily("CCC"))


def test_a_provider_that_stays_away_is_told(exchange: Exchange, tmp_path: Path) -> None:
    offer(exchange, daily("DDD"))
    exchange.failures.extend([429] * 40)
    with pytest.raises(DataError, match=r"yfinance DDD: failed 3 times, last YFRateLimitError"):
        source(exchange, "DDD", retries=2).load(tmp_path, sleep=lambda _: None)


def test_a_missing_extra_names_what_to_install(
    exchange: Exchange, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yfinance", None)
    with pytest.raises(DataError, match=r"needs the package yfinance.*quantail\[data\]"):
        source(exchange, "EEE").load(tmp_path)


def history(zone: str | None) -> pd.DataFrame:
    index = pd.date_range("2024-07-01 09:30", periods=3, freq="1h", tz=zone)
    names = ["Open", "High", "Low", "Close", "Adj Close", "Volume"]
    return pd.DataFrame(1.0, index=index, columns=names)


def test_shorter_bars_keep_their_instant() -> None:
    frame = frame_from_history(history("America/New_York"), "X", "1h")
    assert frame["time"].iloc[0] == pd.Timestamp("2024-07-01 13:30", tz="UTC")
    with pytest.raises(DataError, match="bars of 1h carry no time zone"):
        frame_from_history(history(None), "X", "1h")


def test_an_answer_without_bars_is_refused() -> None:
    with pytest.raises(DataError, match=r"lacks \['Adj Close'\]"):
        frame_from_history(history("UTC").drop(columns="Adj Close"), "X", "1h")
    with pytest.raises(DataError, match="holds 0 rows"):
        frame_from_history(history("UTC").iloc[:0], "X", "1h")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stop": "2023-01-01"}, "stop: must be after start"),
        ({"base_url": "x"}, "base_url: must read http://host"),
        ({"symbols": ("A", "A")}, "symbols: must differ"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        source(Exchange(), "A", **({"base_url": None} | changes))
