import numpy as np
import pytest
import torch

from quantail import DistributionalPPO
from quantail.errors import ConfigError
from quantail.evaluation import backtest as module
from quantail.evaluation.backtest import MarketTask
from quantail.evaluation.bootstrap import BootstrapConfig
from quantail.evaluation.curves import MarketEvaluation, run_variants, sensitivity_curves
from quantail.evaluation.evaluate_market import judge_market, overfitting
from quantail.evaluation.measures import MEASURES
from quantail.evaluation.record_file import load_evaluation, save_evaluation
from quantail.sb3.vec_env import MarketVecEnv
from quantail.sim.account import FillConfig
from quantail.sim.config import ObservationConfig, SimConfig
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.simulator import MarketSim
from tests.sim.markets import make_bars

SETTINGS = MarketEvaluation(bootstrap=BootstrapConfig(samples=100))
CONFIG = SimConfig(episodes=EpisodeConfig(length=50))


@pytest.fixture(scope="module")
def market():
    bars = make_bars(200, 2, seed=3, volatility=0.01)
    return bars, np.random.default_rng(0).normal(size=(400, 2)).astype(np.float32)


@pytest.fixture(scope="module")
def agent(market):
    env = MarketVecEnv(MarketSim(*market, config=CONFIG, n_envs=4))
    agent = DistributionalPPO("MlpLstmPolicy", env, n_steps=8, batch_size=16, gamma=0.6, seed=0)
    with torch.no_grad():  # so that it trades more than dust
        for parameter in agent.policy.net.actor.parameters():
            parameter.mul_(100.0)
    return agent


@pytest.fixture(scope="module")
def evaluation(market, agent):
    task = MarketTask.of_rows(*market, np.array([[100, 200], [300, 400]]), CONFIG)
    trials = np.random.default_rng(0).normal(0.0, 0.01, (99, 3))
    return judge_market(
        task, agent, role="test", split="fold 0", seeds=(0,), n_trials=3, trial_returns=trials,
        settings=SETTINGS,
    )[0]  # fmt: skip


def test_all_tracks_measures_and_comparisons_are_there(evaluation):
    names = [track.name for track in evaluation.tracks]
    assert names == [
        "agent", "agent_sampled", "flat", "buy_and_hold", "momentum", "best_constant",
        "average_position",
    ]  # fmt: skip
    assert list(evaluation.measures) == names
    assert [comparison.baseline for comparison in evaluation.comparisons] == names[1:]
    assert {len(track.portfolio) for track in evaluation.tracks} == {99}
    assert all(hasattr(evaluation.measures["agent"], name) for name in MEASURES)
    assert evaluation.symbols == ("S0", "S1")
    assert evaluation.main_baseline in names


def test_curves_pass_through_the_agents_own_result(evaluation):
    own = evaluation.measures["agent"].total_return.value
    costs = {point.factor: point for point in evaluation.cost_curve.points}
    assert list(costs) == [0.0, 0.5, 1.0, 2.0, 4.0]
    assert costs[1.0].total_return == pytest.approx(own, rel=1e-12)
    assert evaluation.measures["agent"].costs_paid.value > 0.005
    totals = [point.total_return for point in evaluation.cost_curve.points]
    assert totals == sorted(totals, reverse=True)
    delays = {point.factor: point for point in evaluation.delay_curve.points}
    assert list(delays) == [0, 1, 2]
    assert delays[0].total_return == costs[1.0].total_return
    assert delays[1].total_return != delays[2].total_return


def test_small_groups_give_the_same_curves(evaluation, market, agent, monkeypatch):
    monkeypatch.setattr(module, "_MOST_STEPS", 1)
    task = MarketTask.of_rows(*market, np.array([[100, 200], [300, 400]]), CONFIG)
    _, tracks = run_variants(task, agent, SETTINGS)
    costs, delays = sensitivity_curves(tracks, SETTINGS, evaluation.periods_per_year)
    for ours, theirs in ((costs, evaluation.cost_curve), (delays, evaluation.delay_curve)):
        for mine, other in zip(ours.points, theirs.points, strict=True):
            assert mine.factor == other.factor
            assert mine.total_return == pytest.approx(other.total_return, abs=1e-5)


def test_the_next_move_in_a_feature_is_found_to_be_skill():
    bars = make_bars(400, 1, seed=5, volatility=0.01)
    ahead = np.append(np.diff(np.log(bars.close)), 0.0).astype(np.float32)[:, None]
    config = SimConfig(
        fill=FillConfig(price="close", delay=0), episodes=EpisodeConfig(length=50),
        observation=ObservationConfig(account_state=False),
    )  # fmt: skip
    env = MarketVecEnv(MarketSim(bars, ahead, config=config, n_envs=4))
    layers = {"net_arch": {"pi": [], "vf": []}, "normalize_observations": False}
    oracle = DistributionalPPO("MlpPolicy", env, n_steps=8, batch_size=16, policy_kwargs=layers)
    with torch.no_grad():
        for name, parameter in oracle.policy.net.actor.named_parameters():
            parameter.fill_(1000.0 if name.endswith("weight") else 0.0)
    task = MarketTask.of_rows(bars, ahead, np.array([[100, 400]]), config)
    settings = MarketEvaluation(bootstrap=SETTINGS.bootstrap, sampled=False)
    found = judge_market(task, oracle, role="test", split="x", settings=settings)[0]
    assert found.verdict.evidence
    assert found.verdict.level == "skill"
    totals = [point.total_return for point in found.delay_curve.points]
    assert totals[0] > 0.5 > max(totals[1:])  # a bar later the news is old


def test_the_critic_is_judged(evaluation):
    # gamma .6: stretches of 6 steps, 99 steps: 16 of them less the last, two accounts
    assert evaluation.calibration.horizon == 6
    assert evaluation.calibration.n == 2 * 16


def test_trials_count(evaluation):
    assert evaluation.overfitting.n_trials == 3
    assert 0.0 <= evaluation.overfitting.deflated_sharpe <= 1.0
    assert 0.0 <= evaluation.overfitting.probability <= 1.0
    noise = np.random.default_rng(0).normal(0.001, 0.01, 200)
    assert overfitting(noise, 1).probability is None
    assert overfitting(noise, 50).deflated_sharpe < overfitting(noise, 1).deflated_sharpe


def test_an_untrained_agent_shows_no_skill(evaluation):
    assert not evaluation.verdict.evidence
    assert evaluation.verdict.sentence.startswith("No evidence of skill")
    difference = evaluation.verdict.numbers["annual_versus_buy_and_hold"]
    tracks = [evaluation.track(name).portfolio.net_return for name in ("agent", "buy_and_hold")]
    expected = evaluation.periods_per_year * (tracks[0] - tracks[1]).mean()
    assert difference == pytest.approx(expected)


def test_it_is_saved_and_repeats_itself(evaluation, market, agent, tmp_path):
    save_evaluation(evaluation, tmp_path / "test")
    loaded = load_evaluation(tmp_path / "test")
    assert loaded.verdict == evaluation.verdict
    task = MarketTask.of_rows(*market, np.array([[100, 200], [300, 400]]), CONFIG)
    again = judge_market(task, agent, role="test", split="fold 0", settings=SETTINGS)[0]
    assert again.verdict == evaluation.verdict
    for name in ("agent", "agent_sampled", "momentum"):
        ours, theirs = again.track(name).bars.equity, loaded.track(name).bars.equity
        np.testing.assert_array_equal(ours, theirs)


def test_windows_too_short_for_the_critics_horizon_are_noted(market, agent):
    task = MarketTask.of_rows(*market, np.array([[100, 130]]), CONFIG)
    settings = MarketEvaluation(
        bootstrap=SETTINGS.bootstrap, cost_factors=(), delays=(), sampled=False
    )
    found = judge_market(task, agent, role="validation", split="x", settings=settings)[0]
    assert found.calibration is None
    assert found.cost_curve is None
    assert found.delay_curve is None
    assert "forecasts cannot be judged" in found.notes[-1]
    assert [track.name for track in found.tracks][:2] == ["agent", "flat"]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"cost_factors": (0.0, 2.0)}, "cost_factors: must rise and include 1"),
        ({"cost_factors": (2.0, 1.0)}, "must rise and include 1"),
        ({"delays": (1, 2)}, "delays: must rise and include 0"),
        ({"cost_factors": (-1.0, 1.0)}, "cost_factors"),
        ({"momentum_window": 0}, "momentum_window"),
    ],
)
def test_settings_without_a_reference_point_are_refused(keywords, message):
    with pytest.raises(ConfigError, match=message):
        MarketEvaluation(**keywords)
