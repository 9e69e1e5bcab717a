"""Bars of a crypto exchange through ccxt, page by page, each page cached once it is whole."""

import difflib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import numpy as np
import pandas as pd
from annotated_types import Ge, MinLen

from quantail.config_class import config
from quantail.errors import DataError
from quantail.market.bars import Bars
from quantail.market.sources.download import (
    check_request,
    folder_name,
    optional_package,
    read_cache,
    with_patience,
    write_cache,
)
from quantail.market.sources.table import TableRules, parse_instant, parse_interval, to_bars

_COLUMNS = ("time", "open", "high", "low", "close", "volume")


@config
class CcxtSource(TableRules):
    """OHLCV bars of any exchange that ccxt knows (needs the extra ``data``)."""

    kind: Literal["ccxt"] = "ccxt"
    exchange: str
    """Name in ccxt: binance, kraken, coinbase, ..."""
    symbols: Annotated[tuple[str, ...], MinLen(1)]
    """Pairs as ccxt writes them: BTC/USDT, or BTC/USDT:USDT for a perpetual."""
    interval: str = "1h"
    """Length of a bar, one that the exchange offers."""
    start: str
    """First instant, ISO 8601, in UTC."""
    stop: str
    """Instant before which bars open, ISO 8601, in UTC; given, so that runs can be repeated."""
    page: Annotated[int, Ge(1)] = 1000
    """Bars asked for in one request; exchanges may send fewer."""
    pause_seconds: Annotated[float, Ge(0)] = 0.0
    """Pause before each request, on top of the limit that ccxt knows of the exchange."""
    retries: Annotated[int, Ge(0)] = 6
    """Further tries after a network failure or a full rate limit, with growing waits."""
    base_url: str | None = None
    """Another address of the exchange's interface, such as a proxy; paths stay as they are."""

    def check(self) -> None:
        """Refuse instants and addresses that cannot be read, and an empty span."""
        TableRules.check(self)
        check_request(self.start, self.stop, self.symbols, self.base_url)

    def load(self, cache: Path, sleep: Callable[[float], None] = time.sleep) -> Bars:
        """Fetch what the cache does not hold yet, then read all of it.

        Args:
            cache: Folder of the downloads.
            sleep: How to wait between tries.
        """
        connection = _Connection(self, sleep)
        frames = []
        for symbol in self.symbols:
            folder = cache / "ccxt" / self.exchange / folder_name(symbol) / self.interval
            frames.append(_fetch_symbol(connection, symbol, folder).assign(symbol=symbol))
        return to_bars(pd.concat(frames, ignore_index=True), self)


class _Connection:
    """Opens the exchange on first use, so that a complete cache needs no network and no ccxt."""

    def __init__(self, source: CcxtSource, sleep: Callable[[float], None]) -> None:
        self.source = source
        self.step = int(parse_interval(source.interval) / np.timedelta64(1, "ms"))
        self._sleep = sleep
        self._client: Any = None

    def now(self) -> int:
        """Return the time in epoch milliseconds."""
        return int(self._open().milliseconds())

    def fetch(self, symbol: str, since: int) -> pd.DataFrame:
        """Fetch one page of closed bars from ``since`` on, times as epoch milliseconds."""
        source, client, library = self.source, self._open(), optional_package("ccxt")
        what = f"{source.exchange} {symbol} from {pd.Timestamp(since, unit='ms')}"
        if source.pause_seconds:
            self._sleep(source.pause_seconds)
        try:
            rows = with_patience(
                lambda: client.fetch_ohlcv(symbol, source.interval, since=since, limit=source.page),
                (library.NetworkError,),
                what=what,
                retries=source.retries,
                sleep=self._sleep,
            )
        except library.BaseError as error:
            raise DataError(
                f"{what}: refused by the exchange with {type(error).__name__}: {error}. Check "
                "symbol, interval and span."
            ) from error
        if not all(len(row) == len(_COLUMNS) for row in rows):
            raise DataError(f"{what}: a row did not have {len(_COLUMNS)} values. Try again later.")
        page = pd.DataFrame(rows, columns=list(_COLUMNS)).astype("float64")
        page["time"] = page["time"].astype("int64")
        # The last bar may still be forming; it would change under a cached name.
        closed = page["time"] + self.step <= self.now()
        return page.loc[closed & (page["time"] >= since)]

    def _open(self) -> Any:
        if self._client is None:
            self._client = _open_exchange(optional_package("ccxt"), self.source)
        return self._client


def _open_exchange(library: Any, source: CcxtSource) -> Any:
    if source.exchange not in library.exchanges:
        near = difflib.get_close_matches(source.exchange, library.exchanges, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "see ccxt.exchanges for the list."
        raise DataError(f"exchange must be a name that ccxt knows; was {source.exchange!r}; {hint}")
    client = getattr(library, source.exchange)({"enableRateLimit": True})
    if source.base_url is not None:
        client.urls["api"] = _moved(client.urls["api"], source.base_url)
    if source.interval not in (client.timeframes or {}):
        offered = ", ".join(client.timeframes or {}) or "none"
        raise DataError(
            f"interval must be one that {source.exchange} offers ({offered}); was "
            f"{source.interval!r}."
        )
    return client


def _moved(urls: Any, base: str) -> Any:
    """Put another scheme and host in front of every path."""
    if isinstance(urls, dict):
        return {key: _moved(value, base) for key, value in urls.items()}
    return f"{base.rstrip('/')}{urlsplit(urls).path}" if isinstance(urls, str) else urls


def _fetch_symbol(connection: _Connection, symbol: str, folder: Path) -> pd.DataFrame:
    """Return the bars of one symbol in [start, stop), each page from the cache or the exchange."""
    source, step = connection.source, connection.step
    start, stop = (_milliseconds(text) for text in (source.start, source.stop))
    parts = _cached_parts(folder)
    pages = []
    since = start
    while since < stop:
        known = [part for part in parts if part[0] <= since < part[1]]
        if known:
            _, following, file = known[0]
            page = read_cache(file)
        elif since + step > connection.now():
            break
        else:
            page = connection.fetch(symbol, since)
            # An empty answer means no trade in this stretch; later stretches may have bars.
            following = int(page["time"].max()) + step if len(page) else since + source.page * step
            if len(page):
                write_cache(folder / f"{since:015d}-{following:015d}.parquet", page)
        pages.append(page[(page["time"] >= since) & (page["time"] < stop)])
        since = following
    filled = [page for page in pages if len(page)]
    if not filled:
        raise DataError(
            f"{source.exchange} has no bars of {symbol} from {source.start} to {source.stop}. "
            "Choose another span or symbol."
        )
    frame = pd.concat(filled, ignore_index=True)
    return frame.assign(time=pd.to_datetime(frame["time"], unit="ms", utc=True))


def _cached_parts(folder: Path) -> list[tuple[int, int, Path]]:
    """Return first instant, instant after the last and file of each cached page, by time."""
    files = sorted(folder.glob("*.parquet"))
    bounds = [[int(part) for part in file.stem.split("-")] for file in files]
    return [(first, after, file) for (first, after), file in zip(bounds, files, strict=True)]


def _milliseconds(text: str) -> int:
    return int(parse_instant(text, "start").astype("datetime64[ms]").astype("int64"))
