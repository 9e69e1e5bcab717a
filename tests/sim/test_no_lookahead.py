"""Changing any bar after t changes nothing that the agent or the books saw up to t."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quantail.market.bars import Bars
from quantail.sim.account import AccountConfig
from quantail.sim.actions import DiscreteActions
from quantail.sim.config import ObservationConfig, SimConfig
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.no_trade import DailyWindow, NoTradeConfig
from quantail.sim.simulator import MarketSim
from quantail.sim.stress import GapStress, StressConfig
from tests.sim.markets import FILLS, FULL_COSTS, RECORDED_COSTS, make_bars, make_features

N_BARS, N_ENVS, START = 60, 4, 12


def changed_after(bars: Bars, features: np.ndarray, row: int, seed: int):
    """The same market up to ``row``, another one from there on: prices, volume, spread, masks."""
    other = make_bars(N_BARS, seed=seed + 1_000, volatility=0.2, no_trade=True)
    columns = ("open", "high", "low", "close", "volume", "spread", "funding", "no_trade")
    mixed = {}
    for name in columns:
        values = getattr(bars, name).copy()
        values[row + 1 :] = getattr(other, name)[row + 1 :]
        mixed[name] = values
    seen = features.copy()
    seen[row + 1 :] = 9.0
    return dataclasses.replace(bars, **mixed), seen


def run(bars, features, config, steps, actions):
    sim = MarketSim(bars, features, config=config, n_envs=N_ENVS, seed=3)
    discrete = isinstance(config.actions, DiscreteActions)
    seen = [(sim.out.observation.copy(), sim.action_masks() if discrete else None)]
    for k in range(steps):
        out = sim.step(actions[k])
        seen.append((
            out.observation.copy(), sim.action_masks() if discrete else None, out.reward.copy(),
            out.terminated.copy(), out.sample_weight.copy(), out.record.copy(),
            {name: value for name, value in sim.get_state().items() if name != "layout"},
        ))  # fmt: skip
    return seen


def assert_same(one, two):
    if isinstance(one, dict):
        for key in one:
            assert_same(one[key], two[key])
    elif isinstance(one, tuple | list):
        for a, b in zip(one, two, strict=True):
            assert_same(a, b)
    elif one is not None:
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("kind", ["continuous", "discrete_masked", "stressed"])
@settings(max_examples=6)
@given(steps=st.integers(0, 40), seed=st.integers(0, 1_000))
def test_future_bars_do_not_reach_the_present(fill, kind, steps, seed):
    config = SimConfig(
        account=AccountConfig(max_leverage=2.0),
        fill=FILLS[fill],
        costs=RECORDED_COSTS if kind == "discrete_masked" else FULL_COSTS,
        episodes=EpisodeConfig(length=N_BARS - START - 1, start="first", warmup=START),
        observation=ObservationConfig(window=3),
    )
    if kind == "discrete_masked":
        mask = NoTradeConfig(closed=(DailyWindow(start="08:00", stop="12:00"),))
        config = dataclasses.replace(config, actions=DiscreteActions(), no_trade=mask)
    if kind == "stressed":
        gap = GapStress(probability=0.2, size=0.2)
        stress = StressConfig(gap=gap, volatility_multiplier=(0.5, 2.0), cost_multiplier=(1.0, 2.0))
        config = dataclasses.replace(config, stress=stress)
    bars = make_bars(N_BARS, seed=seed, no_trade=True)
    features = make_features(bars)
    rng = np.random.default_rng(seed)
    if kind == "discrete_masked":
        actions = rng.integers(0, config.actions.n_actions, (steps + 1, N_ENVS))
    else:
        actions = rng.uniform(-1, 1, (steps + 1, N_ENVS))
    # After k steps the agent stands at the close of bar START + k.
    other_bars, other_features = changed_after(bars, features, START + steps, seed)
    before = run(bars, features, config, steps, actions)
    after = run(other_bars, other_features, config, steps, actions)
    assert_same(before, after)


@pytest.mark.parametrize("fill", FILLS)
def test_the_change_is_seen_one_step_later(fill):
    """The property above could hold for a market that nobody reads; this one is read."""
    bars = make_bars(N_BARS, seed=1, no_trade=False)
    features = make_features(bars)
    episodes = EpisodeConfig(length=20, start="first", warmup=25)
    config = SimConfig(fill=FILLS[fill], episodes=episodes)
    actions = np.random.default_rng(0).uniform(-1, 1, (9, N_ENVS))
    columns = {name: getattr(bars, name).copy() for name in ("open", "high", "low", "close")}
    for values in columns.values():
        values[25 + 8 :] *= 1.1
    other = dataclasses.replace(bars, **columns)
    one, two = (run(b, features, config, 8, actions) for b in (bars, other))
    assert_same(one[:8], two[:8])
    assert (one[8][2] != two[8][2]).all()
