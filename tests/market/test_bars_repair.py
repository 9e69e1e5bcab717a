import logging
import warnings

import numpy as np
import pandas as pd
import pytest

from quantail.errors import DataError
from quantail.market.bars import Bars
from quantail.market.calendars import Weekdays
from quantail.market.checks import DataChecks
from quantail.market.repair import NO_REPAIR, Repair
from tests.market.bar_tables import bar_table

PRICES = ["open", "high", "low", "close"]


def test_nothing_is_repaired_by_default() -> None:
    assert Repair() == NO_REPAIR
    with pytest.raises(DataError, match="earlier than the one before"):
        Bars.from_frame(bar_table(5).iloc[[0, 2, 1, 3, 4]])
    assert Bars.from_frame(bar_table()).repairs == ()


def test_a_clean_table_is_left_alone_by_every_repair() -> None:
    everything = Repair(bad_rows="drop", sort=True, duplicates="last", splits="apply", gaps="fill")
    bars = Bars.from_frame(bar_table(), repair=everything)
    assert bars.repairs == ()
    assert bars.fingerprint() == Bars.from_frame(bar_table()).fingerprint()


def test_sorting_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        bars = Bars.from_frame(bar_table(5).iloc[[0, 2, 1, 3, 4]], repair=Repair(sort=True))
    assert bars.fingerprint() == Bars.from_frame(bar_table(5)).fingerprint()
    (action,) = bars.repairs
    assert (action.symbol, action.action, action.count) == ("AAA", "sorted by time", 2)
    assert "repaired AAA: sorted by time, 2 row(s), first at 2024-01-01T02" in caplog.text


def test_sorting_brings_scattered_symbols_together() -> None:
    tables = [bar_table(10), bar_table(10, "BBB", seed=1)]
    mixed = pd.concat(tables).sort_values("time", kind="stable")
    bars = Bars.from_frame(mixed, repair=Repair(sort=True), interval=np.timedelta64(1, "h"))
    assert bars.fingerprint() == Bars.from_frame(pd.concat(tables)).fingerprint()
    assert [action.symbol for action in bars.repairs] == ["all"]
    with pytest.raises(DataError, match="rows of a symbol must stand together"):
        Bars.from_frame(mixed, repair=Repair(duplicates="first"), interval=np.timedelta64(1, "h"))


@pytest.mark.parametrize(("how", "kept"), [("first", 0.5), ("last", 0.25)])
def test_duplicates_are_dropped_as_asked(how: str, kept: float) -> None:
    table = bar_table(6).assign(volume=0.5)
    twice = pd.concat([table, table.iloc[[3]].assign(volume=0.25)]).sort_values(
        "time", kind="stable"
    )
    bars = Bars.from_frame(twice, repair=Repair(duplicates=how))  # type: ignore[arg-type]
    assert bars.volume[3] == kept
    assert bars.n_bars == 6
    assert bars.repairs[0].action == f"dropped duplicates ({how})"
    assert bars.repairs[0].count == 1


def test_only_equal_duplicates_are_dropped_when_asked_so() -> None:
    table = bar_table(6)
    equal = table.iloc[[0, 1, 1, 2, 3, 4, 5]]
    assert Bars.from_frame(equal, repair=Repair(duplicates="equal")).n_bars == 6
    different = pd.concat([table.iloc[:2], table.iloc[[1]].assign(volume=0.1), table.iloc[2:]])
    with pytest.raises(DataError, match="time already seen"):
        Bars.from_frame(different, repair=Repair(duplicates="equal"))


def test_bad_rows_are_dropped_and_then_missed_by_the_calendar() -> None:
    table = bar_table(10)
    table.loc[2, "close"] = np.nan
    table.loc[4, "low"] = -1.0
    table.loc[6, "high"] = table.loc[6, "low"] * 0.5
    table.loc[8, "time"] = pd.NaT
    with pytest.raises(DataError, match=r"4 bar\(s\) of 1h missing"):
        Bars.from_frame(table, repair=Repair(bad_rows="drop"))
    bars = Bars.from_frame(table, repair=Repair(bad_rows="drop"), checks=DataChecks(gaps="allow"))
    assert bars.n_bars == 6
    assert bars.repairs[0].count == 4


def test_gaps_are_filled_with_flat_bars_that_cannot_be_traded() -> None:
    table = bar_table(10).assign(spread=0.001, funding=0.01)
    bars = Bars.from_frame(table.drop(index=[4, 5]), repair=Repair(gaps="fill"))
    assert bars.n_bars == 10
    assert bars.no_trade is not None
    assert bars.funding is not None
    assert np.flatnonzero(bars.no_trade).tolist() == [4, 5]
    for name in PRICES:
        assert getattr(bars, name)[4:6].tolist() == [table.loc[3, "close"]] * 2
    assert bars.volume[4:6].tolist() == [0.0, 0.0]
    assert bars.funding[4:6].tolist() == [0.0, 0.0]
    assert bars.repairs[0].count == 2
    assert np.array_equal(bars.close[6:], table["close"].to_numpy()[6:])


def test_filling_follows_the_calendar() -> None:
    days = bar_table(31, freq="1D")
    weekdays = days[np.is_busday(days["time"].to_numpy("datetime64[D]"))]
    kept = weekdays.drop(index=weekdays.index[7])
    bars = Bars.from_frame(
        kept, calendar=Weekdays(), repair=Repair(gaps="fill"), interval=np.timedelta64(1, "D")
    )
    assert bars.n_bars == len(weekdays)


def test_splits_are_applied_to_prices_and_volume() -> None:
    table = bar_table(40)
    raw = table.copy()
    raw.loc[:29, PRICES] *= 2.0
    raw.loc[:29, "volume"] /= 2.0
    raw.loc[:9, PRICES] *= 3.0
    raw.loc[:9, "volume"] /= 3.0
    bars = Bars.from_frame(raw, repair=Repair(splits="apply"))
    for name in [*PRICES, "volume"]:
        assert getattr(bars, name) == pytest.approx(table[name].to_numpy(), rel=1e-12)
    assert "applied splits (ratios 3, 2)" in str(bars.repairs[0])
    assert bars.repairs[0].count == 2


def test_reverse_splits_are_applied_too() -> None:
    table = bar_table(40)
    raw = table.copy()
    raw.loc[:29, PRICES] /= 10.0
    raw.loc[:29, "volume"] *= 10.0
    bars = Bars.from_frame(raw, repair=Repair(splits="apply"))
    assert bars.close == pytest.approx(table["close"].to_numpy(), rel=1e-12)
    assert bars.volume == pytest.approx(table["volume"].to_numpy(), rel=1e-12)


def test_splits_of_impossible_prices_are_left_to_the_refusal() -> None:
    raw = bar_table(40)
    raw.loc[:29, PRICES] *= 2.0
    raw.loc[5, "close"] = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataError, match=r"1 value\(s\) of close"):
            Bars.from_frame(raw, repair=Repair(splits="apply"))


def test_a_table_of_bad_rows_alone_leaves_nothing() -> None:
    with pytest.raises(DataError, match="the table holds no bar"):
        Bars.from_frame(bar_table().assign(close=-1.0), repair=Repair(bad_rows="drop"))


def test_a_move_declared_real_is_not_repaired_as_a_split() -> None:
    raw = bar_table(40)
    raw.loc[:29, PRICES] *= 2.0
    checks = DataChecks(real_moves=("AAA@2024-01-02T06:00",))
    bars = Bars.from_frame(raw, repair=Repair(splits="apply"), checks=checks)
    assert bars.repairs == ()
    assert bars.close == pytest.approx(raw["close"].to_numpy())


def test_what_no_repair_touches_is_still_refused() -> None:
    table = bar_table(10).iloc[[0, 2, 1, *range(3, 10)]].copy()
    table.iloc[5, table.columns.get_loc("close")] = np.nan
    with pytest.raises(DataError, match=r"value\(s\) of close"):
        Bars.from_frame(table, repair=Repair(sort=True))
