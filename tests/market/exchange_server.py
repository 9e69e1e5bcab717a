"""A server on loopback that plays a crypto exchange and a stock data provider.

It answers the few addresses that a download of bars needs, counts what it was asked and when, and
can be told to fail.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

_MAX_PAGE = 1000


class Exchange:
    """What the server knows, and what it was asked."""

    def __init__(self) -> None:
        self.klines: dict[str, list[list[Any]]] = {}
        """Market id -> rows of open time in ms, open, high, low, close, volume."""
        self.charts: dict[str, dict[str, Any]] = {}
        """Ticker -> epoch seconds, open, high, low, close, adjusted close, volume."""
        self.failures: deque[int] = deque()
        """Answers to the next requests for bars: a status, or 200 to answer well."""
        self.bar_requests: list[tuple[str, dict[str, str], float]] = []
        """Path, query and clock of every request for bars."""
        self.url = ""

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        """Return status and body."""
        if path.endswith("/exchangeInfo"):
            return 200, {"symbols": self._markets() if path.startswith("/api/") else []}
        is_bars = path.endswith("/klines") or "/finance/chart/" in path
        if not is_bars:
            return 200, "crumb"
        self.bar_requests.append((path, query, time.monotonic()))
        status = self.failures.popleft() if self.failures else 200
        if status != 200:
            return status, {"code": -1003, "msg": "told to fail"}
        return self._klines(query) if path.endswith("/klines") else self._chart(path, query)

    def _markets(self) -> list[dict[str, Any]]:
        return [
            {
                "symbol": name,
                "status": "TRADING",
                "baseAsset": name.removesuffix("USDT"),
                "quoteAsset": "USDT",
                "isSpotTradingAllowed": True,
                "permissions": ["SPOT"],
                "filters": [],
            }
            for name in self.klines
        ]

    def _klines(self, query: dict[str, str]) -> tuple[int, Any]:
        since = int(query["startTime"])
        rows = [row for row in self.klines[query["symbol"]] if row[0] >= since]
        limit = min(int(query["limit"]), _MAX_PAGE)
        return 200, [
            [row[0], *(repr(value) for value in row[1:]), row[0] + 1, "0", 1, "0", "0", "0"]
            for row in rows[:limit]
        ]

    def _chart(self, path: str, query: dict[str, str]) -> tuple[int, Any]:
        ticker = path.rsplit("/", 1)[1]
        if ticker not in self.charts:
            reason = {"code": "Not Found", "description": "No data found"}
            return 404, {"chart": {"result": None, "error": reason}}
        chart = self.charts[ticker]
        first, last = int(query.get("period1", 0)), int(query.get("period2", 2**40))
        kept = [n for n, instant in enumerate(chart["time"]) if first <= instant < last]
        columns = {name: [values[n] for n in kept] for name, values in chart.items()}
        quote = {name: columns[name] for name in ("open", "high", "low", "close", "volume")}
        meta = {
            "currency": "USD",
            "symbol": ticker,
            "instrumentType": "EQUITY",
            "exchangeTimezoneName": "America/New_York",
            "timezone": "EST",
            "gmtoffset": -18000,
            "regularMarketTime": 1_700_000_000,
            "firstTradeDate": 0,
            "validRanges": ["1d", "max"],
        }
        indicators = {"quote": [quote], "adjclose": [{"adjclose": columns["adjusted_close"]}]}
        result = {"meta": meta, "timestamp": columns["time"], "indicators": indicators}
        return 200, {"chart": {"result": [result], "error": None}}


@contextmanager
def serving() -> Iterator[Exchange]:
    """Serve an exchange on a free port of 127.0.0.1."""
    exchange = Exchange()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            status, content = exchange.answer(parts.path, query)
            text = content if isinstance(content, str) else json.dumps(content)
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    exchange.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield exchange
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
