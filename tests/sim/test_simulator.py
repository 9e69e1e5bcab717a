"""The batched simulator: determinism, state, episodes, bad input."""

import dataclasses

import numpy as np
import pytest

import quantail.sim.simulator as simulator_module
from quantail.errors import AccountingError, ConfigError, DataError
from quantail.sim.account import FillConfig
from quantail.sim.actions import ContinuousActions, DiscreteActions
from quantail.sim.config import ObservationConfig, SimConfig
from quantail.sim.costs import CostConfig, NoSlippage, RecordedSpread
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.random import env_seeds, seed_streams
from quantail.sim.simulator import MarketSim
from quantail.sim.state import (
    END_REASONS,
    EPISODE,
    LAST_ROW,
    LINE,
    MARK,
    R_FEES,
    ROW,
    STEP,
    SYMBOL,
    UNITS,
    StepBuffers,
)
from quantail.sim.stress import GapStress, StressConfig
from tests.catalogue import catalogue
from tests.sim.markets import LEVERED, make_bars, make_features

BARS = make_bars(200, 3, volatility=0.05, jumps=0.02, no_trade=True)
FEATURES = make_features(BARS)
STRESS = StressConfig(
    cost_multiplier=(0.5, 2.0),
    volatility_multiplier=(0.5, 1.5),
    gap=GapStress(probability=0.05),
    missing_probability=0.1,
)
BUSY = dataclasses.replace(
    LEVERED,
    fill=FillConfig(delay=3),
    stress=STRESS,
    episodes=EpisodeConfig(length=30, weights={"S0": 1.0, "S1": 2.0, "S2": 3.0}),
)


def copies(out: StepBuffers) -> dict[str, np.ndarray]:
    names = ("observation", "reward", "terminated", "truncated", "sample_weight", "record")
    return {name: getattr(out, name).copy() for name in names}


def test_env_i_of_n_equals_a_single_env_with_its_seed():
    n_envs, n_steps = LINE + 6, 100  # a full block of accounts and a part of one
    actions = np.random.default_rng(0).uniform(-1, 1, (n_steps, n_envs))
    together = MarketSim(BARS, FEATURES, config=BUSY, n_envs=n_envs, seed=40)
    trace = [copies(together.step(a)) for a in actions]
    assert sum(step["truncated"].sum() + step["terminated"].sum() for step in trace) > n_envs
    seeds = env_seeds(40, n_envs)
    for i in (0, 1, LINE // 2, LINE - 1, LINE, LINE + 5):
        alone = MarketSim(BARS, FEATURES, config=BUSY, n_envs=1, seed=seeds[i])
        for k in range(n_steps):
            for name, values in copies(alone.step(actions[k, i : i + 1])).items():
                np.testing.assert_array_equal(values[0], trace[k][name][i], err_msg=name)


def test_seeds_may_be_given_one_by_one():
    listed = MarketSim(BARS, FEATURES, config=BUSY, n_envs=3, seed=env_seeds(7, 3))
    counted = MarketSim(BARS, FEATURES, config=BUSY, n_envs=3, seed=7)
    np.testing.assert_array_equal(listed.state.count_blocks, counted.state.count_blocks)
    np.testing.assert_array_equal(listed.state.streams, counted.state.streams)
    with pytest.raises(ConfigError, match="one number or 3 numbers.*2 were given"):
        listed.reset(seed=[1, 2])


def test_saved_state_goes_on_bit_for_bit_in_mid_episode():
    rng = np.random.default_rng(1)
    actions = rng.uniform(-1, 1, (80, 6))
    sim = MarketSim(BARS, FEATURES, config=BUSY, n_envs=6, seed=2)
    for a in actions[:25]:
        sim.step(a)
    saved = sim.get_state()
    seen = sim.out.observation.copy()
    expected = [copies(sim.step(a)) for a in actions[25:]]
    other = MarketSim(BARS, FEATURES, config=BUSY, n_envs=6, seed=99)
    np.testing.assert_array_equal(other.set_state(saved), seen)
    for a, step in zip(actions[25:], expected, strict=True):
        for name, values in copies(other.step(a)).items():
            np.testing.assert_array_equal(values, step[name], err_msg=name)
    for name, values in sim.get_state().items():
        np.testing.assert_array_equal(values, other.get_state()[name], err_msg=name)


def test_steps_are_written_into_the_callers_buffers():
    sim = MarketSim(BARS, FEATURES, config=BUSY, n_envs=2)
    twin = MarketSim(BARS, FEATURES, config=BUSY, n_envs=2)
    mine = StepBuffers.allocate(2, sim.observation_size)
    assert sim.step(np.array([1.0, -1.0]), mine) is mine
    for name, values in copies(twin.step(np.array([1.0, -1.0]))).items():
        np.testing.assert_array_equal(getattr(mine, name), values)


def test_seeds_share_no_stream_and_do_not_depend_on_the_number_of_envs():
    streams = [seed_streams(seed, 200) for seed in range(20)]
    assert len(np.unique(streams)) == 20 * 200
    np.testing.assert_array_equal(streams[3][:7], seed_streams(3, 7))
    np.testing.assert_array_equal(streams[3][:1], seed_streams([3], 1))


# --- episodes ---


def test_random_starts_cover_the_window_and_leave_room():
    episodes = EpisodeConfig(length=50, warmup=10)
    config = SimConfig(episodes=episodes, costs=CostConfig(slippage=NoSlippage()))
    sim = MarketSim(BARS, FEATURES, windows={"S1": slice(220, 300)}, config=config, n_envs=2_000)
    starts = sim.state.count(ROW)
    assert set(starts) == set(range(230, 250))  # 249 + 50 steps = 299, the last bar of the window


def test_symbols_are_drawn_by_weight_or_dealt():
    sim = MarketSim(BARS, FEATURES, config=BUSY, n_envs=6_000)
    shares = np.bincount(sim.state.count(SYMBOL)) / 6_000
    np.testing.assert_allclose(shares, [1 / 6, 2 / 6, 3 / 6], atol=0.02)  # 3 s.e. = 0.019
    dealt = SimConfig(episodes=EpisodeConfig(length=5, symbols="dealt"))
    sim = MarketSim(BARS, FEATURES, config=dealt, n_envs=7)
    assert sim.state.count(SYMBOL).tolist() == [0, 1, 2, 0, 1, 2, 0]
    for _ in range(5):
        sim.step(np.zeros(7))
    assert sim.state.count(SYMBOL).tolist() == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize(("length", "steps", "reason"), [(12, 12, 1), (None, 178, 2)])
def test_time_limit_and_end_of_data_truncate_with_the_final_observation(length, steps, reason):
    config = SimConfig(episodes=EpisodeConfig(length=length, start="first"))
    sim = MarketSim(BARS, FEATURES, windows={"S0": slice(0, 200)}, config=config)
    twin = MarketSim(
        BARS, FEATURES, windows={"S0": slice(0, 200)}, config=config, autoreset="disabled"
    )
    first = sim.out.observation.copy()
    for _ in range(steps):
        assert not sim.out.truncated[0]
        out, last = sim.step(np.array([0.5])), twin.step(np.array([0.5]))
    assert out.truncated[0]
    assert not out.terminated[0]
    assert out.end_reason[0] == reason
    np.testing.assert_array_equal(out.final_observation, last.observation)
    assert out.final_observation[0, -1] == 0.0  # no time left
    np.testing.assert_array_equal(out.observation[0, :3], first[0, :3])  # the next episode began
    assert out.episode[0, EPISODE.index("length")] == steps


def test_missing_bars_are_stepped_over_and_their_funding_is_charged():
    stress = StressConfig(missing_probability=0.4)
    config = SimConfig(
        stress=stress, episodes=EpisodeConfig(length=None, start="first"), debug=True
    )
    sim = MarketSim(
        BARS, FEATURES, windows={"S0": slice(0, 200)}, config=config, autoreset="disabled"
    )
    rows = [int(sim.state.count(ROW)[0])]
    while not sim.out.truncated[0] and not sim.out.terminated[0]:
        units, row = sim.state.value(UNITS)[0], sim.state.count(ROW)[0]
        out = sim.step(np.array([1.0]))
        rows.append(int(sim.state.count(ROW)[0]))
        passed = BARS.funding[row + 1 : rows[-1] + 1].sum()
        if units != 0 and out.column("traded")[0] == 0:
            paid = out.column("funding")[0] / (units * BARS.open[rows[-1]])
            assert paid == pytest.approx(passed, rel=1e-6)
    jumps = np.diff(rows)
    assert rows[-1] == sim.state.count(LAST_ROW)[0]
    assert jumps.max() > 1
    assert jumps.mean() == pytest.approx(1 / 0.6, abs=0.35)


def test_stress_multiplies_costs_and_returns():
    plain = SimConfig(episodes=EpisodeConfig(length=10, start="first"))
    doubled = dataclasses.replace(
        plain, stress=StressConfig(cost_multiplier=(2.0, 2.0), volatility_multiplier=(2.0, 2.0))
    )
    one, two = (
        MarketSim(BARS, FEATURES, windows={"S0": slice(0, 90)}, config=c) for c in (plain, doubled)
    )
    row = int(one.state.count(ROW)[0])
    a, b = one.step(np.array([1.0])), two.step(np.array([1.0]))
    rates = [out.column("fees")[0] / out.column("traded")[0] for out in (a, b)]
    assert rates[1] == pytest.approx(2 * rates[0])
    moves = [np.log(sim.state.value(MARK)[0] / BARS.close[row]) for sim in (one, two)]
    assert moves[1] == pytest.approx(2 * moves[0])


# --- no real transition ---


@catalogue("X41")
def test_a_restart_from_outside_is_masked_and_never_looks_terminal():
    sim = MarketSim(BARS, FEATURES, config=BUSY, n_envs=3, seed=5)
    for _ in range(4):
        sim.step(np.full(3, 0.3))
    last = sim.out.observation.copy()
    sim.restart(np.array([False, True, False]))
    out = sim.step(np.full(3, 0.9))
    assert out.sample_weight.tolist()[1] == 0.0
    assert out.reward[1] == 0.0
    assert not out.terminated[1]
    assert out.truncated[1]
    assert END_REASONS[out.end_reason[1]] == "restarted"
    np.testing.assert_array_equal(out.final_observation[1], last[1])
    assert out.observation[1, -1] == 1.0  # a new episode, all its time left
    assert not out.truncated[[0, 2]].any()
    assert sim.step(np.zeros(3)).sample_weight[1] in {0.0, 1.0}
    assert sim.out.end_reason[1] == 0


def test_a_restart_finds_its_account_in_a_later_block():
    n_envs = LINE + 4
    sim = MarketSim(BARS, FEATURES, config=BUSY, n_envs=n_envs)
    sim.step(np.zeros(n_envs))
    sim.restart(np.arange(n_envs) == LINE + 2)
    out = sim.step(np.zeros(n_envs))
    assert np.flatnonzero(out.end_reason == END_REASONS.index("restarted")).tolist() == [LINE + 2]
    assert sim.state.count(STEP)[LINE + 2] == 0


@catalogue("X41")
def test_the_row_that_begins_an_episode_in_next_step_mode_has_weight_zero():
    config = SimConfig(episodes=EpisodeConfig(length=3))
    bars = make_bars(60)
    sim = MarketSim(bars, None, config=config, n_envs=1, autoreset="next_step")
    weights, ends = [], []
    for _ in range(8):
        out = sim.step(np.array([1.0]))
        weights.append(float(out.sample_weight[0]))
        ends.append(bool(out.truncated[0]))
    assert weights == [1, 1, 1, 0, 1, 1, 1, 0]
    assert ends == [False, False, True, False, False, False, True, False]


# --- bad input ---


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.array([0.0, np.nan]), r"action of env 1 must lie in \[-1, 1\]; was nan"),
        (np.array([-1.5, 0.0]), r"action of env 0 must lie in \[-1, 1\]; was -1.5. Clip it"),
        (np.array([0.0, np.inf]), "action of env 1 must lie in .*; was inf"),
        (np.zeros(3), r"actions must have shape \[2\] or \[2, 1\].*was \[3\]"),
        (np.zeros((2, 2)), r"actions must have shape .*was \[2, 2\]"),
        (np.array(["a", "b"]), "actions must be numbers; were of type <U1"),
        (np.zeros(2, complex), "actions must be numbers; were of type complex128"),
    ],
)
def test_bad_actions_are_refused_before_anything_changes(actions, message):
    sim = MarketSim(BARS, FEATURES, config=BUSY, n_envs=2)
    before = sim.get_state()
    with pytest.raises(ConfigError, match=message):
        sim.step(actions)
    for name, values in sim.get_state().items():
        np.testing.assert_array_equal(values, before[name])


def test_clipping_is_asked_for_and_counted():
    config = dataclasses.replace(BUSY, actions=ContinuousActions(out_of_range="clip"))
    clipped, plain = (MarketSim(BARS, FEATURES, config=c, n_envs=2) for c in (config, BUSY))
    for _ in range(6):
        a = copies(clipped.step(np.array([7.0, -0.5])))
        b = copies(plain.step(np.array([1.0, -0.5])))
        np.testing.assert_array_equal(a["record"], b["record"])
    assert clipped.counters()["clipped_actions"] == 6
    assert plain.counters()["clipped_actions"] == 0
    with pytest.raises(ConfigError, match="action of env 0 .* was nan"):
        clipped.step(np.array([np.nan, 0.0]))


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (4, "whole number from 0 to 3; was 4"),
        (-1, "was -1"),
        (0.5, "actions must be whole numbers"),
    ],
)
def test_bad_discrete_actions_are_refused(action, message):
    config = SimConfig(actions=DiscreteActions(), episodes=EpisodeConfig(length=5))
    sim = MarketSim(BARS, FEATURES, config=config)
    with pytest.raises(ConfigError, match=message):
        sim.step(np.array([action]))


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        ({"S0": slice(50, 50)}, r"window of S0 is empty \(rows 50 to 50\)"),
        ({"S1": slice(10, 90)}, "window of S1 must lie in rows 200 to 400; was 10 to 90"),
        ({"S0": slice(None, 90)}, "window of S0 must have a start and a stop row"),
        ({}, "windows names no symbol"),
        ({"S9": slice(0, 9)}, "symbol must be one of S0, S1, S2; was 'S9'"),
        (
            {"S0": slice(0, 40)},
            r"window of S0 has 40 bars; warm-up \(21\) and an episode \(30 steps\) need 52",
        ),
    ],
)
def test_bad_windows_are_refused(windows, message):
    config = SimConfig(episodes=EpisodeConfig(length=30))
    with pytest.raises(DataError, match=message):
        MarketSim(BARS, FEATURES, windows=windows, config=config)


def test_bad_features_are_refused_where_they_can_be_seen():
    config = SimConfig(
        episodes=EpisodeConfig(length=5, warmup=30), observation=ObservationConfig(window=4)
    )
    hidden = FEATURES.copy()
    hidden[[0, 200, 400], :] = np.nan  # warm-up rows that no observation reaches
    MarketSim(BARS, hidden, config=config)
    hidden[227, 2] = np.inf
    with pytest.raises(DataError, match=r"feature 2 of S1 is not finite at 2021-01-05T12.*row 227"):
        MarketSim(BARS, hidden, config=config)
    with pytest.raises(
        DataError, match=r"features must be numbers of shape \[600, F\].*\[599, 3\]"
    ):
        MarketSim(BARS, FEATURES[:-1], config=config)
    spread_free = dataclasses.replace(BARS, spread=None)
    recorded = dataclasses.replace(config, costs=CostConfig(spread=RecordedSpread()))
    with pytest.raises(DataError, match="spread.kind 'recorded' needs bars with a spread"):
        MarketSim(spread_free, config=recorded)
    with pytest.raises(DataError, match="volume of S0 is zero in every bar"):
        MarketSim(dataclasses.replace(BARS, volume=np.zeros(600)), config=config)


def test_state_of_another_simulator_is_refused():
    config = SimConfig(episodes=EpisodeConfig(length=5))
    sim = MarketSim(BARS, FEATURES, config=config, n_envs=2)
    fewer = MarketSim(BARS, FEATURES[:, :2], config=config, n_envs=2)
    with pytest.raises(DataError, match="saved state has 3 features; this simulator has 2"):
        fewer.set_state(sim.get_state())
    more = MarketSim(BARS, FEATURES, config=config, n_envs=3)
    with pytest.raises(DataError, match="saved state has 2 envs; this simulator has 3"):
        more.set_state(sim.get_state())
    with pytest.raises(DataError, match="saved state lacks streams"):
        sim.set_state({k: v for k, v in sim.get_state().items() if k != "streams"})


def test_other_misuse_is_refused():
    with pytest.raises(ConfigError, match="n_envs must be at least 1; was 0"):
        MarketSim(BARS, n_envs=0)
    with pytest.raises(
        ConfigError, match="autoreset must be one of disabled, same_step, next_step"
    ):
        MarketSim(BARS, autoreset="never")
    sim = MarketSim(BARS, config=SimConfig(episodes=EpisodeConfig(length=5)), n_envs=2)
    with pytest.raises(ConfigError, match="mask must be 2 booleans, one for each env"):
        sim.restart(np.array([1, 0]))
    with pytest.raises(ConfigError, match="action masks need actions.kind 'discrete'"):
        sim.action_masks()
    with pytest.raises(ConfigError, match="seed must be at least 0; was -1"):
        sim.reset(seed=-1)
    names = {"S0": 1.0, "S1": 1.0, "S3": 1.0}
    with pytest.raises(ConfigError, match="weights must name every symbol in use once"):
        MarketSim(BARS, config=SimConfig(episodes=EpisodeConfig(length=5, weights=names)))


def test_debug_mode_names_env_step_and_terms_of_broken_books(monkeypatch):
    """The kernel's own record is falsified after the step; the check must see it."""
    kernel = simulator_module.step_nb

    def falsified(*arguments):
        result = kernel(*arguments)
        arguments[20][0, R_FEES + 1] += 1.0
        return result

    sim = MarketSim(BARS, config=dataclasses.replace(BUSY, debug=True), n_envs=3)
    sim.step(np.zeros(3))
    monkeypatch.setattr(simulator_module, "step_nb", falsified)
    with pytest.raises(AccountingError, match=r"change of equity differs.*env 1, step 2.*fees 1"):
        sim.step(np.zeros(3))
