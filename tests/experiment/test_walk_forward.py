"""Several splits as one judgment say what a judgment of all their bars at once would say."""

import dataclasses

import numpy as np
import pytest
import torch

from quantail import DistributionalPPO
from quantail.evaluation.backtest import MarketTask
from quantail.evaluation.bootstrap import BootstrapConfig
from quantail.evaluation.calibration import UNJUDGED_CRITIC
from quantail.evaluation.curves import MarketEvaluation
from quantail.evaluation.evaluate_market import judge_market, overfitting
from quantail.experiment.walk_forward import join_evaluations
from quantail.sb3.vec_env import MarketVecEnv
from quantail.sim.config import SimConfig
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.simulator import MarketSim
from tests.sim.markets import make_bars

SETTINGS = MarketEvaluation(bootstrap=BootstrapConfig(samples=100), sampled=False)
CONFIG = SimConfig(episodes=EpisodeConfig(length=50))
ROWS = np.array([[60, 130], [130, 200], [260, 330], [330, 400]])
TRIALS = np.random.default_rng(0).normal(0.0, 0.01, (80, 4))


@pytest.fixture(scope="module")
def judge():
    bars = make_bars(200, 2, seed=3, volatility=0.01)
    features = np.random.default_rng(0).normal(size=(400, 2)).astype(np.float32)
    env = MarketVecEnv(MarketSim(bars, features, config=CONFIG, n_envs=4))
    agent = DistributionalPPO("MlpLstmPolicy", env, n_steps=8, batch_size=16, gamma=0.6, seed=0)
    with torch.no_grad():  # so that it trades more than dust
        for parameter in agent.policy.net.actor.parameters():
            parameter.mul_(100.0)

    def judged(rows, trials=None):
        task = MarketTask.of_rows(bars, features, np.array(rows), CONFIG)
        return judge_market(
            task, agent, role="test", split=f"from {rows[0][0]}", n_trials=4, trial_returns=trials,
            settings=SETTINGS,
        )  # fmt: skip

    return judged


@pytest.fixture(scope="module")
def apart(judge):
    """Two splits: the first half of both symbols' windows, then the second."""
    return judge(ROWS[[0, 2]], TRIALS[:30]), judge(ROWS[[1, 3]], TRIALS[30:])


@pytest.fixture(scope="module")
def joined(apart):
    return join_evaluations(*zip(*apart, strict=True), SETTINGS)


@pytest.fixture(scope="module")
def together(judge):
    return judge(ROWS)[0]


def test_the_cost_curve_is_that_of_all_bars(joined, together):
    assert [point.factor for point in joined.cost_curve.points] == [0.0, 0.5, 1.0, 2.0, 4.0]
    for ours, whole in zip(joined.cost_curve.points, together.cost_curve.points, strict=True):
        assert ours.factor == whole.factor
        assert ours.total_return == pytest.approx(whole.total_return, abs=1e-5)
        assert ours.annual_mean.value == pytest.approx(whole.annual_mean.value, abs=1e-3)
    own = joined.cost_curve.points[2]
    assert own.total_return == joined.measures["agent"].total_return.value
    assert own.annual_mean.low < own.annual_mean.value < own.annual_mean.high
    totals = [point.total_return for point in joined.cost_curve.points]
    assert totals == sorted(totals, reverse=True)
    assert totals[0] > totals[-1]


def test_the_delay_curve_is_that_of_all_bars(joined, together):
    assert [point.factor for point in joined.delay_curve.points] == [0, 1, 2]
    for ours, whole in zip(joined.delay_curve.points, together.delay_curve.points, strict=True):
        assert ours.total_return == pytest.approx(whole.total_return, abs=1e-5)
    assert joined.delay_curve.points[0].total_return == joined.cost_curve.points[2].total_return


def test_the_critics_are_judged_over_all_bars(joined, together, apart):
    ours, whole = joined.calibration, together.calibration
    assert ours.n == sum(evaluation.calibration.n for evaluation, _ in apart) == whole.n
    assert ours.pit == pytest.approx(whole.pit)
    assert ours.coverage == pytest.approx(whole.coverage)
    assert ours.realized_cvar == pytest.approx(whole.realized_cvar, abs=1e-6)
    assert UNJUDGED_CRITIC not in joined.notes


def test_too_few_stretches_in_each_split_may_be_enough_together(apart):
    few = [
        dataclasses.replace(
            evidence,
            stretches=dataclasses.replace(
                evidence.stretches,
                law=type(evidence.stretches.law)(
                    evidence.stretches.law.atoms[:12], evidence.stretches.law.weights[:12]
                ),
                realized=evidence.stretches.realized[:12],
            ),
        )
        for _, evidence in apart
    ]
    parts = [
        dataclasses.replace(evaluation, notes=(*evaluation.notes, UNJUDGED_CRITIC))
        for evaluation, _ in apart
    ]
    found = join_evaluations(parts, few, SETTINGS)
    assert found.calibration.n == 24
    assert not any(UNJUDGED_CRITIC in note for note in found.notes)
    none = [dataclasses.replace(evidence, stretches=None) for evidence in few]
    found = join_evaluations(parts, none, SETTINGS)
    assert found.calibration is None
    assert found.notes.count(UNJUDGED_CRITIC) == 1


def test_trials_count_over_all_validation_bars(joined, apart):
    returns = joined.track("agent").portfolio.net_return
    assert joined.n_trials == 8
    assert joined.overfitting == overfitting(returns, 8, TRIALS)
    assert joined.overfitting.probability is not None
    parts, evidence = zip(*apart, strict=True)
    unknown = [evidence[0], dataclasses.replace(evidence[1], trial_returns=None)]
    assert join_evaluations(parts, unknown, SETTINGS).overfitting.probability is None


def test_what_must_be_known_of_a_split_names_the_split(apart):
    (first, _), (second, _) = apart
    said = dataclasses.replace(second, notes=("The account in X was bankrupt.",))
    found = join_evaluations([first, said], [evidence for _, evidence in apart], SETTINGS)
    assert f"{second.split}: The account in X was bankrupt." in found.notes
