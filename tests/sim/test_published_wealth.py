"""Buy-and-hold accounts on the data of the online-portfolio literature, to the cent."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from quantail.market.bars import Bars
from quantail.market.checks import DataChecks
from quantail.sim.account import AccountConfig, FillConfig
from quantail.sim.config import SimConfig
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.simulator import MarketSim
from quantail.sim.state import TRADES
from tests.sim.markets import FREE

# Final wealth of 1 without costs: uniform buy-and-hold, best stock (tables of Li and Hoi).
PUBLISHED = {
    "nyse_o": (14.50, 54.14, 36),
    "nyse_n": (18.06, 83.51, 23),
    "tse": (1.61, 6.28, 88),
    "sp500": (1.34, 3.78, 25),
    "msci": (0.91, 1.50, 24),
    "djia": (0.76, 1.19, 30),
}


def cumulative_prices(name: str) -> np.ndarray:
    spec = importlib.util.find_spec("universal")
    assert spec is not None, "universal-portfolios is a development dependency"
    folder = Path(spec.submodule_search_locations[0])
    prices = pd.read_csv(folder / "data" / f"{name}.csv").to_numpy(float)
    return np.vstack([np.ones(prices.shape[1]), prices])


def bars_of(prices: np.ndarray) -> Bars:
    """One symbol per stock; every price of a bar is its close."""
    days, stocks = prices.shape
    flat = prices.T.ravel()
    time = np.datetime64("1962-07-03", "ns") + np.arange(days) * np.timedelta64(1, "D")
    return Bars(
        symbols=tuple(f"stock{s}" for s in range(stocks)),
        offsets=np.arange(stocks + 1) * days,
        time=np.tile(time, stocks),
        open=flat, high=flat, low=flat, close=flat, volume=np.ones(len(flat)),
        interval=np.timedelta64(1, "D"),
        checks=DataChecks(splits="real"),
    )  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_buy_and_hold_gives_the_published_wealth(name):
    market, best, stocks = PUBLISHED[name]
    bars = bars_of(cumulative_prices(name))
    config = SimConfig(
        account=AccountConfig(initial_equity=1.0, minimum_trade=0.0, bankruptcy_fraction=0.0),
        fill=FillConfig(price="close", delay=0),  # bought at the price of day 0
        costs=FREE,
        episodes=EpisodeConfig(length=None, start="first", symbols="dealt"),
        debug=True,
    )
    sim = MarketSim(bars, config=config, n_envs=stocks, autoreset="disabled")
    everything_in = np.ones(stocks)
    for _ in range(bars.n_bars // stocks - 1):
        out = sim.step(everything_in)
    assert out.truncated.all()
    wealth = out.column("equity")
    assert (sim.state.count(TRADES) == 1).all()  # one purchase each, no dust afterwards
    assert round(wealth.mean(), 2) == market
    assert round(wealth.max(), 2) == best
