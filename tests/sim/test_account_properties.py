"""Laws of the books over 10,000 random paths of prices, gaps, costs, limits and actions."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from quantail.sim.account import AccountConfig, FillConfig
from quantail.sim.config import SimConfig
from quantail.sim.costs import (
    ConstantSpread,
    CostConfig,
    MakerFee,
    MixedFee,
    NoSlippage,
    RecordedSpread,
    SquareRootImpact,
    TakerFee,
    VolatilitySpread,
)
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.simulator import MarketSim
from quantail.sim.stress import GapStress, StressConfig
from tests.catalogue import catalogue
from tests.sim.markets import make_bars

N_ENVS, N_STEPS, N_EXAMPLES = 256, 40, 40  # 10,240 paths

COSTS = st.builds(
    CostConfig,
    fee=st.sampled_from([TakerFee(), MakerFee(), MixedFee(), TakerFee(bps=300.0)]),
    spread=st.sampled_from([ConstantSpread(), RecordedSpread(), VolatilitySpread(window=5)]),
    slippage=st.sampled_from([NoSlippage(), SquareRootImpact(window=5, coefficient=5.0)]),
    borrow_rate=st.sampled_from([0.0, 0.5]),
)
LEVERAGE = st.sampled_from([0.5, 1.0, 3.0, 10.0])
FILL = st.sampled_from(
    [FillConfig(), FillConfig(price="vwap", delay=2), FillConfig(price="close", delay=0)]
)
STRESS = st.sampled_from(
    [
        StressConfig(),
        StressConfig(
            cost_multiplier=(1.0, 3.0),
            volatility_multiplier=(0.5, 2.0),
            gap=GapStress(probability=0.05, size=0.6),
            missing_probability=0.1,
        ),
    ]
)


@st.composite
def configs(draw):
    leverage = draw(LEVERAGE)
    account = AccountConfig(
        max_leverage=leverage,
        maintenance_margin=draw(st.sampled_from([0.0, 0.5 / leverage])) if leverage > 1 else 0.0,
        max_notional=draw(st.sampled_from([None, 8_000.0])),
        max_turnover=draw(st.sampled_from([None, 0.7])),
        minimum_trade=draw(st.sampled_from([0.0, 0.02])),
        unit_step=draw(st.sampled_from([0.0, 1.0])),
        allow_negative_equity=draw(st.booleans()),
    )
    return SimConfig(
        account=account,
        costs=draw(COSTS),
        fill=draw(FILL),
        stress=draw(STRESS),
        episodes=EpisodeConfig(length=N_STEPS + 10),
    )


@catalogue("X40")
@settings(max_examples=N_EXAMPLES)
@given(config=configs(), seed=st.integers(0, 10_000), jumps=st.sampled_from([0.0, 0.05]))
def test_books_balance_on_every_path(config, seed, jumps):
    bars = make_bars(240, 3, seed=seed, volatility=0.03, jumps=jumps)
    sim = MarketSim(bars, config=config, n_envs=N_ENVS, seed=seed, autoreset="disabled")
    rng = np.random.default_rng(seed)
    ruined = np.zeros(N_ENVS, bool)
    last_equity = np.full(N_ENVS, config.account.initial_equity)
    for _ in range(N_STEPS):
        # Corners are as frequent as the inside: limits and reversals are found there.
        actions = np.clip(rng.normal(0, 1.5, N_ENVS), -1, 1)
        out = sim.step(actions)
        book = {name: out.column(name) for name in (
            "equity_before", "equity", "price_pnl", "fees", "spread", "slippage", "funding",
            "borrow", "shortfall", "traded", "position_at_fill", "limited",
        )}  # fmt: skip
        change = book["equity"] - last_equity
        booked = book["price_pnl"] - book["fees"] - book["spread"] - book["slippage"]
        booked = booked - book["funding"] - book["borrow"] + book["shortfall"]
        scale = np.maximum(np.maximum(abs(last_equity), book["traded"]), abs(book["price_pnl"]))
        assert (abs(change - booked) <= 1e-9 * np.maximum(scale, 1.0)).all()
        for cost in ("fees", "spread", "slippage", "borrow", "shortfall"):
            assert (book[cost] >= 0).all(), cost
        free = (book["limited"] == 0) & ~np.isnan(book["position_at_fill"])
        limit = config.account.max_leverage * (1 + 1e-9)
        assert (abs(book["position_at_fill"][free]) <= limit).all()
        if not config.account.allow_negative_equity:
            assert (book["equity"] >= 0).all()
        threshold = config.account.bankruptcy_fraction * config.account.initial_equity
        assert (book["equity"][~(ruined | out.terminated)] > threshold).all()
        # An account that ended stays flat, keeps its equity and earns nothing.
        assert (book["equity"][ruined] == last_equity[ruined]).all()
        assert (out.reward[ruined] == 0).all()
        assert (out.sample_weight[ruined] == 0).all()
        ruined |= out.terminated
        assert (out.column("position")[ruined] == 0).all()
        assert np.isfinite(out.reward).all()
        assert np.isfinite(out.observation).all()
        last_equity = book["equity"].copy()
