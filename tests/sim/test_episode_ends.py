"""What the last step of an episode is: a cut in an account that goes on, or its end."""

import dataclasses
from collections import Counter

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.vec_env import DummyVecEnv

from quantail import DistributionalPPO
from quantail.config_file import read_config
from quantail.errors import ConfigError
from quantail.experiment.config import RunConfig
from quantail.sb3.vec_env import MarketVecEnv
from quantail.sim.account import FillConfig
from quantail.sim.config import SimConfig
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.gym_env import MarketEnv, MarketVectorEnv
from quantail.sim.random import env_seeds
from quantail.sim.rewards import LogReturn, PotentialShaped
from quantail.sim.simulator import MarketSim
from quantail.sim.state import END_REASONS, LINE
from quantail.sim.stress import StressConfig
from quantail.targets.compute import compute_targets
from tests.sim.markets import LEVERED, make_bars, make_features

BARS = make_bars(120, 3, volatility=0.05, jumps=0.02, no_trade=True)
FEATURES = make_features(BARS)
CUT = dataclasses.replace(
    LEVERED,
    fill=FillConfig(delay=2),
    stress=StressConfig(cost_multiplier=(0.5, 2.0), missing_probability=0.2),
    episodes=EpisodeConfig(length=30),
)
FINAL = dataclasses.replace(CUT, episodes=EpisodeConfig(length=30, end="final"))
SHORT = SimConfig(episodes=EpisodeConfig(length=10, end="final"))
NAMES = ("observation", "final_observation", "reward", "sample_weight", "end_reason", "record")


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
def test_only_the_flags_of_a_time_limit_differ(mode):
    """Ruins terminate, and the end of the data and restarts cut, whatever ``end`` is."""
    n_envs = LINE + 6  # a full block of accounts and a part of one
    cut, final = (
        MarketSim(BARS, FEATURES, config=config, n_envs=n_envs, seed=3, autoreset=mode)
        for config in (CUT, FINAL)
    )
    rng, reasons, others = np.random.default_rng(0), Counter(), Counter()
    for step in range(70):
        if step == 20:
            asked = rng.random(n_envs) < 0.1
            cut.restart(asked)
            final.restart(asked)
        actions = rng.uniform(-1, 1, n_envs)
        a, b = cut.step(actions), final.step(actions)
        for name in NAMES:
            np.testing.assert_array_equal(getattr(a, name), getattr(b, name), name)
        ended = a.end_reason != 0
        timed = a.end_reason == END_REASONS.index("time_limit")
        assert a.truncated[timed].all()
        assert not a.terminated[timed].any()
        assert b.terminated[timed].all()
        assert not b.truncated[timed].any()
        np.testing.assert_array_equal(a.terminated[ended & ~timed], b.terminated[ended & ~timed])
        np.testing.assert_array_equal(a.truncated[ended & ~timed], b.truncated[ended & ~timed])
        np.testing.assert_array_equal(a.terminated | a.truncated, b.terminated | b.truncated)
        reasons.update(END_REASONS[code] for code in a.end_reason[ended])
        others.update(END_REASONS[code] for code in b.end_reason[b.truncated & ended])
    assert min(reasons[name] for name in ("time_limit", "end_of_data", "restarted")) > 5, reasons
    assert reasons["bankrupt"] + reasons["liquidated"] > 5, reasons
    assert set(others) == {"end_of_data", "restarted"}


def test_a_finished_account_rests_as_terminated():
    sim = MarketSim(BARS, FEATURES, config=SHORT, n_envs=2, autoreset="disabled")
    for _ in range(13):
        out = sim.step(np.zeros(2))
    assert out.terminated.all()
    assert not out.truncated.any()
    again = MarketSim(BARS, FEATURES, config=SHORT, n_envs=2, seed=9, autoreset="disabled")
    again.set_state(sim.get_state())
    assert again.step(np.zeros(2)).terminated.all()


def test_shaping_leaves_nothing_at_a_final_end():
    """Σ γ^t (shaped - plain) = γ^T Φ(s_T) - Φ(s_0), and both potentials are 0."""
    gamma, length = 0.9, 12
    shaped = PotentialShaped(gamma=gamma, position_weight=0.3, drawdown_weight=2.0)
    actions = np.random.default_rng(3).uniform(-1, 1, (length, 6))
    left = {}
    for end in ("cut", "final"):
        totals = []
        for reward in (shaped, LogReturn()):
            episodes = EpisodeConfig(length=length, end=end)
            config = SimConfig(reward=reward, episodes=episodes)
            sim = MarketSim(make_bars(60), None, config=config, n_envs=6, seed=1)
            totals.append(sum(gamma**t * sim.step(a).reward for t, a in enumerate(actions)))
        left[end] = totals[0] - totals[1]
    np.testing.assert_allclose(left["final"], 0.0, atol=1e-12)
    assert (left["cut"] < -0.01).all()


def test_an_end_that_is_never_reached_is_refused():
    message = "end: has no effect with episodes.length null.*give a length, or set it to cut"
    with pytest.raises(ConfigError, match=message):
        EpisodeConfig(length=None, end="final")
    with pytest.raises(ConfigError, match="end: must be .*cut.*final.*; was 'truncate'"):
        EpisodeConfig(end="truncate")


def test_a_run_over_windows_still_goes_to_their_last_bars():
    windows = [("S0", slice(30, 80)), ("S1", slice(150, 180))]
    sim = MarketSim.over_windows(BARS, FEATURES, windows, SHORT)
    for _ in range(49):
        out = sim.step(np.zeros(2))
    assert out.truncated.all()
    assert not out.terminated.any()


def test_header_and_file_say_which_end(tmp_path):
    assert "episodes: 10 steps, then over, random start" in SHORT.describe()
    assert "episodes: 256 steps, then cut, random start" in SimConfig().describe()
    whole = SimConfig(episodes=EpisodeConfig(length=None))
    assert "episodes: to the end of the data, random start" in whole.describe()
    lines = ("kind: market", "data: {source: {kind: synthetic}}", "simulator:",
             "  episodes: {length: 50, end: final}")  # fmt: skip
    path = tmp_path / "run.yaml"
    path.write_text("\n  ".join(("environment:", *lines)))
    run = read_config(RunConfig, path)
    assert run.environment.simulator.episodes == EpisodeConfig(length=50, end="final")


# --- the same through every interface ---


def test_sb3_skin_equals_sb3s_own_vec_env_over_single_envs():
    ours = MarketVecEnv(MarketSim(BARS, FEATURES, config=SHORT, n_envs=4))
    theirs = DummyVecEnv([lambda: MarketEnv(BARS, FEATURES, config=SHORT)] * 4)
    theirs._seeds = list(ours.seed(21))
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    rng, endings = np.random.default_rng(0), 0
    for _ in range(25):
        actions = rng.uniform(-1, 1, (4, 1)).astype(np.float32)
        a, b = ours.step(actions), theirs.step(actions)
        for mine, reference in zip(a[:3], b[:3], strict=True):
            np.testing.assert_array_equal(mine, reference)
        for env in np.flatnonzero(a[2]):
            mine, reference = a[3][env], b[3][env]
            assert mine["TimeLimit.truncated"] is reference["TimeLimit.truncated"] is False
            assert mine["episode_summary"]["end_reason"] == "time_limit"
            final = mine["terminal_observation"]
            np.testing.assert_array_equal(final, reference["terminal_observation"])
            assert final[-1] == 0.0  # no time left, and the agent sees it
            endings += 1
    assert endings == 8


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_vector_env_equals_gymnasiums_own(mode):
    mode = gym.vector.AutoresetMode(mode)
    ours = MarketVectorEnv(BARS, FEATURES, config=SHORT, num_envs=3, autoreset_mode=mode)
    theirs = gym.vector.SyncVectorEnv(
        [lambda: MarketEnv(BARS, FEATURES, config=SHORT)] * 3, autoreset_mode=mode
    )
    ours.reset(seed=4)
    theirs.reset(seed=env_seeds(4, 3))
    rng, ended = np.random.default_rng(0), 0
    for _ in range(25):
        actions = rng.uniform(-1, 1, (3, 1)).astype(np.float32)
        a, b = ours.step(actions), theirs.step(actions)
        for mine, reference in zip(a[:4], b[:4], strict=True):
            np.testing.assert_array_equal(mine, reference)
        ended += int(a[2].sum())
        assert not a[3].any()
    assert ended == 6


@pytest.mark.filterwarnings("error")
def test_sb3_checker_finds_nothing():
    check_env(MarketEnv(BARS, FEATURES, config=SHORT))


@pytest.mark.parametrize("end", ["cut", "final"])
def test_an_agent_values_nothing_after_a_final_end(end):
    """The target of the last row is its reward alone; after a cut it holds the critics' value."""
    episodes = EpisodeConfig(length=8, end=end)
    sim = MarketSim(BARS, FEATURES, config=SimConfig(episodes=episodes), n_envs=4)
    model = DistributionalPPO("MlpPolicy", MarketVecEnv(sim), n_steps=16, batch_size=64, seed=0)
    _, callback = model._setup_learn(64)
    model.collect_rollouts(model.env, callback, model.rollout_buffer, 16)
    rollout = model._rollout
    last = np.arange(16) % 8 == 7
    is_final = end == "final"
    assert (rollout.terminated.numpy() == (last[:, None] & is_final)).all()
    assert (rollout.truncated.numpy() == (last[:, None] & (not is_final))).all()
    assert len(rollout.truncated_values[0].mean()) == (0 if is_final else 8)
    targets = compute_targets(
        rollout, model.learner_config.targets, model.policy.net.config.twin, model._generator
    )
    held = (targets.returns - rollout.rewards)[last].abs()
    assert (held == 0.0).all() if is_final else (held > 0.0).all()
