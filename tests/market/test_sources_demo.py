import subprocess
import sys

import numpy as np
import pytest

from quantail.errors import DataError
from quantail.market.sources import EurUsdDemo, StocksDemo
from quantail.market.sources.stocks_demo import data_file, raw_rows


def test_eurusd_has_exactly_its_bars_and_day_first_dates() -> None:
    bars = EurUsdDemo().load()
    assert bars.n_bars == 6_225
    assert bars.symbols == ("EURUSD",)
    assert bars.interval == np.timedelta64(1, "h")
    assert bars.time[0] == np.datetime64("2017-01-01T22:00")
    # 02.01.2017 is the second of January: month-first would make it the first of February.
    assert bars.time[2] == np.datetime64("2017-01-02T00:00")
    assert bars.time[-1] == np.datetime64("2017-12-29T21:00")
    assert bars.repairs == ()


def test_raw_stock_rows_are_counted_before_splits_are_applied() -> None:
    rows = raw_rows()
    assert len(rows) == 12_154
    assert rows["symbol"].nunique() == 5


def test_stock_splits_are_applied_and_the_real_crash_is_kept() -> None:
    bars = StocksDemo().load()
    assert bars.symbols == ("AAPL", "FB", "GOOG", "IBM", "MSFT")
    assert np.diff(bars.offsets).tolist() == [3270, 196, 2148, 3270, 3270]
    told = [str(action) for action in bars.repairs]
    assert len(told) == 2
    assert "AAPL: applied splits (ratios 2, 2), 2 row(s)" in told[0]
    assert "2000-06-21" in told[0]
    assert "2005-02-28" in told[0]
    assert "MSFT: applied splits (ratios 2), 1 row(s)" in told[1]
    assert "2003-02-18" in told[1]

    apple = bars.of("AAPL")
    raw = raw_rows().query("symbol == 'AAPL'")["close"].to_numpy()
    # Four old shares' worth before the first split, two before the second, one after.
    assert apple.close[0] == pytest.approx(raw[0] / 4)
    assert apple.close[100] == pytest.approx(raw[100] / 2)
    assert apple.close[-1] == raw[-1]
    crash = int(np.flatnonzero(apple.time == np.datetime64("2000-09-29"))[0])
    assert apple.close[crash] / apple.close[crash - 1] == pytest.approx(25.75 / 53.50)
    overnight = apple.open[1:] / apple.close[:-1]
    assert np.flatnonzero(overnight < 0.7).tolist() == [crash - 1]


def test_adjusted_closes_and_split_closes_differ_by_dividends_only() -> None:
    bars = StocksDemo().load()
    assert bars.adjusted_close is not None
    for symbol in bars.symbols:
        part = bars.of(symbol)
        assert part.adjusted_close is not None
        factor = part.adjusted_close / part.close
        # MSFT paid 3 dollars on 27 in 2004; nothing else exceeds a few percent.
        assert np.abs(np.diff(np.log(factor))).max() < 0.12


def test_the_demo_does_not_import_the_package_it_reads() -> None:
    code = (
        "import sys; from quantail.market.sources import EurUsdDemo; EurUsdDemo().load(); "
        "heavy = {'gym_anytrading', 'gymnasium', 'torch', 'ccxt', 'yfinance'}; "
        "sys.exit(any(name.split('.')[0] in heavy for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_missing_package_names_what_to_install() -> None:
    with pytest.raises(
        DataError, match=r"no_such_package, which is not installed.*quantail\[demo\]"
    ):
        data_file("no_such_package", "x.csv")
    with pytest.raises(DataError, match="is not there; install bokeh_sampledata again"):
        data_file("bokeh_sampledata", "x.csv")
