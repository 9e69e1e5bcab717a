"""No-trade masks: which bars, what happens, what the learner gets."""

import dataclasses

import numpy as np
import pytest

from quantail.errors import ConfigError
from quantail.sim.account import FillConfig
from quantail.sim.actions import DiscreteActions
from quantail.sim.config import SimConfig
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.no_trade import DailyWindow, FundingWindow, NoTradeConfig, blocked_rows
from quantail.sim.simulator import MarketSim
from quantail.sim.state import ROW, UNITS
from tests.sim.markets import EXACT, FREE, make_bars

BARS = make_bars(80, no_trade=True)  # 4-hour bars from Friday 2021-01-01 00:00 on
CLEAN = dataclasses.replace(BARS, no_trade=None)
EPISODE = EpisodeConfig(length=40, start="first")


def hours(blocked: np.ndarray) -> set[int]:
    return {int(t.astype("datetime64[h]").astype(int) % 24) for t in CLEAN.time[blocked]}


def test_windows_are_judged_at_the_moment_of_the_fill():
    mask = NoTradeConfig(closed=(DailyWindow(start="07:30", stop="08:30"),))
    at_open, _ = blocked_rows(CLEAN, mask, FillConfig())
    at_close, _ = blocked_rows(CLEAN, mask, FillConfig(price="close"))
    assert hours(at_open) == {8}
    assert hours(at_close) == {4}  # the bar from 4 to 8 closes at 8


def test_a_window_may_run_over_midnight_and_on_some_days_only():
    mask = NoTradeConfig(closed=(DailyWindow(start="22:00", stop="02:00", days=(4,)),))
    blocked, _ = blocked_rows(CLEAN, mask, FillConfig())
    times = CLEAN.time[blocked]
    assert times.tolist() == np.array(["2021-01-02", "2021-01-09"], "datetime64[ns]").tolist()


def test_minutes_around_funding():
    mask = NoTradeConfig(funding=FundingWindow(before=5, after=0))
    blocked, _ = blocked_rows(CLEAN, mask, FillConfig())
    assert not blocked.any()  # bars open at 0, 8 and 16, just outside of [t - 5, t)
    mask = NoTradeConfig(funding=FundingWindow(before=0, after=1))
    blocked, _ = blocked_rows(CLEAN, mask, FillConfig())
    assert hours(blocked) == {0, 8, 16}


@pytest.mark.parametrize("delay", [1, 3])
def test_block_holds_the_position_drops_orders_and_takes_the_weight(delay):
    config = SimConfig(
        fill=FillConfig(delay=delay), account=EXACT, costs=FREE, episodes=EPISODE, debug=True
    )
    sim = MarketSim(BARS, config=config)
    rng = np.random.default_rng(0)
    orders = {}
    for step in range(40):
        action = rng.uniform(-1, 1)
        units = sim.state.value(UNITS)[0]
        arrival = sim.state.count(ROW)[0] + 1
        blocked = BARS.no_trade[arrival]
        if blocked:
            orders.clear()
        else:
            orders[step + delay - 1] = action
        out = sim.step(np.array([action]))
        assert out.sample_weight[0] == (0.0 if blocked else 1.0)
        assert out.column("blocked")[0] == blocked
        fills = step in orders
        assert (out.column("traded")[0] > 0) == fills
        if blocked and step < 39:
            assert sim.state.value(UNITS)[0] == units
    assert sim.counters()["blocked"] == BARS.no_trade[1:41].sum() > 0


def test_ignore_only_counts():
    config = SimConfig(episodes=EPISODE, no_trade=NoTradeConfig(policy="ignore"))
    masked, free = MarketSim(BARS, config=config), MarketSim(CLEAN, config=config)
    actions = np.random.default_rng(1).uniform(-1, 1, (30, 1))
    for action in actions:
        a, b = masked.step(action), free.step(action)
        np.testing.assert_array_equal(a.column("equity"), b.column("equity"))
        assert a.sample_weight[0] == 1.0
    assert masked.counters()["blocked"] > 0
    assert free.counters()["blocked"] == 0


def test_action_masks_leave_only_hold_where_a_block_is_foreseen():
    window = NoTradeConfig(closed=(DailyWindow(start="08:00", stop="09:00"),))
    config = SimConfig(actions=DiscreteActions(), episodes=EPISODE, no_trade=window)
    sim = MarketSim(CLEAN, config=config)
    seen = set()
    for _ in range(20):
        masks = sim.action_masks()
        next_hour = (
            int((CLEAN.time[sim.state.count(ROW)[0] + 1]).astype("datetime64[h]").astype(int)) % 24
        )
        expected = [False, False, False, True] if next_hour == 8 else [True] * 4
        assert masks[0].tolist() == expected
        seen.add(next_hour)
        blocked = sim.step(np.array([3])).column("blocked")[0]
        assert blocked == (next_hour == 8)
    assert 8 in seen
    ignored = dataclasses.replace(window, policy="ignore")
    assert (
        MarketSim(CLEAN, config=dataclasses.replace(config, no_trade=ignored)).action_masks().all()
    )


def test_without_a_hold_action_the_nearest_level_is_left():
    levels = DiscreteActions(levels=(-1.0, 0.0, 0.6), hold=False)
    config = SimConfig(actions=levels, episodes=EPISODE, costs=FREE, no_trade=NoTradeConfig())
    sim = MarketSim(BARS, config=config)
    for _ in range(39):
        masks = sim.action_masks()[0]
        if BARS.no_trade[sim.state.count(ROW)[0]]:
            position = sim.out.column("position")[0]
            nearest = int(np.argmin(np.abs(np.array(levels.levels) - position)))
            assert masks.tolist() == [k == nearest for k in range(3)]
        else:
            assert masks.all()
        sim.step(np.array([2]))


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: DailyWindow(start="25:00", stop="01:00"), "start: must be a time of day as HH:MM"),
        (lambda: DailyWindow(start="01:00", stop="01:00"), "stop: must differ from start"),
        (
            lambda: DailyWindow(start="01:00", stop="02:00", days=(7,)),
            "days.0.: must be less than 7; was 7",
        ),
        (lambda: FundingWindow(before=0, after=0), "must not both be 0"),
        (lambda: FundingWindow(times=("8:00",)), "times: must be a time of day as HH:MM"),
    ],
)
def test_windows_that_are_none_are_refused(build, message):
    with pytest.raises(ConfigError, match=message):
        build()
