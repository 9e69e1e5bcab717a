"""Single steps whose books can be checked with a pencil."""

import math

import numpy as np
import pytest

from quantail.sim.account import AccountConfig, FillConfig
from quantail.sim.actions import ContinuousActions, DiscreteActions
from quantail.sim.config import SimConfig
from quantail.sim.costs import ConstantSpread, CostConfig, NoSlippage, SquareRootImpact, TakerFee
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.simulator import MarketSim
from quantail.sim.state import CASH, END_REASONS, UNITS
from tests.catalogue import catalogue
from tests.sim.markets import FREE, bars_of_closes

FIRST = EpisodeConfig(length=None, start="first")
PLAIN = AccountConfig(initial_equity=1_000.0, minimum_trade=0.0)


def simulate(closes, choices, *, opens=None, **settings):
    """Run one account over all bars; return the simulator and the record of every step."""
    columns = {} if opens is None else {"open": np.asarray(opens, float)}
    columns |= {k: np.asarray(settings.pop(k), float) for k in ("funding",) if k in settings}
    bars = bars_of_closes(closes, **columns)
    config = SimConfig(
        **({"account": PLAIN, "costs": FREE, "episodes": FIRST, "debug": True} | settings)
    )
    sim = MarketSim(bars, config=config, autoreset="disabled")
    steps = []
    for action in choices:
        out = sim.step(np.array([action]))
        record = {name: float(out.column(name)[0]) for name in (
            "equity", "price_pnl", "fees", "spread", "slippage", "funding", "borrow", "shortfall",
            "position", "traded", "reward_raw", "limited",
        )}  # fmt: skip
        end = END_REASONS[out.end_reason[0]]
        steps.append(record | {"reward": float(out.reward[0]), "end": end})
    return sim, steps


def test_an_order_fills_at_the_next_open_and_earns_from_there():
    """Decided at the close of 100; bought at the open of 110: 1000 / 110 units; close 121."""
    sim, (step,) = simulate([100, 121], [1.0], opens=[100, 110])
    assert sim.state.value(UNITS)[0] == pytest.approx(1000 / 110)
    assert step["equity"] == pytest.approx(1000 / 110 * 121)  # 1100: only open to close is earned
    assert step["reward"] == pytest.approx(math.log(1.1))


@pytest.mark.parametrize(
    ("fill", "price"),
    [
        (FillConfig(price="close", delay=0), 100.0),
        (FillConfig(price="open"), 110.0),
        (FillConfig(price="vwap"), (121 + 110 + 121) / 3),
        (FillConfig(price="close"), 121.0),
    ],
)
def test_fill_prices(fill, price):
    _, (step,) = simulate([100, 121], [1.0], opens=[100, 110], fill=fill)
    assert step["equity"] == pytest.approx(1000 * 121 / price)


def test_a_delayed_order_waits_its_bars():
    fill = FillConfig(delay=3)
    _, steps = simulate([100, 100, 100, 100, 150], [1.0, 0.0, 0.0, 0.0], fill=fill)
    assert [step["traded"] for step in steps] == [0, 0, 1000, 1000 * 1.0]


def test_a_purchase_leaves_room_for_its_own_costs():
    """Fee 100 bps and half-spread 100 bps: 1000 = n + 0.02 n, so n = 980.39 and no cash is left."""
    costs = CostConfig(
        fee=TakerFee(bps=100), spread=ConstantSpread(half_bps=100), slippage=NoSlippage()
    )
    sim, (step,) = simulate([100, 100], [1.0], costs=costs)
    assert step["traded"] == pytest.approx(1000 / 1.02)
    assert step["fees"] == step["spread"] == pytest.approx(10 / 1.02)
    assert sim.state.value(CASH)[0] == pytest.approx(0.0, abs=1e-9)
    assert step["position"] == pytest.approx(1.0)


def test_turning_a_position_pays_for_both_halves():
    """From +1 to -1 at rate c = 0.01: n' = -(E - c (E - n')) with E = 1000, so n' = -990 / 1.01."""
    costs = CostConfig(
        fee=TakerFee(bps=100), spread=ConstantSpread(half_bps=0), slippage=NoSlippage()
    )
    closes = [100, 100, 100]
    _, (first, second) = simulate(closes, [1.0, -1.0], costs=costs)
    equity = first["equity"]  # all in stock
    new = -equity * 0.99 / 1.01
    assert second["traded"] == pytest.approx(equity - new)
    assert second["fees"] == pytest.approx(0.01 * (equity - new))
    assert second["position"] == pytest.approx(-1.0)


def test_square_root_impact():
    """σ and volume over 2 bars: returns ±ln 1.1, volume 1e6; slippage = σ √(q / 1e6)."""
    closes = [100, 110, 100, 110, 110]
    costs = CostConfig(
        fee=TakerFee(bps=0), spread=ConstantSpread(half_bps=0), slippage=SquareRootImpact(window=2)
    )
    sim, (step,) = simulate(closes, [1.0], costs=costs)
    quantity = sim.state.value(UNITS)[0]
    rate = math.log(1.1) * math.sqrt(quantity / 1e6)
    assert step["slippage"] == pytest.approx(quantity * 110 * rate)


def test_a_trade_takes_no_more_than_its_share_of_the_volume():
    impact = SquareRootImpact(window=2, coefficient=1e-9, max_participation=0.1)
    costs = CostConfig(fee=TakerFee(bps=0), spread=ConstantSpread(half_bps=0), slippage=impact)
    account = AccountConfig(initial_equity=1e9, minimum_trade=0.0)
    closes = [100, 110, 100, 110, 110]
    sim, (step,) = simulate(closes, [1.0], costs=costs, account=account)
    assert sim.state.value(UNITS)[0] == pytest.approx(1e5)
    assert step["limited"] == 1
    assert sim.counters()["limited_trades"] == 1


def test_funding_is_paid_by_longs_and_received_by_shorts():
    for action, sign in ((1.0, 1), (-1.0, -1)):
        _, (step,) = simulate([100, 100], [action], funding=[0, 0.001])
        assert step["funding"] == pytest.approx(sign * 1.0)
        assert step["equity"] == pytest.approx(1000 - sign)


def test_interest_on_shorts_and_on_borrowed_cash():
    """One day at 36.5 % a year is 0.1 %: of a short of 2000, and of a debt of 1000."""
    rates = CostConfig(
        fee=TakerFee(bps=0), spread=ConstantSpread(half_bps=0), slippage=NoSlippage(),
        borrow_rate=0.365, margin_rate=0.365,
    )  # fmt: skip
    account = AccountConfig(initial_equity=1_000.0, max_leverage=2.0)
    _, (short,) = simulate([100, 100], [-1.0], costs=rates, account=account)
    assert short["borrow"] == pytest.approx(2.0)
    _, (long,) = simulate([100, 100], [1.0], costs=rates, account=account)
    assert long["borrow"] == pytest.approx(1.0)


def test_limits_minimum_and_step():
    def traded(**limits):
        account = AccountConfig(**({"initial_equity": 1_000.0, "minimum_trade": 0.0} | limits))
        return simulate([100, 100], [0.55], account=account)[1][0]["traded"]

    assert traded() == pytest.approx(550)
    assert traded(max_notional=300.0) == pytest.approx(300)
    assert traded(max_turnover=0.2) == pytest.approx(200)
    assert traded(unit_step=2.0) == pytest.approx(400)
    assert traded(unit_step=2.0, max_turnover=0.3) == pytest.approx(200)
    assert traded(minimum_notional=600.0) == 0
    assert traded(minimum_trade=0.56) == 0


def test_long_only_maps_the_whole_range():
    for action, position in ((-1.0, 0.0), (0.0, 0.5), (1.0, 1.0)):
        actions = ContinuousActions(long_only=True)
        _, (step,) = simulate([100, 100], [action], actions=actions)
        assert step["position"] == pytest.approx(position)


def test_hold_leaves_a_drifting_position_alone():
    """Half in stock, price doubles: 500 + 1000, so 2/3; hold keeps it, level 0.5 sells 250."""
    levels = DiscreteActions(levels=(0.0, 0.5))
    _, steps = simulate([100, 100, 200, 200], [1, 2, 2], actions=levels)
    assert steps[2]["position"] == pytest.approx(2 / 3)
    _, steps = simulate([100, 100, 200, 200], [1, 2, 1], actions=levels)
    assert steps[2]["traded"] == pytest.approx(250)


@catalogue("X40")
def test_bankruptcy_is_judged_on_equity_not_on_cash():
    """All money is in stock, so cash is 0 from the start; only the fall to 5 % ends the account."""
    _, steps = simulate([100, 100, 50, 5, 80], [1.0, 1.0, 1.0, 1.0])
    assert [step["end"] for step in steps] == ["", "", "bankrupt", ""]
    assert steps[2]["equity"] == steps[3]["equity"] == pytest.approx(50)
    assert steps[3]["position"] == steps[3]["reward"] == 0
    assert steps[2]["reward"] == pytest.approx(math.log(0.1))


@catalogue("X40")
def test_a_gap_is_booked_at_the_gap_price_and_stops_at_zero():
    """Short 1000 at 100; the open at 250 costs 1500 of 1000: 500 are the broker's."""
    _, steps = simulate([100, 100, 90], [-1.0, -1.0], opens=[100, 100, 250])
    assert steps[1]["price_pnl"] == pytest.approx(-1500)  # not the 100 that the close would give
    assert steps[1]["shortfall"] == pytest.approx(500)
    assert steps[1]["equity"] == 0
    assert steps[1]["end"] == "bankrupt"
    assert steps[1]["reward"] == pytest.approx(math.log(1e-3))
    debt = AccountConfig(initial_equity=1_000.0, minimum_trade=0.0, allow_negative_equity=True)
    _, steps = simulate([100, 100, 90], [-1.0, -1.0], opens=[100, 100, 250], account=debt)
    assert steps[1]["equity"] == pytest.approx(-500)
    assert steps[1]["shortfall"] == 0


def test_maintenance_margin_liquidates_before_bankruptcy():
    """2000 in stock with 1000 owed; at 60 equity is 200, a sixth of 1200: below a quarter."""
    account = AccountConfig(
        initial_equity=1_000.0, max_leverage=2.0, maintenance_margin=0.25, minimum_trade=0.0
    )
    fees = CostConfig(
        fee=TakerFee(bps=100), spread=ConstantSpread(half_bps=0), slippage=NoSlippage()
    )
    sim, steps = simulate([100, 100, 60, 60], [1.0, 1.0, 1.0], account=account, costs=fees)
    assert steps[1]["end"] == "liquidated"
    assert steps[1]["fees"] > 0
    assert sim.state.value(UNITS)[0] == 0
    assert steps[2]["equity"] == steps[1]["equity"]


def test_a_rate_that_eats_the_equity_closes_and_does_not_turn():
    """Leverage 10 and 49.99 % fee: turning would cost more than the account has."""
    fee = CostConfig(
        fee=TakerFee(bps=4999), spread=ConstantSpread(half_bps=0), slippage=NoSlippage()
    )
    account = AccountConfig(initial_equity=1_000.0, max_leverage=10.0, minimum_trade=0.0)
    sim, steps = simulate([100, 100, 100], [1.0, -1.0], costs=fee, account=account)
    assert abs(steps[0]["position"]) <= 10 * (1 + 1e-9)
    assert sim.state.value(UNITS)[0] == 0
    assert steps[1]["equity"] >= 0
