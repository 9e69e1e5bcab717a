import sys

import numpy as np
import pandas as pd
import pytest

from quantail.errors import ConfigError, DataError
from quantail.market.calendars import AlwaysOpen, CalendarConfig, ExchangeSessions, Weekdays
from quantail.types import TimeArray

HOUR = np.timedelta64(1, "h")
DAY = np.timedelta64(1, "D")
NEW_YORK = ExchangeSessions(exchange="XNYS")


def times(*texts: str) -> TimeArray:
    return np.array(texts, dtype="datetime64[ns]")


def grid(start: str, stop: str, freq: str, zone: str = "UTC") -> TimeArray:
    index = pd.date_range(start, stop, freq=freq, tz=zone, inclusive="left")
    return index.tz_convert("UTC").tz_localize(None).to_numpy("datetime64[ns]")


def clean(calendar: CalendarConfig, time: TimeArray, interval: np.timedelta64) -> bool:
    audit = calendar.audit(time, interval)
    return not (len(audit.missing) or len(audit.closed) or len(audit.off_grid))


def test_always_open_misses_every_absent_bar() -> None:
    time = grid("2024-01-05", "2024-01-09", "1h")
    assert clean(AlwaysOpen(), time, HOUR)
    audit = AlwaysOpen().audit(np.delete(time, [3, 4, 40]), HOUR)
    assert np.array_equal(audit.missing, time[[3, 4, 40]])


def test_a_closure_explains_a_hole_and_forbids_bars() -> None:
    time = grid("2024-01-05", "2024-01-06", "1h")
    calendar = AlwaysOpen(closures=("2024-01-05T03:00/2024-01-05T06:30",))
    # 03, 04, 05 are closed throughout; 06 is closed in part and may be there or not.
    assert clean(calendar, np.delete(time, [3, 4, 5]), HOUR)
    assert clean(calendar, np.delete(time, [3, 4, 5, 6]), HOUR)
    assert np.array_equal(calendar.audit(time, HOUR).closed, time[3:6])
    assert calendar.audit(np.delete(time, [3, 4, 5, 7]), HOUR).missing.tolist() == [time[7].item()]


def test_weekdays_know_the_weekend() -> None:
    days = grid("2024-01-01", "2024-02-01", "1D")
    weekdays = days[np.is_busday(days.astype("datetime64[D]"))]
    assert clean(Weekdays(), weekdays, DAY)
    assert np.array_equal(Weekdays().audit(np.delete(weekdays, 5), DAY).missing, weekdays[[5]])
    saturday = times("2024-01-06")
    assert np.array_equal(Weekdays().audit(np.union1d(weekdays, saturday), DAY).closed, saturday)


def test_foreign_exchange_week_follows_new_york_through_both_clock_changes() -> None:
    forex = Weekdays(timezone="America/New_York", eve_hours=7)
    local = pd.date_range("2023-02-01", "2023-12-01", freq="1h", tz="UTC").tz_convert(
        "America/New_York"
    )
    minutes = local.day_of_week * 24 + local.hour
    # Monday is 0: open from Sunday 17:00 (161) to Friday 17:00 (113), New York time.
    is_open = (minutes >= 6 * 24 + 17) | (minutes < 4 * 24 + 17)
    time = local[is_open].tz_convert("UTC").tz_localize(None).to_numpy("datetime64[ns]")
    assert clean(forex, time, HOUR)
    assert not clean(Weekdays(timezone="Europe/London", eve_hours=2), time, HOUR)
    assert np.array_equal(forex.audit(np.delete(time, 999), HOUR).missing, time[[999]])


def test_a_zone_without_effect_on_daily_bars_is_refused() -> None:
    days = times("2024-01-01", "2024-01-02")
    for calendar in (Weekdays(timezone="Europe/Berlin"), Weekdays(eve_hours=7)):
        with pytest.raises(DataError, match="have no effect on bars of a day or longer"):
            calendar.audit(days, DAY)


def test_exchange_sessions_know_holidays_for_daily_bars() -> None:
    # Christmas 2023 was a Monday, New Year's Day 2024 too.
    expected = times(
        "2023-12-21",
        "2023-12-22",
        "2023-12-26",
        "2023-12-27",
        "2023-12-28",
        "2023-12-29",
        "2024-01-02",
    )
    assert clean(NEW_YORK, expected, DAY)
    assert np.array_equal(NEW_YORK.audit(np.delete(expected, 2), DAY).missing, expected[[2]])
    christmas = times("2023-12-25")
    assert np.array_equal(NEW_YORK.audit(np.union1d(expected, christmas), DAY).closed, christmas)


def test_exchange_sessions_know_half_days_for_shorter_bars() -> None:
    # 2023-11-24, the day after Thanksgiving, closes at 13:00 in New York; bars start at 9:30.
    full = grid("2023-11-22 09:30", "2023-11-22 16:00", "30min", "America/New_York")
    half = grid("2023-11-24 09:30", "2023-11-24 13:00", "30min", "America/New_York")
    next_day = grid("2023-11-27 09:30", "2023-11-27 16:00", "30min", "America/New_York")
    time = np.concatenate([full, half, next_day])
    half_hour = np.timedelta64(30, "m")
    assert clean(NEW_YORK, time, half_hour)
    assert np.array_equal(NEW_YORK.audit(np.delete(time, 15), half_hour).missing, time[[15]])
    late = half[-1:] + half_hour
    assert np.array_equal(NEW_YORK.audit(np.union1d(time, late), half_hour).closed, late)
    odd = time[[3]] + np.timedelta64(7, "m")
    assert np.array_equal(NEW_YORK.audit(np.union1d(time, odd), half_hour).off_grid, odd)


def test_exchange_closures_add_to_the_sessions() -> None:
    week = times("2023-12-26", "2023-12-28", "2023-12-29")
    assert not clean(NEW_YORK, week, DAY)
    halted = ExchangeSessions(exchange="XNYS", closures=("2023-12-27/2023-12-28",))
    assert clean(halted, week, DAY)


def test_weekly_bars_need_only_follow_in_weeks() -> None:
    weeks = grid("2024-01-01", "2024-03-01", "7D")
    for calendar in (AlwaysOpen(), Weekdays(), NEW_YORK):
        assert clean(calendar, weeks, 7 * DAY)
        assert len(calendar.audit(np.delete(weeks, 3), 7 * DAY).missing) == 1


def test_a_missing_extra_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "exchange_calendars", None)
    with pytest.raises(
        DataError, match=r"exchange_calendars, which is not installed.*quantail\[calendars\]"
    ):
        NEW_YORK.audit(times("2024-01-02", "2024-01-03"), DAY)


def test_an_unknown_exchange_is_refused() -> None:
    with pytest.raises(DataError, match="must be a name that exchange_calendars knows.*was 'XXXX'"):
        ExchangeSessions(exchange="XXXX").audit(times("2024-01-02", "2024-01-03"), DAY)


def test_a_span_outside_the_calendar_is_refused() -> None:
    with pytest.raises(DataError, match="calendar 'XKRX' does not cover 1900"):
        ExchangeSessions(exchange="XKRX").audit(times("1900-01-10", "1900-01-11"), DAY)


@pytest.mark.parametrize(
    "text", ["2024-01-01", "2024-01-02/2024-01-01", "a/b", "/", "2024-01-01/2024-01-01"]
)
def test_closures_must_be_intervals(text: str) -> None:
    with pytest.raises(ConfigError, match="closures: must read start/stop in UTC"):
        AlwaysOpen(closures=(text,))


def test_an_unknown_time_zone_is_refused() -> None:
    with pytest.raises(ConfigError, match="timezone: must be a name of the time zone database"):
        Weekdays(timezone="New York")


def test_bars_that_are_open_in_part_may_be_there_or_not() -> None:
    forex = Weekdays(timezone="America/New_York", eve_hours=7)
    # In January the week ends on Friday at 22:00 UTC, inside the bar of 20:00, and begins on Sunday
    # at 22:00, inside another one.
    friday = grid("2024-01-12", "2024-01-12 20:00", "4h")
    monday = grid("2024-01-15", "2024-01-15 12:00", "4h")
    edges = times("2024-01-12T20:00", "2024-01-14T20:00")
    without = np.concatenate([friday, monday])
    assert clean(forex, without, 4 * HOUR)
    assert clean(forex, np.union1d(without, edges), 4 * HOUR)
    assert forex.audit(
        np.union1d(without, times("2024-01-13T20:00")), 4 * HOUR
    ).closed.tolist() == [times("2024-01-13T20:00")[0].item()]
