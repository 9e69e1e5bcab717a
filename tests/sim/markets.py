"""Small random markets and configurations for the tests of the simulator."""

import numpy as np

from quantail.market.bars import Bars
from quantail.market.checks import DataChecks
from quantail.sim.account import AccountConfig, FillConfig
from quantail.sim.config import SimConfig
from quantail.sim.costs import (
    ConstantSpread,
    CostConfig,
    MixedFee,
    NoSlippage,
    RecordedSpread,
    SquareRootImpact,
    TakerFee,
    VolatilitySpread,
)

FREE = CostConfig(fee=TakerFee(bps=0.0), spread=ConstantSpread(half_bps=0.0), slippage=NoSlippage())
EXACT = AccountConfig(minimum_trade=0.0)

FILLS = {
    "next_open": FillConfig(),
    "next_close": FillConfig(price="close"),
    "this_close": FillConfig(price="close", delay=0),
    "vwap": FillConfig(price="vwap"),
    "open_after_3": FillConfig(delay=3),
}
FULL_COSTS = CostConfig(
    fee=MixedFee(maker_share=0.3),
    spread=VolatilitySpread(window=5),
    slippage=SquareRootImpact(window=7),
    borrow_rate=0.1,
    margin_rate=0.2,
)
RECORDED_COSTS = CostConfig(spread=RecordedSpread(), slippage=SquareRootImpact(window=4))
LEVERED = SimConfig(
    account=AccountConfig(max_leverage=3.0, maintenance_margin=0.05), costs=FULL_COSTS
)


def make_bars(
    n_bars: int = 300,
    n_symbols: int = 1,
    *,
    seed: int = 0,
    volatility: float = 0.01,
    jumps: float = 0.0,
    no_trade: bool = False,
) -> Bars:
    """Random bars with spread and funding; ``jumps`` is the chance of a large gap before a bar."""
    rng = np.random.default_rng(seed)
    rows = n_bars * n_symbols
    shape = (n_symbols, n_bars)
    gap = rng.normal(0, 0.3 * volatility, shape)
    gap += (rng.random(shape) < jumps) * rng.uniform(-0.9, 0.9, shape)
    move = rng.normal(0, volatility, shape)
    log_close = np.log(100.0) + np.cumsum(gap + move, axis=1)
    close, open_ = np.exp(log_close).ravel(), np.exp(log_close - move).ravel()
    low_body, high_body = np.minimum(open_, close), np.maximum(open_, close)
    time = np.datetime64("2021-01-01", "ns") + np.arange(n_bars) * np.timedelta64(4, "h")
    return Bars(
        symbols=tuple(f"S{s}" for s in range(n_symbols)),
        offsets=np.arange(n_symbols + 1) * n_bars,
        time=np.tile(time, n_symbols),
        open=open_,
        high=high_body * (1 + rng.uniform(0, volatility, rows)),
        low=low_body * (1 - rng.uniform(0, 0.9 * min(volatility, 1.0), rows)),
        close=close,
        volume=rng.uniform(1e2, 1e5, rows),
        interval=np.timedelta64(4, "h"),
        spread=rng.uniform(1e-4, 2e-3, rows),
        funding=rng.normal(0, 3e-4, rows),
        no_trade=(rng.random(rows) < 0.2) if no_trade else None,
        checks=DataChecks(splits="real"),
    )


def make_features(bars: Bars, n_features: int = 3, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(bars.n_bars, n_features)).astype(np.float32)


def bars_of_closes(closes: np.ndarray, symbol: str = "X", **columns) -> Bars:
    """Bars of one symbol whose open is the close before, and that trade nowhere else."""
    closes = np.asarray(closes, float)
    open_ = columns.pop("open", np.r_[closes[0], closes[:-1]])
    time = np.datetime64("2021-01-01", "ns") + np.arange(len(closes)) * np.timedelta64(1, "D")
    return Bars(
        symbols=(symbol,),
        offsets=np.array([0, len(closes)]),
        time=time,
        open=open_,
        high=np.maximum(open_, closes),
        low=np.minimum(open_, closes),
        close=closes,
        volume=np.full(len(closes), 1e6),
        interval=np.timedelta64(1, "D"),
        checks=DataChecks(splits="real"),
        **columns,
    )
