"""Settings that contradict one another, or that nothing would read, are refused."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from quantail.config_file import parse_config, write_config
from quantail.errors import ConfigError
from quantail.sim.account import AccountConfig, FillConfig
from quantail.sim.account_state import ACCOUNT_STATE, account_state
from quantail.sim.actions import ContinuousActions, DiscreteActions
from quantail.sim.config import SimConfig
from quantail.sim.costs import CostConfig
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.kernels import step_nb
from quantail.sim.no_trade import DailyWindow, FundingWindow, NoTradeConfig
from quantail.sim.parameters import Parameters, pack, unpack_nb
from quantail.sim.records import CostSummary, finite_fractions, summarize_costs
from quantail.sim.simulator import MarketSim
from quantail.sim.state import ENTRY, EQUITY, MARK, PEAK, SINCE_TRADE, UNITS
from quantail.sim.stress import GapStress, StressConfig
from tests.catalogue import catalogue
from tests.sim.markets import FILLS, LEVERED, make_bars

LONG_ONLY = ContinuousActions(long_only=True)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: FillConfig(delay=0), "delay: must be at least 1 for fill.price 'open'; was 0"),
        (
            lambda: AccountConfig(max_leverage=5.0, maintenance_margin=0.2),
            "maintenance_margin: must be less than 1 / max_leverage = 0.2; was 0.2",
        ),
        (
            lambda: AccountConfig(minimum_notional=2e4),
            "minimum_notional: must not exceed the largest position, 10000; was 20000",
        ),
        (lambda: AccountConfig(initial_equity=0.0), "initial_equity: must be greater than 0"),
        (lambda: DiscreteActions(levels=(0.0, 2.0)), r"levels: must lie in \[-1, 1\]"),
        (lambda: DiscreteActions(levels=(1.0, 0.0)), "levels: must rise from one to the next"),
        (
            lambda: EpisodeConfig(symbols="dealt", weights={"A": 1.0}),
            "weights: has no effect with episodes.symbols 'dealt'",
        ),
        (lambda: EpisodeConfig(weights={"A": 0.0}), "weights.*must be greater than 0"),
        (
            lambda: StressConfig(cost_multiplier=(2.0, 1.0)),
            r"cost_multiplier: must be a range low, high inside \[0, 100\]; was \(2.0, 1.0\)",
        ),
        (
            lambda: SimConfig(actions=LONG_ONLY, costs=CostConfig(borrow_rate=0.1)),
            "costs.borrow_rate: has no effect for a long-only account",
        ),
        (lambda: SimConfig(costs=CostConfig(margin_rate=0.1)), "costs.margin_rate: has no effect"),
        (
            lambda: SimConfig(
                actions=DiscreteActions(levels=(0.0, 1.0)),
                account=AccountConfig(maintenance_margin=0.1, allow_negative_equity=True),
            ),
            "maintenance_margin: has no effect.*\n.*allow_negative_equity: has no effect",
        ),
    ],
)
def test_contradictions_are_refused(build, message):
    with pytest.raises(ConfigError, match=message):
        build()


def test_the_whole_configuration_survives_the_file():
    config = dataclasses.replace(
        LEVERED,
        actions=DiscreteActions(levels=(-1.0, 0.5)),
        fill=FILLS["open_after_3"],
        episodes=EpisodeConfig(weights={"A": 1.0}),
        no_trade=NoTradeConfig(
            closed=(DailyWindow(start="01:00", stop="02:00"),), funding=FundingWindow()
        ),
        stress=StressConfig(gap=GapStress()),
    )
    assert parse_config(SimConfig, write_config(config)) == config
    with pytest.raises(ConfigError, match="costs.spread.half_bps: must be at least 0; was -1"):
        parse_config(SimConfig, "costs: {spread: {half_bps: -1}}")


def test_parameters_reach_the_kernel_under_their_own_names():
    config = dataclasses.replace(LEVERED, turnover_penalty=0.25, reward_clip=3.0)
    packed = pack(config, "next_step")
    assert len(packed) == len(Parameters._fields)
    names = unpack_nb(np.arange(float(len(packed))))
    assert list(names) == list(range(len(packed)))
    values = dict(zip(Parameters._fields, packed, strict=True))
    expected = {
        "max_leverage": 3.0, "maintenance_margin": 0.05, "least_equity": 1_000.0,
        "max_notional": np.inf, "turnover_penalty": 0.25, "reward_clip": 3.0, "autoreset": 2.0,
        "held_weight": 1.0, "fee": pytest.approx(7.3e-4),
    }  # fmt: skip
    assert {name: values[name] for name in expected} == expected


def test_one_account_state_function_serves_training_and_export():
    """What the kernel shows of an account is what the public function gives for its numbers."""
    sim = MarketSim(
        make_bars(100),
        config=dataclasses.replace(LEVERED, episodes=EpisodeConfig(length=50)),
        n_envs=5,
    )
    for _ in range(20):
        sim.step(np.random.default_rng(0).uniform(-1, 1, 5))
    now, shown = sim.state.value, sim.out.observation
    state = account_state(
        units=now(UNITS), price=now(MARK), equity=now(EQUITY),
        drawdown=1 - now(EQUITY) / now(PEAK), entry=now(ENTRY),
        since_trade=sim.state.count(SINCE_TRADE),
        cost_rate=shown[:, 4] / 100, time_left=0.6, max_leverage=3.0,
    )  # fmt: skip
    np.testing.assert_allclose(state, shown, rtol=1e-6)
    assert len(ACCOUNT_STATE) == shown.shape[1]


def test_an_account_without_equity_shows_no_position():
    state = account_state(
        units=1.0, price=2.0, equity=0.0, drawdown=1.0, entry=1.0, since_trade=20, cost_rate=0.01,
        time_left=0.5, max_leverage=1.0,
    )  # fmt: skip
    np.testing.assert_allclose(state, [[0, 0, 1, 0.5, 1, 0.5]])


@catalogue("F62")
def test_a_cost_fraction_that_is_no_number_is_left_out_and_counted():
    summary = summarize_costs([1e-3, np.inf, "x", np.nan])
    assert summary == CostSummary(mean=1e-3, median=1e-3, excluded=3, n=1)
    np.testing.assert_array_equal(finite_fractions([1, True, None, -np.inf]), [1, *[np.nan] * 3])
    array = np.array([[1.0, np.inf], [3.0, np.nan]], np.float32)
    assert summarize_costs(array) == CostSummary(mean=2.0, median=2.0, excluded=2, n=2)
    assert np.isnan(summarize_costs([]).mean)


@catalogue("F62")
def test_the_record_holds_nan_where_costs_have_no_fraction():
    """An account with a debt cannot state its costs as a fraction; equity 1e-320 overflows it."""
    bars = make_bars(60)
    account = AccountConfig(bankruptcy_fraction=0.0)
    sim = MarketSim(bars, config=SimConfig(account=account, episodes=EpisodeConfig(length=5)))
    sim.step(np.array([1.0]))
    sim.state.value_blocks[0, EQUITY] = 1e-320
    out = sim.step(np.array([-1.0]))
    fraction = out.column("cost_fraction")
    assert np.isnan(fraction[0])
    assert summarize_costs(fraction).excluded == 1


def test_cached_machine_code_belongs_to_the_sources_of_all_helpers():
    """A helper of another file is compiled into the kernel, so its text must be in the stamp."""
    stamp = step_nb._cache._cache_file._source_stamp
    folder = Path(sys.modules["quantail.sim.compiled"].__file__).parent
    assert isinstance(stamp, tuple)
    code = (
        "import pathlib, quantail.sim.compiled as c\n"
        "read = pathlib.Path.read_bytes\n"
        "pathlib.Path.read_bytes = lambda p: read(p) + (b'#' if p.name == 'costs.py' else b'')\n"
        "print(c._sources_digest())"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (folder / "costs.py").exists()
    assert other.stdout.strip() not in {"", stamp[1]}


def test_importing_the_package_does_not_load_numba():
    code = "import sys, quantail; print('numba' in sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "False"
