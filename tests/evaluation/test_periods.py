import numpy as np
import pytest

from quantail.evaluation.periods import periods_per_year
from quantail.market.bars import Bars
from quantail.market.calendars import AlwaysOpen, ExchangeSessions, Weekdays
from quantail.market.checks import DataChecks


def _bars(time, interval, calendar):
    n = len(time)
    price = 100.0 + np.arange(n) * 0.01
    return Bars(
        symbols=("AAA",), offsets=np.array([0, n]), time=time, open=price, high=price + 0.02,
        low=price - 0.02, close=price + 0.01, volume=np.ones(n), interval=interval,
        calendar=calendar, checks=DataChecks(),
    )  # fmt: skip


HOUR, DAY, WEEK = (np.timedelta64(1, unit) for unit in "hDW")


def _steps(start, step, count):
    return np.datetime64(start, "ns") + np.arange(count) * step


def test_around_the_clock():
    assert periods_per_year(_bars(_steps("2024-01-01", HOUR, 50), HOUR, AlwaysOpen())) == 8766.0
    assert periods_per_year(_bars(_steps("2024-01-01", DAY, 50), DAY, AlwaysOpen())) == 365.25


def test_weekdays():
    days = _steps("2024-01-01", DAY, 21)
    open_days = days[np.is_busday(days.astype("datetime64[D]"))]
    expected = 365.25 * 5 / 7
    assert periods_per_year(_bars(open_days, DAY, Weekdays())) == pytest.approx(expected)


def test_bars_longer_than_a_day_count_by_their_length():
    weeks = _steps("2024-01-01", WEEK, 20)
    assert periods_per_year(_bars(weeks, WEEK, Weekdays())) == pytest.approx(365.25 / 7)


def test_an_exchange_has_252_sessions():
    pytest.importorskip("exchange_calendars")
    calendar = ExchangeSessions(exchange="XNYS")
    days = _steps("2024-03-04", DAY, 5)
    assert periods_per_year(_bars(days, DAY, calendar)) == 252.0
    # 6.5 hours from 14:30 UTC: seven bars of an hour in each session
    opens = days + np.timedelta64(14 * 60 + 30, "m")
    hours = (opens[:, None] + np.arange(7) * HOUR).ravel()
    assert periods_per_year(_bars(hours, HOUR, calendar)) == 252.0 * 7
