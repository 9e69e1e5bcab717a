"""Bars of stocks and funds from Yahoo through yfinance, one cached file per symbol and span.

Yahoo restates adjusted closes with every dividend, so a span is never stitched together from
downloads of different days: the cache knows whole spans only.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
from annotated_types import Ge, MinLen

from quantail.config_class import config
from quantail.errors import DataError
from quantail.market.bars import Bars
from quantail.market.calendars import CalendarConfig, ExchangeSessions
from quantail.market.sources.download import (
    check_request,
    folder_name,
    optional_package,
    read_cache,
    with_patience,
    write_cache,
)
from quantail.market.sources.table import TableRules, parse_interval, to_bars

_COLUMNS: Final = {
    "Open": "open",
    "High": "high",
    "Low": "low",
    "Close": "close",
    "Adj Close": "adjusted_close",
    "Volume": "volume",
}


@config
class YFinanceSource(TableRules):
    """Bars from Yahoo (needs the extra ``data``), adjusted for splits but not for dividends."""

    kind: Literal["yfinance"] = "yfinance"
    symbols: Annotated[tuple[str, ...], MinLen(1)]
    """Tickers as Yahoo writes them: MSFT, ^GSPC, EURUSD=X."""
    interval: Literal["1m", "2m", "5m", "15m", "30m", "1h", "90m", "1d"] = "1d"
    """Length of a bar; Yahoo keeps bars of less than a day for some weeks only."""
    start: str
    """First day, ISO 8601."""
    stop: str
    """Day before which bars open, ISO 8601; given, so that runs can be repeated."""
    calendar: CalendarConfig = ExchangeSessions(exchange="XNYS")
    """When the market is open; New York by default."""
    pause_seconds: Annotated[float, Ge(0)] = 0.5
    """Pause between symbols, for the sake of Yahoo's limit."""
    retries: Annotated[int, Ge(0)] = 6
    """Further tries after a network failure or a full rate limit, with growing waits."""
    base_url: str | None = None
    """Another address instead of Yahoo's, such as a proxy; paths stay as they are."""

    def check(self) -> None:
        """Refuse instants and addresses that cannot be read, and an empty span."""
        TableRules.check(self)
        check_request(self.start, self.stop, self.symbols, self.base_url)

    def load(self, cache: Path, sleep: Callable[[float], None] = time.sleep) -> Bars:
        """Fetch the symbols that the cache does not hold yet, then read all of them.

        Args:
            cache: Folder of the downloads.
            sleep: How to wait between symbols and tries.
        """
        folder = cache / "yfinance"
        span = folder_name(f"{self.interval}_{self.start}_{self.stop}")
        frames = []
        fetched = 0
        for symbol in self.symbols:
            file = folder / folder_name(symbol) / f"{span}.parquet"
            if not file.exists():
                if fetched:
                    sleep(self.pause_seconds)
                fetched += 1
                write_cache(file, _fetch(self, symbol, folder, sleep))
            frames.append(read_cache(file).assign(symbol=symbol))
        return to_bars(pd.concat(frames, ignore_index=True), self)


def _fetch(
    source: YFinanceSource, symbol: str, folder: Path, sleep: Callable[[float], None]
) -> pd.DataFrame:
    library = optional_package("yfinance")
    errors = library.exceptions
    folder.mkdir(parents=True, exist_ok=True)
    library.set_tz_cache_location(str(folder / "zones"))
    session = None if source.base_url is None else _moved_session(source.base_url)
    what = f"yfinance {symbol}"

    def history() -> pd.DataFrame:
        # yfinance keeps failed answers too and would return them to every further try.
        library.data.YfData.cache_get.cache_clear()
        ticker = library.Ticker(symbol, session=session)
        table: pd.DataFrame = ticker.history(
            start=source.start, end=source.stop, interval=source.interval, auto_adjust=False,
            actions=False, keepna=True,
        )  # fmt: skip
        return table

    with _raising(library):
        try:
            # Network failures of both HTTP libraries that yfinance may use are OSErrors.
            frame = with_patience(
                history,
                (errors.YFRateLimitError, OSError),
                what=what,
                retries=source.retries,
                sleep=sleep,
            )
        except errors.YFException as error:
            raise DataError(
                f"{what}: refused with {type(error).__name__}: {error}. Check ticker and span."
            ) from error
    return frame_from_history(frame, symbol, source.interval)


def frame_from_history(history: pd.DataFrame, symbol: str, interval: str) -> pd.DataFrame:
    """Turn yfinance's table into ours.

    Args:
        history: Open, High, Low, Close, Adj Close, Volume, indexed by time with a zone.
        symbol: For messages.
        interval: Daily bars are labeled with their local date, shorter ones with their instant.
    """
    absent = [name for name in _COLUMNS if name not in history]
    if absent or history.empty or not isinstance(history.index, pd.DatetimeIndex):
        raise DataError(
            f"yfinance {symbol}: the answer holds {len(history)} rows and lacks {absent}. Check "
            "ticker and span; Yahoo keeps bars of less than a day for some weeks only."
        )
    index = history.index
    if parse_interval(interval) >= np.timedelta64(1, "D"):
        time = index.tz_localize(None).normalize().tz_localize("UTC")
    elif index.tz is None:
        raise DataError(f"yfinance {symbol}: bars of {interval} carry no time zone. Try later.")
    else:
        time = index.tz_convert("UTC")
    frame = history[list(_COLUMNS)].rename(columns=_COLUMNS).astype("float64")
    return frame.assign(time=time).reset_index(drop=True)


@contextmanager
def _raising(library: Any) -> Iterator[None]:
    """Let yfinance raise what it would otherwise log and turn into an empty table."""
    debug = library.config.debug
    before = debug.hide_exceptions
    debug.hide_exceptions = False
    try:
        yield
    finally:
        debug.hide_exceptions = before


def _moved_session(base: str) -> Any:
    """Return a session that sends every request to another host, with the same path."""
    requests = optional_package("requests")

    class MovedSession(requests.Session):  # type: ignore[misc, name-defined]
        def request(self, method: str, url: str, *args: Any, **kwargs: Any) -> Any:
            return super().request(
                method, f"{base.rstrip('/')}{urlsplit(url).path}", *args, **kwargs
            )

    return MovedSession()
