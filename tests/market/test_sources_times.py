import numpy as np
import pyarrow as pa
import pytest

from quantail.errors import ConfigError, DataError
from quantail.market.sources import SyntheticSource
from quantail.market.sources.table import parse_instant, parse_interval
from quantail.market.sources.times import DateOrder, parse_times
from quantail.types import TimeArray


def parsed(
    values: list[object], timezone: str | None = None, order: DateOrder = "detect"
) -> TimeArray:
    return parse_times(pa.array(values), "file: column 'time'", timezone, order)


def instants(*texts: str) -> TimeArray:
    return np.array(texts, dtype="datetime64[ns]")


EXPECTED = instants("2024-01-31T22:00", "2024-02-01T23:30")


@pytest.mark.parametrize(
    "values",
    [
        ["2024-01-31 22:00", "2024-02-01 23:30"],
        ["2024-01-31T22:00:00", "2024-02-01T23:30:00"],
        ["2024-01-31T22:00:00.000Z", "2024-02-01T23:30:00.000Z"],
        ["2024-01-31T23:00:00+01:00", "2024-02-01T18:30:00-05:00"],
        ["2024-01-31 22:00:00 UTC", "2024-02-01 23:30:00 UTC"],
        ["2024/01/31 22:00", "2024/02/01 23:30"],
        ["2024.01.31 22:00", "2024.02.01 23:30"],
        ["31.01.2024 22:00:00.000", "01.02.2024 23:30:00.000"],
        ["31/01/2024 22:00", "01/02/2024 23:30"],
        ["01/31/2024 22:00", "02/01/2024 23:30"],
        ["1/31/2024 10:00 PM", "2/1/2024 11:30 PM"],
        ["31.01.2024 23:00:00.000 GMT+0100", "02.02.2024 00:30:00.000 GMT+0100"],
        ["31-Jan-2024 22:00", "01-Feb-2024 23:30"],
        ["31 Jan 2024 22:00", "01 Feb 2024 23:30"],
    ],
)
def test_usual_ways_to_write_an_instant(values: list[object]) -> None:
    assert np.array_equal(parsed(values), EXPECTED)


@pytest.mark.parametrize(
    "values",
    [
        ["2024-01-31", "2024-02-01"],
        ["31.01.2024", "01.02.2024"],
        ["01/31/2024", "02/01/2024"],
        ["20240131", "20240201"],
        [20240131, 20240201],
        ["31-Jan-2024", "01-Feb-2024"],
    ],
)
def test_usual_ways_to_write_a_date(values: list[object]) -> None:
    assert np.array_equal(parsed(values), instants("2024-01-31", "2024-02-01"))


@pytest.mark.parametrize("scale", [1, 1_000, 1_000_000, 1_000_000_000])
@pytest.mark.parametrize("text", [True, False])
def test_epochs_are_told_by_their_range(scale: int, text: bool) -> None:
    numbers = [int(instant) // 10**9 * scale for instant in EXPECTED.astype("int64")]
    assert np.array_equal(parsed([str(n) for n in numbers] if text else list(numbers)), EXPECTED)


@pytest.mark.parametrize("year", ["1974", "1990", "2001", "2033", "2200"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_epochs_of_every_decade_have_their_unit(year: str, unit: str) -> None:
    instant = np.datetime64(year, unit)
    assert parsed([int(instant.astype("int64"))])[0] == instant


def test_epochs_with_decimals_keep_their_fractions() -> None:
    assert parsed([1706738400.25, 1706738401.5])[0] == np.datetime64("2024-01-31T22:00:00.25")


def test_epochs_of_two_units_are_refused() -> None:
    with pytest.raises(DataError, match="numbers must be epochs of one unit"):
        parsed([1706738400, 1706738400000])


@pytest.mark.parametrize("values", [[1, 2, 3], [0.1, 0.2], [-5, 1706738400], ["1", "2"]])
def test_numbers_that_are_no_times_are_refused(values: list[object]) -> None:
    with pytest.raises(DataError, match="numbers must be epochs of one unit"):
        parsed(values)


def test_day_first_is_detected_from_one_telling_date() -> None:
    values: list[object] = ["01/02/2024", "02/02/2024", "13/02/2024"]
    assert np.array_equal(parsed(values), instants("2024-02-01", "2024-02-02", "2024-02-13"))
    values = ["02/01/2024", "02/02/2024", "02/13/2024"]
    assert np.array_equal(parsed(values), instants("2024-02-01", "2024-02-02", "2024-02-13"))


def test_dates_that_are_all_ambiguous_are_refused_and_the_setting_is_named() -> None:
    values: list[object] = ["01/02/2024", "02/02/2024", "03/02/2024"]
    with pytest.raises(
        DataError, match='could be day-first or month-first.*Set date_order to "day_first"'
    ):
        parsed(values)
    assert parsed(values, order="day_first")[0] == np.datetime64("2024-02-01")
    assert parsed(values, order="month_first")[0] == np.datetime64("2024-01-02")


def test_dates_that_mean_the_same_either_way_are_not_ambiguous() -> None:
    assert parsed(["01/01/2024", "02/02/2024"])[1] == np.datetime64("2024-02-02")


def test_a_date_that_fits_neither_order_names_the_row() -> None:
    with pytest.raises(
        DataError, match=r"1 of 3 times do not read.*first in row 3 \('02/13/2024'\)"
    ):
        parsed(["13/02/2024", "14/02/2024", "02/13/2024"])


def test_a_date_order_without_effect_is_refused() -> None:
    with pytest.raises(DataError, match="date_order has no effect"):
        parsed(["2024-01-31", "2024-02-01"], order="day_first")


def test_zoned_and_naive_times_do_not_mix() -> None:
    with pytest.raises(DataError, match=r"1 of 2 times carry a time zone.*row 2.*Write one kind"):
        parsed(["2024-01-31T22:00:00Z", "2024-01-31T23:00:00"])


@pytest.mark.parametrize(
    "values",
    [
        ["2024-01-31 00:00:00-05:00", "2024-07-31 00:00:00-04:00"],
        ["2024-01-31T00:00:00+09:00", "2024-07-31T00:00:00+09:00"],
        ["2024-01-31 00:00:00", "2024-07-31 00:00:00"],
        ["31.01.2024 00:00 GMT+0100", "31.07.2024 00:00 GMT+0200"],
    ],
)
def test_midnights_of_their_own_zone_are_dates(values: list[object]) -> None:
    """Daily bars of stocks are often written so; as instants they would move with the clocks."""
    assert np.array_equal(parsed(values), instants("2024-01-31", "2024-07-31"))


def test_typed_midnights_of_their_own_zone_are_dates() -> None:
    days = instants("2024-01-31T05:00", "2024-07-31T04:00")
    column = pa.array(days).cast(pa.timestamp("ns", "America/New_York"))
    assert np.array_equal(
        parse_times(column, "c", None, "detect"), instants("2024-01-31", "2024-07-31")
    )


def test_one_time_of_day_makes_all_of_them_instants() -> None:
    times = parsed(["2024-01-31T00:00:00+01:00", "2024-01-31T01:00:00+01:00"])
    assert np.array_equal(times, instants("2024-01-30T23:00", "2024-01-31T00:00"))


def test_naive_times_are_read_in_the_given_zone() -> None:
    times = parsed(["2024-01-31 22:00", "2024-07-31 22:00"], timezone="America/New_York")
    assert np.array_equal(times, instants("2024-02-01T03:00", "2024-08-01T02:00"))


def test_times_that_exist_twice_in_the_zone_are_refused() -> None:
    with pytest.raises(DataError, match="exists twice or not at all in America/New_York"):
        parsed(["2024-11-03 01:30", "2024-11-03 05:30"], timezone="America/New_York")
    with pytest.raises(DataError, match="exists twice or not at all"):
        parsed(["2024-03-10 02:30", "2024-03-10 05:30"], timezone="America/New_York")


@pytest.mark.parametrize(
    "values", [["2024-01-31T22:00:00Z"], ["2024-01-31"], [1706738400], [20240131]]
)
def test_a_zone_without_effect_is_refused(values: list[object]) -> None:
    with pytest.raises(DataError, match="timezone 'Europe/Berlin' has no effect"):
        parsed(values, timezone="Europe/Berlin")


def test_typed_timestamps_of_any_unit_and_zone() -> None:
    for unit in ("s", "ms", "us", "ns"):
        naive = pa.array(EXPECTED.astype(f"datetime64[{unit}]"))
        assert np.array_equal(parse_times(naive, "c", None, "detect"), EXPECTED)
        zoned = naive.cast(pa.timestamp(unit, "Asia/Tokyo"))
        assert np.array_equal(parse_times(zoned, "c", None, "detect"), EXPECTED)
    local = parse_times(pa.array(EXPECTED), "c", "Asia/Tokyo", "detect")
    assert np.array_equal(local, EXPECTED - np.timedelta64(9, "h"))
    assert np.array_equal(
        parse_times(pa.array(EXPECTED.astype("datetime64[D]")), "c", None, "detect"),
        EXPECTED.astype("datetime64[D]"),
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["2024-01-31 22:00", "tomorrow"], "is not a date|do not read"),
        (["2024-01-31", "2024-02-30"], r"1 of 2 times do not read.*row 2 \('2024-02-30'\)"),
        (["31.01.24", "01.02.24"], "is not a date that can be read"),
        (["31.01.2024 22h00", "01.02.2024 22h00"], "does not end in a time of day"),
        (["2024-01-31", "9999-01-31"], "do not read"),
        ([None, "2024-01-31"], r"1 time\(s\) are missing, first in row 1"),
        ([True, False], "must hold times, numbers or text; was bool"),
        ([float("nan"), 1706738400.0], "not finite"),
        (["99999999999999999999", "99999999999999999999"], "too large for a time"),
    ],
)
def test_what_is_no_time_is_refused(values: list[object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        parsed(values)


@pytest.mark.parametrize(
    "text", ["now", "today", "1500-01-01", "9999-12-31", "20240101", "", "NaT"]
)
def test_a_setting_takes_instants_that_fit_only(text: str) -> None:
    with pytest.raises(ConfigError, match="start: must be an instant .*between 1678 and 2261; was"):
        parse_instant(text, "start")
    with pytest.raises(ConfigError, match="start: must be an instant"):
        SyntheticSource(start=text)


def test_instants_are_read_to_the_digit() -> None:
    assert parse_instant("2024-01-31T22:00", "start") == np.datetime64("2024-01-31T22:00", "ns")
    assert parse_instant("2024-01-31", "start") == np.datetime64("2024-01-31", "ns")
    assert parse_instant("2024-01-31 22:00:01.5", "start") == instants("2024-01-31T22:00:01.5")[0]


@pytest.mark.parametrize("text", ["999999w", "999999d", "367d"])
def test_an_interval_of_more_than_a_year_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=rf"interval: must be at most 366d; was '{text}'"):
        parse_interval(text)
    assert parse_interval("366d") == np.timedelta64(366, "D")
    assert parse_interval("999999s") == np.timedelta64(999999, "s")


@pytest.mark.parametrize(
    "good",
    ["2024-01-31 22:00", "2024-01-31", "31/01/2024 22:00", "2024.01.31", "1706738400", "20240131"],
)
def test_the_first_time_that_cannot_be_read_is_named(good: str) -> None:
    for bad in ("", "time", "<DATE>"):
        with pytest.raises(DataError, match=rf"first in row 3 \('{bad}'\)"):
            parsed([good, good, bad, good, bad])
    with pytest.raises(DataError, match=r"row 1 \('time'\)"):
        parsed(["time", good, good])
