import numpy as np
import pandas as pd
import pytest

from quantail.errors import ConfigError, DataError
from quantail.market.bars import Bars
from quantail.market.calendars import Weekdays
from quantail.market.checks import DataChecks, SymbolRows, split_ratios
from tests.market.bar_tables import bar_table


def refusal(table: pd.DataFrame, checks: DataChecks | None = None) -> str:
    with pytest.raises(DataError) as caught:
        Bars.from_frame(table, checks=checks or DataChecks(), interval=np.timedelta64(1, "h"))
    return str(caught.value)


def test_backward_time_is_refused_with_place_and_remedy() -> None:
    table = bar_table(5).iloc[[0, 2, 1, 3, 4]]
    message = refusal(table)
    assert "AAA: 1 bar(s) earlier than the one before, first at 2024-01-01 01:00:00" in message
    assert "repair.sort" in message


def test_duplicates_are_refused_also_when_not_neighbors() -> None:
    table = bar_table(6)
    table.loc[4, "time"] = table.loc[1, "time"]
    message = refusal(table)
    assert "1 bar(s) with a time already seen, first at 2024-01-01 01:00:00" in message
    assert "repair.duplicates" in message


def test_missing_bars_are_counted_and_the_first_three_named() -> None:
    message = refusal(bar_table(60).drop(index=[3, 10, 11, 30]))
    assert (
        "AAA: 4 bar(s) of 1h missing (calendar 'always'), first at 2024-01-01 03:00:00, " in message
    )
    assert "2024-01-01 10:00:00, 2024-01-01 11:00:00, ..." in message
    assert "2024-01-02 06:00:00" not in message


def test_gaps_can_be_declared_real() -> None:
    table = bar_table().drop(index=[3])
    assert Bars.from_frame(table, checks=DataChecks(gaps="allow")).n_bars == 49


def test_bars_between_the_grid_are_refused() -> None:
    table = bar_table(6)
    table.loc[3:, "time"] += pd.Timedelta(minutes=7)
    assert "1 bar(s) that do not follow in whole steps of 1h, first at 2024-01-01 03:07" in refusal(
        table
    )


def test_bars_while_the_market_is_closed_are_refused() -> None:
    with pytest.raises(
        DataError, match="2 bar.s. while the market is closed .calendar 'weekdays'.*"
    ):
        Bars.from_frame(bar_table(9, freq="1D"), calendar=Weekdays())


@pytest.mark.parametrize("name", ["open", "high", "low", "close", "volume", "spread", "funding"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_values_that_are_not_numbers_are_refused(name: str, value: float) -> None:
    table = bar_table().assign(spread=0.001, funding=0.0)
    table.loc[7, name] = value
    message = refusal(table)
    assert f"1 value(s) of {name} that must be" in message
    assert "first at 2024-01-01 07:00:00" in message


@pytest.mark.parametrize(
    ("name", "value"), [("low", 0.0), ("close", -1.0), ("volume", -1.0), ("spread", -0.1)]
)
def test_values_below_their_range_are_refused(name: str, value: float) -> None:
    table = bar_table().assign(spread=0.001)
    table.loc[[7, 9], name] = value
    assert f"2 value(s) of {name} that must be" in refusal(table)


@pytest.mark.parametrize("name", ["open", "close"])
@pytest.mark.parametrize("factor", [1.2, 0.8])
def test_prices_outside_low_and_high_are_refused(name: str, factor: float) -> None:
    table = bar_table()
    table.loc[7, name] *= factor
    message = refusal(table, DataChecks(splits="real"))
    assert "1 bar(s) that break low <= open, close <= high, first at 2024-01-01 07:00:00" in message


def test_every_kind_of_problem_of_every_symbol_is_reported_at_once() -> None:
    first = bar_table(20).drop(index=[4])
    first.loc[9, "close"] = np.nan
    second = bar_table(20, "BBB").iloc[[1, 0, *range(2, 20)]]
    message = refusal(pd.concat([first, second]))
    assert message.startswith("Bars have 3 kinds of problem:")
    assert "AAA: 1 bar(s) of 1h missing" in message
    assert "AAA: 1 value(s) of close" in message
    assert "BBB: 1 bar(s) earlier" in message


def test_close_adjusted_while_open_high_low_are_raw_is_called_by_its_name() -> None:
    """The known trap: the close is adjusted for dividends, the rest of the row is not."""
    table = bar_table()
    table.loc[:24, "close"] *= 0.93
    message = refusal(table)
    assert "close alone lies outside low..high: the close is adjusted" in message
    assert "give the adjusted one as adjusted_close" in message
    assert "break low <= open" not in message


def test_a_single_bad_close_is_not_taken_for_an_adjustment() -> None:
    table = bar_table()
    table.loc[[4, 9], "close"] *= 0.5
    assert "2 bar(s) that break low <= open, close <= high" in refusal(table)


def split_table(ratio: float, adjusted: bool) -> pd.DataFrame:
    table = bar_table(40)
    raw = table["close"].to_numpy(copy=True)
    table.loc[:19, ["open", "high", "low", "close"]] *= ratio
    return table.assign(adjusted_close=raw * 0.9) if adjusted else table


@pytest.mark.parametrize("adjusted", [True, False])
@pytest.mark.parametrize(
    ("ratio", "told"), [(2.0, "2:1"), (7.0, "7:1"), (20.0, "20:1"), (0.1, "1:10")]
)
def test_unadjusted_splits_are_refused(ratio: float, told: str, adjusted: bool) -> None:
    message = refusal(split_table(ratio, adjusted))
    assert f"1 price jump(s) that look like an unadjusted split (the first like {told})" in message
    assert "first at 2024-01-01 20:00:00" in message
    assert 'repair.splits "apply"' in message


def test_three_for_two_is_a_split_only_when_the_adjusted_close_says_so() -> None:
    assert "split (the first like 1.5:1)" in refusal(split_table(1.5, adjusted=True))
    Bars.from_frame(split_table(1.5, adjusted=False))


def test_a_crash_by_half_is_real_when_the_adjusted_close_falls_too() -> None:
    table = split_table(2.0, adjusted=False)
    bars = Bars.from_frame(table.assign(adjusted_close=table["close"] * 0.9))
    assert bars.n_bars == 40


def test_a_crash_by_half_can_be_declared_real() -> None:
    table = split_table(2.0, adjusted=False)
    one = DataChecks(real_moves=("AAA@2024-01-01T20:00",))
    assert Bars.from_frame(table, checks=one).of("AAA").n_bars == 40
    assert Bars.from_frame(table, checks=DataChecks(splits="real")).n_bars == 40
    other = DataChecks(real_moves=("BBB@2024-01-01T20:00", "AAA@2024-01-01T21:00"))
    assert "unadjusted split" in refusal(table, other)


def test_a_declared_move_without_effect_is_refused() -> None:
    table = split_table(2.0, adjusted=False)
    real = "AAA@2024-01-01T20:00"
    unknown = refusal(table, DataChecks(real_moves=(real, "BBB@2024-01-01T20:00")))
    assert "checks.real_moves: 'BBB@2024-01-01T20:00' names no symbol of the data" in unknown
    assert "AAA" in unknown.split("; ")[1]
    for when in ("2024-01-01T21:00", "2024-01-01T20:30"):
        idle = refusal(table, DataChecks(real_moves=(real, f"AAA@{when}")))
        assert f"checks.real_moves: 'AAA@{when}' names no bar with a jump near n:1" in idle
    part = Bars.from_frame(table, checks=DataChecks(real_moves=(real,)))
    assert part.window("2024-01-01", "2024-01-01T05:00").n_bars == 5


def test_a_dividend_is_not_a_split() -> None:
    table = bar_table(40)
    factor = np.where(np.arange(40) < 20, 0.8, 1.0)
    assert Bars.from_frame(table.assign(adjusted_close=table["close"] * factor)).n_bars == 40


def test_split_ratios_against_hand_arithmetic() -> None:
    # close -> open: 100 -> 51 (1.96, near 2:1), 50 -> 150 (1/3, a 1:3), 150 -> 104 (1.44, none)
    columns = {
        "open": np.array([100.0, 51.0, 150.0, 104.0]),
        "close": np.array([100.0, 50.0, 150.0, 1.0]),
    }
    time = np.datetime64("2024-01-01", "ns") + np.arange(4) * np.timedelta64(1, "D")
    ratios = split_ratios(SymbolRows("AAA", time, columns), DataChecks())
    assert ratios == pytest.approx([1.0, 2.0, 1.0 / 3.0, 1.0])


@pytest.mark.parametrize("text", ["AAPL", "AAPL@someday", "@", "AAPL@"])
def test_real_moves_must_name_symbol_and_time(text: str) -> None:
    with pytest.raises(ConfigError, match="real_moves: must read SYMBOL@time"):
        DataChecks(real_moves=(text,))


def test_real_moves_without_effect_are_refused() -> None:
    with pytest.raises(ConfigError, match='real_moves: has no effect with splits "real"'):
        DataChecks(splits="real", real_moves=("AAPL@2000-09-29",))


def test_times_that_would_need_billions_of_bars_are_refused_at_once() -> None:
    table = bar_table(4, freq="1s")
    table.loc[3, "time"] = pd.Timestamp("2099-01-01")
    with pytest.raises(DataError, match="leave room for .* more bars.*Give the interval"):
        Bars.from_frame(table, interval=np.timedelta64(1, "s"))


@pytest.mark.parametrize("when", ["now", "today", "1500-01-01", "9999-12-31", "20240101"])
def test_instants_that_do_not_fit_are_refused(when: str) -> None:
    with pytest.raises(ConfigError, match="real_moves: must read SYMBOL@time .*1678 and 2261"):
        DataChecks(real_moves=(f"AAA@{when}",))
    for closure in (f"{when}/2024-01-02", f"2024-01-01/{when}"):
        with pytest.raises(ConfigError, match="closures: must read start/stop .*1678 and 2261"):
            Weekdays(closures=(closure,))
