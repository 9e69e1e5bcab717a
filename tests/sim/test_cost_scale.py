"""A factor on the trading costs, for a ramp during training."""

import dataclasses

import numpy as np
import pytest

from quantail.errors import ConfigError
from quantail.sb3.vec_env import MarketVecEnv
from quantail.sim.account import AccountConfig
from quantail.sim.config import SimConfig
from quantail.sim.costs import CostConfig, MixedFee, SquareRootImpact, VolatilitySpread
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.simulator import MarketSim
from quantail.sim.state import RECORD
from quantail.sim.stress import StressConfig
from tests.sim.markets import make_bars, make_features

BARS = make_bars(200)
FEATURES = make_features(BARS)


def scaled_config(scale: float) -> SimConfig:
    """A configuration whose own trading costs are multiplied by ``scale``."""
    return SimConfig(
        account=AccountConfig(max_leverage=3.0, maintenance_margin=0.05),
        costs=CostConfig(
            fee=MixedFee(maker_share=0.3, maker_bps=1.0 * scale, taker_bps=10.0 * scale),
            spread=VolatilitySpread(window=5, minimum_bps=1.0 * scale, coefficient=0.05 * scale),
            slippage=SquareRootImpact(window=7, coefficient=1.0 * scale),
            borrow_rate=0.1,
            margin_rate=0.2,
        ),
        episodes=EpisodeConfig(length=30),
    )


def make(scale: float = 1.0, config: SimConfig | None = None) -> MarketSim:
    config = config or scaled_config(scale)
    return MarketSim(BARS, FEATURES, config=config, n_envs=4, seed=3)


@pytest.mark.parametrize("scale", [0.25, 3.0])
def test_a_scale_equals_costs_that_were_configured_so(scale):
    ramped, configured = make(), make(scale)
    ramped.set_cost_scale(scale)
    np.testing.assert_allclose(ramped.out.observation, configured.out.observation, rtol=1e-6)
    rng = np.random.default_rng(0)
    traded = 0.0
    for _ in range(90):
        actions = rng.uniform(-1, 1, 4)
        a, b = ramped.step(actions), configured.step(actions)
        np.testing.assert_allclose(a.record, b.record, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(a.observation, b.observation, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(a.reward, b.reward, rtol=1e-9, atol=1e-12)
        traded += a.column("slippage").sum()
    assert traded > 0.0


def test_it_acts_from_the_next_step_on_and_leaves_funding_and_interest():
    free, full = make(), make()
    actions = np.array([1.0, -1.0, 1.0, -1.0])
    free.step(actions)
    assert (free.out.column("fees") > 0.0).all()
    saved = free.get_state()
    full.set_state(saved)
    seen = free.out.observation.copy()
    free.set_cost_scale(0.0)
    seen[:, FEATURES.shape[1] + 4] = 0.0  # the cost estimate, at once; nothing else changes
    np.testing.assert_array_equal(free.out.observation, seen)
    a, b = free.step(-actions), full.step(-actions)
    for name in ("fees", "spread", "slippage"):
        assert (a.column(name) == 0.0).all()
        assert (b.column(name) > 0.0).all()
    assert (a.column("borrow") > 0.0).all()
    assert (a.column("funding") != 0.0).all()
    assert (a.observation[:, FEATURES.shape[1] + 4] == 0.0).all()  # the cost estimate
    assert (b.observation[:, FEATURES.shape[1] + 4] > 0.0).all()


def test_it_comes_on_top_of_stress():
    config = dataclasses.replace(
        scaled_config(1.0), stress=StressConfig(cost_multiplier=(2.0, 2.0))
    )
    sim = make(config=config)
    sim.set_cost_scale(0.5)
    rate = sim.step(np.ones(4)).column("fees") / sim.out.column("traded")
    np.testing.assert_allclose(rate, config.costs.fee.fraction)  # 2 · 0.5 = 1


def test_it_travels_with_the_state_and_stands_in_the_header():
    sim, other = make(), make()
    assert sim.cost_scale == 1.0
    assert "TIMES" not in sim.describe()
    sim.set_cost_scale(0.25)
    assert "FEE, SPREAD AND SLIPPAGE TIMES 0.25" in sim.describe()
    sim.reset(8)
    assert sim.cost_scale == 0.25
    other.set_state(sim.get_state())
    assert other.cost_scale == 0.25
    actions = np.linspace(-1, 1, 4)
    np.testing.assert_array_equal(sim.step(actions).record, other.step(actions).record)


@pytest.mark.parametrize("scale", [-0.1, float("nan"), 101.0, float("inf")])
def test_a_scale_out_of_range_is_refused(scale):
    sim = make()
    with pytest.raises(ConfigError, match=r"scale must lie in \[0, 100\]; was"):
        sim.set_cost_scale(scale)
    assert sim.cost_scale == 1.0


def test_it_is_reached_through_the_vec_env():
    env = MarketVecEnv(make())
    env.env_method("set_cost_scale", 0.5)
    assert env.get_attr("cost_scale") == [0.5] * 4
    with pytest.raises(ConfigError, match="indices must be None for set_cost_scale.*was \\[0\\]"):
        env.env_method("set_cost_scale", 0.5, indices=[0])


# --- every bar of given windows once ---


def test_windows_are_run_from_their_first_bar_to_their_last_one():
    bars = make_bars(120, 2)
    features = make_features(bars)
    windows = [("S0", slice(0, 60)), ("S0", slice(60, 120)), ("S1", slice(140, 240))]
    config = dataclasses.replace(scaled_config(1.0), episodes=EpisodeConfig(length=7))
    sim = MarketSim.over_windows(bars, features, windows, config)
    assert sim.n_envs == 3
    warmup = config.costs.warmup
    first = [warmup, 60, 140]  # later windows have their warm-up before them
    rows: list[list[int]] = [[], [], []]
    actions = np.array([0.5, -0.5, 1.0])
    while not sim.out.truncated.all():
        running = sim.out.truncated == 0
        out = sim.step(actions)
        for env in np.flatnonzero(running):
            rows[env].append(int(out.column("row")[env]))
        assert (out.sample_weight[~running] == 0.0).all()
    for env, (_, window) in enumerate(windows):
        assert rows[env] == list(range(first[env] + 1, window.stop))


def test_an_account_over_a_window_equals_one_that_is_alone():
    bars = make_bars(120, 2)
    features = make_features(bars)
    windows = {"S0": slice(20, 70), "S1": slice(150, 240)}
    both = MarketSim.over_windows(bars, features, windows)
    for env, (symbol, window) in enumerate(windows.items()):
        alone = MarketSim.over_windows(bars, features, {symbol: window})
        both.reset()
        np.testing.assert_array_equal(both.out.observation[env], alone.out.observation[0])
        while not alone.out.truncated[0]:
            alone.step(np.array([0.7]))
            both.step(np.array([0.7, 0.7]))
            np.testing.assert_array_equal(
                both.out.record[env, : RECORD.index("row")], alone.out.record[0, :-3]
            )


def test_random_windows_are_refused():
    config = SimConfig(stress=StressConfig(missing_probability=0.1))
    with pytest.raises(ConfigError, match="stress must be off to run over windows"):
        MarketSim.over_windows(BARS, FEATURES, {"S0": slice(0, 60)}, config)
