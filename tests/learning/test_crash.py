"""A market with crash regimes: the tail is spared at an equal mean.

The market and the settings were chosen on seeds 100 to 106. Seeds 0 to 4 were run three times;
docs/crash_market.md tells what was changed between.
"""

import logging

import numpy as np
import pytest

from quantail.sim.problems.laws import sample_cvar
from tests.learning import crash

LOG = logging.getLogger(__name__)
SEEDS = range(5)


# A limit that the last episodes miss by a little is said; the fresh ones below are what counts.
@pytest.mark.filterwarnings("ignore:training ends with cvar_limit")
@pytest.mark.verify
def test_tail_risk_spares_the_tail_at_an_equal_mean() -> None:
    """CVaR_.05 of an episode is better by at least 30 %: the lower end of the interval.

    Equal mean: the 95 % interval of the difference, paired by seed, reaches 0, and not more than
    5 % of the mean is given up. Every agent keeps its limit within a tenth. docs/crash_market.md
    has the figures, and how this bar came about.
    """
    pairs = []
    for seed in SEEDS:
        pairs.append(crash.pair(seed))
        LOG.info("seed %d: without %s, with %s", seed, *pairs[-1])
    found = crash.verdict(pairs)
    LOG.info("%s", found)
    assert found.is_equal_mean
    assert found.improvement[0] >= 0.30
    assert crash.RISK.limit is not None
    assert min(careful.cvar for _, careful in pairs) >= 1.1 * crash.RISK.limit


def test_what_fixed_rules_earn_in_this_market() -> None:
    env = crash.fresh_env(100, 10_000)
    flat, half, always = (crash.rule_returns(env, level) for level in range(3))
    # A bar pays exp(μ) - 1 of its regime on average; one trade at .2 bps opens the position.
    share, drifts = crash.LAW.fragile_share, np.expm1(crash.LAW.drifts)
    exact = crash.LENGTH * ((1 - share) * drifts[0] + share * drifts[1]) - 2e-5
    error = always.std() / np.sqrt(always.size)
    assert always.mean() == pytest.approx(exact, abs=4 * error)
    assert error < 0.025 * exact
    # To be out in fragile times costs little and spares most of the tail; by half, half of it.
    assert 0.0 < (always - flat).mean() < 0.08 * exact
    worst = sample_cvar(always, crash.ALPHA)
    assert worst < -0.15
    assert 1 - sample_cvar(half, crash.ALPHA) / worst == pytest.approx(0.46, abs=0.05)
    assert 1 - sample_cvar(flat, crash.ALPHA) / worst == pytest.approx(0.77, abs=0.06)
    np.testing.assert_array_equal(crash.rule_returns(env, 2), always)  # the same paths again


def test_an_episode_ends_for_good() -> None:
    env = crash.training_env(100, symbols=1, n_envs=4)
    env.reset()
    for step in range(1, crash.LENGTH + 1):
        _, _, done, infos = env.step(np.zeros(4, np.int64))
        assert done.all() == (step == crash.LENGTH)
    assert [info["TimeLimit.truncated"] for info in infos] == [False] * 4


@pytest.mark.parametrize("risk", [None, crash.RISK], ids=["neutral", "careful"])
@pytest.mark.filterwarnings("ignore:training ends with cvar_limit")
def test_an_agent_acts_in_this_market(risk: crash.RiskConfig | None) -> None:
    training = crash.training_env(100, symbols=2, n_envs=64)
    model = crash.train(training, 100, risk, updates=2)
    assert model.train_state.risk.active == (risk is not None)
    found = crash.earned(model, crash.fresh_env(100, 200))
    assert found.cvar < found.mean
    assert 0.0 < found.calm <= 1.0


def test_the_verdict_by_hand() -> None:
    """Differences -.001, 0 and -.002: -.001 ± t(2) .001/√3, t(2) = 4.303."""
    pairs = [
        (crash.Earned(mean, -0.2, 1.0, 1.0), crash.Earned(mean + less, cvar, 1.0, 0.0))
        for mean, less, cvar in ((0.03, -0.001, -0.1), (0.03, 0.0, -0.12), (0.03, -0.002, -0.08))
    ]
    found = crash.verdict(pairs)
    assert found.difference == pytest.approx((-0.001 - 0.002484, -0.001 + 0.002484), abs=1e-5)
    # Better by .5, .4 and .6, so .5 ± 4.303 (.1)/√3.
    assert found.spared == pytest.approx(0.5)
    assert found.improvement == pytest.approx((0.5 - 0.2484, 0.5 + 0.2484), abs=1e-3)
    assert found.loss == pytest.approx(0.001 / 0.03)
    assert found.is_equal_mean
    dearer = [
        (one, crash.Earned(one.mean + less, 50 * less, 1.0, 0.0))
        for (one, _), less in zip(pairs, (-0.0018, -0.0020, -0.0022), strict=True)
    ]
    # -.002 ± 4.303 (.0002)/√3 does not reach 0, and .002/.03 is more than 5 %.
    assert crash.verdict(dearer).difference[1] == pytest.approx(-0.0015, abs=1e-5)
    assert not crash.verdict(dearer).is_equal_mean
