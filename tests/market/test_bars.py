import dataclasses
import pickle

import numpy as np
import pandas as pd
import pytest

from quantail.errors import DataError
from quantail.market.bars import Bars, infer_interval
from quantail.market.calendars import Weekdays
from tests.market.bar_tables import bar_table


def two_symbols() -> Bars:
    table = pd.concat([bar_table(50), bar_table(30, "BBB", "2024-01-02", seed=1)])
    return Bars.from_frame(table)


def test_rows_of_symbols_stand_one_after_another() -> None:
    bars = two_symbols()
    assert bars.symbols == ("AAA", "BBB")
    assert bars.offsets.tolist() == [0, 50, 80]
    assert bars.rows("BBB") == slice(50, 80)
    assert (bars.n_bars, bars.n_symbols) == (80, 2)
    assert bars.interval == np.timedelta64(1, "h")
    assert bars.time.dtype == np.dtype("datetime64[ns]")


def test_arrays_are_read_only_copies() -> None:
    table = bar_table()
    close = table["close"].to_numpy(copy=True)
    bars = dataclasses.replace(Bars.from_frame(table), close=close)
    close[0] = 1.0
    assert bars.close[0] != 1.0
    with pytest.raises(ValueError, match="read-only"):
        bars.close[0] = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        bars.close = close  # type: ignore[misc]


def test_bars_travel_between_processes_and_stay_read_only() -> None:
    bars = two_symbols()
    again = pickle.loads(pickle.dumps(bars))
    assert again.fingerprint() == bars.fingerprint()
    with pytest.raises(ValueError, match="read-only"):
        again.close[0] = 1.0


def test_of_gives_one_symbol_alone() -> None:
    bars = two_symbols()
    part = bars.of("BBB")
    assert part.symbols == ("BBB",)
    assert np.array_equal(part.close, bars.close[50:80])
    assert (
        part.fingerprint()
        == Bars.from_frame(bar_table(30, "BBB", "2024-01-02", seed=1)).fingerprint()
    )
    with pytest.raises(DataError, match=r"symbol must be one of AAA, BBB; was 'CCC'"):
        bars.of("CCC")


def test_window_is_half_open_and_leaves_out_symbols_without_a_bar() -> None:
    bars = two_symbols()
    part = bars.window("2024-01-02T00:00", "2024-01-02T03:00")
    assert part.offsets.tolist() == [0, 3, 6]
    assert part.time[0] == np.datetime64("2024-01-02T00:00")
    assert part.time[2] == np.datetime64("2024-01-02T02:00")
    assert bars.window("2024-01-01", "2024-01-02").symbols == ("AAA",)
    with pytest.raises(DataError, match="holds no bar; the data runs from 2024-01-01"):
        bars.window("2030-01-01", "2031-01-01")


def test_frame_round_trip_keeps_every_column() -> None:
    table = bar_table().assign(
        spread=0.001, funding=-0.0001, adjusted_close=lambda t: t["close"] * 0.5, no_trade=False
    )
    table.loc[3, "no_trade"] = True
    bars = Bars.from_frame(table, interval=np.timedelta64(60, "m"), calendar=Weekdays())
    again = Bars.from_frame(bars.to_frame(), calendar=bars.calendar)
    assert again.fingerprint() == bars.fingerprint()
    assert again.no_trade is not None
    assert np.flatnonzero(again.no_trade).tolist() == [3]
    assert bars.to_frame()["time"].dt.tz is not None


@pytest.mark.parametrize("column", ["open", "high", "low", "close", "volume", "spread", "time"])
def test_fingerprint_changes_with_every_column(column: str) -> None:
    table = bar_table().assign(spread=0.001)
    changed = table.copy()
    if column == "time":
        changed["time"] += pd.Timedelta(hours=1)
    else:
        # away from the other prices, so that low <= open, close <= high still holds
        changed.loc[7, column] *= 1.0 - 1e-6 if column == "low" else 1.0 + 1e-6
    assert Bars.from_frame(table).fingerprint() == Bars.from_frame(table.copy()).fingerprint()
    assert Bars.from_frame(changed).fingerprint() != Bars.from_frame(table).fingerprint()


def test_fingerprint_tells_an_absent_column_from_zeros() -> None:
    table = bar_table()
    assert (
        Bars.from_frame(table).fingerprint()
        != Bars.from_frame(table.assign(spread=0.0)).fingerprint()
    )


def test_bid_and_ask_become_a_spread_around_their_middle() -> None:
    table = bar_table().assign(bid=lambda t: t["close"] * 0.99, ask=lambda t: t["close"] * 1.01)
    bars = Bars.from_frame(table)
    assert bars.spread is not None
    # (1.01 - 0.99) / 1.00 = 0.02
    assert bars.spread == pytest.approx(np.full(50, 0.02))
    with pytest.raises(DataError, match="give bid and ask together, or spread alone"):
        Bars.from_frame(bar_table().assign(bid=1.0))


def test_zoned_times_are_turned_to_utc() -> None:
    table = bar_table()
    zoned = table.assign(time=table["time"].dt.tz_localize("America/New_York"))
    assert Bars.from_frame(zoned).time[0] == np.datetime64("2024-01-01T05:00")


def test_interval_is_the_most_frequent_step_inside_symbols() -> None:
    names = np.array(["A", "A", "A", "B", "B", "B"], dtype=object)
    hours = np.array([1, 4, 0, 102, 100, 101])
    time = np.datetime64("2024-01-01", "ns") + hours * np.timedelta64(1, "h")
    assert infer_interval(names, time) == np.timedelta64(1, "h")
    with pytest.raises(DataError, match="interval cannot be read off the data.*Give it"):
        infer_interval(names[:1], time[:1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"close": np.ones(3)}, r"close must have shape \(50,\); was \(3,\)"),
        ({"symbols": ()}, "symbols must be different and at least one"),
        ({"symbols": ("A", "A")}, "symbols must be different"),
        ({"offsets": np.array([0, 49])}, "offsets must rise from 0 to 50 in 1 steps"),
        ({"offsets": np.array([1, 50])}, "offsets must rise from 0 to 50"),
        ({"interval": np.timedelta64(0, "s")}, "interval must be longer than nothing"),
        ({"close": np.array(["x"] * 50)}, "close must be an array of float64"),
    ],
)
def test_layout_that_does_not_fit_is_refused(change: dict[str, object], message: str) -> None:
    bars = Bars.from_frame(bar_table())
    with pytest.raises(DataError, match=message):
        dataclasses.replace(bars, **change)  # type: ignore[arg-type]


def test_symbols_and_offsets_must_agree() -> None:
    bars = two_symbols()
    with pytest.raises(DataError, match="at least one row per symbol; were"):
        dataclasses.replace(bars, offsets=np.array([0, 80, 80]))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (bar_table().drop(columns="low"), r"missing: \['low'\]"),
        (bar_table().assign(extra=1), r"unknown: \['extra'\]"),
        (bar_table().iloc[:0], "interval cannot be read off the data"),
        (bar_table().assign(close="x"), "must hold numbers"),
        (bar_table().assign(time="2024-01-01"), "time must be a column of timestamps; was str"),
        (
            pd.concat([bar_table(3), bar_table(3, "BBB"), bar_table(3, start="2025-01-01")]),
            "rows of a symbol must stand together; AAA",
        ),
    ],
)
def test_tables_that_are_no_bars_are_refused(table: pd.DataFrame, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Bars.from_frame(table)


def test_an_empty_table_is_refused_even_with_an_interval() -> None:
    with pytest.raises(DataError, match="holds no bar; at least one row is needed"):
        Bars.from_frame(bar_table().iloc[:0], interval=np.timedelta64(1, "h"))


@pytest.mark.parametrize("value", [np.nan, None, "False", 2.7, -1])
def test_no_trade_takes_booleans_or_0_and_1_only(value: object) -> None:
    flags = pd.Series([False] * 4 + [value], dtype=object)
    with pytest.raises(DataError, match=r"no_trade must be true, false, 1 or 0.*row 5"):
        Bars.from_frame(bar_table(5).assign(no_trade=flags))
    bars = Bars.from_frame(bar_table(5))
    with pytest.raises(DataError, match=r"no_trade must be true, false, 1 or 0"):
        dataclasses.replace(bars, no_trade=np.array([0, 0, 0, 0, value]))
    for good in ([0, 1, 0, 1, 1], [0.0, 1.0, 0.0, 1.0, 1.0], [False, True, False, True, True]):
        given = Bars.from_frame(bar_table(5).assign(no_trade=good)).no_trade
        assert given is not None
        assert given.tolist() == [False, True, False, True, True]


def test_complex_prices_are_refused() -> None:
    table = bar_table(5)
    with pytest.raises(DataError, match="^close must hold real numbers; was complex"):
        Bars.from_frame(table.assign(close=table["close"] + 5j))
    bars = Bars.from_frame(table)
    with pytest.raises(DataError, match="close must hold real numbers; was complex"):
        dataclasses.replace(bars, close=bars.close + 5j)


@pytest.mark.parametrize("start", ["now", "today", "1500-01-01", "9999-12-31", "NaT", "x"])
def test_a_window_takes_instants_that_fit_only(start: str) -> None:
    with pytest.raises(DataError, match="window: must be an instant .* between 1678 and 2261"):
        Bars.from_frame(bar_table(5)).window(start, "2024-02-01")
