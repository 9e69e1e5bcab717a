"""The contract check of rewards: passes ours, and finds each broken promise."""

import numpy as np
import pytest

import quantail.testing.rewards as check_module
from quantail.errors import ConfigError
from quantail.sim.rewards import (
    DifferentialSharpe,
    DrawdownPenalty,
    LogReturn,
    PotentialShaped,
    SimpleReturn,
)
from quantail.sim.simulator import MarketSim
from quantail.testing import check_reward
from tests.sim.markets import make_bars

BARS = make_bars(150, volatility=0.02)


@pytest.mark.parametrize(
    "reward",
    [LogReturn(), SimpleReturn(), DifferentialSharpe(), DrawdownPenalty(), PotentialShaped()],
    ids=lambda reward: reward.kind,
)
def test_our_rewards_keep_their_promises(reward):
    report = check_reward(reward, BARS)
    assert report.largest > 0.0
    no_variance_yet = isinstance(reward, DifferentialSharpe)
    assert (report.mean_cost_effect == 0.0) if no_variance_yet else (report.mean_cost_effect > 1e-4)


def not_a_number(sim, out):
    out.reward[0] = np.nan


def other_from_run_to_run(sim, out):
    out.reward[:] += next(COUNTER)


def mean_of_the_batch(sim, out):
    out.reward[:] = out.reward.mean()


def money(sim, out):
    out.reward[:] = out.column("equity") - out.column("equity_before")


def pay_for_idleness(sim, out):
    out.reward[:] += 0.01 * (out.column("traded") == 0.0)


def bounded_twice(sim, out):
    if sim.config.reward_clip is not None:
        out.reward[:] /= 2.0


def costs_are_paid_out(sim, out):
    out.reward[:] += 3.0 * out.column("cost_fraction")


COUNTER = iter(range(10**9))


@pytest.mark.parametrize(
    ("spoil", "promise"),
    [
        (not_a_number, "must be finite; at step 0 of env 0 it was nan"),
        (other_from_run_to_run, "must be the same for the same seeds"),
        (mean_of_the_batch, "must not depend on the other accounts of the batch"),
        (money, "must be the same when all money is counted in another unit"),
        (pay_for_idleness, "must be 0 for an account that never trades"),
        (bounded_twice, "must be bounded once, after costs"),
        (costs_are_paid_out, "must not be raised by costs"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_broken_promise_is_named(monkeypatch, spoil, promise):
    """The rewards of the real simulator are falsified after each step."""

    class Spoiled(MarketSim):
        def step(self, actions, out=None):
            out = super().step(actions, out)
            spoil(self, out)
            return out

    monkeypatch.setattr(check_module, "MarketSim", Spoiled)
    with pytest.raises(ConfigError, match=f"reward 'log_return' {promise}"):
        check_reward(LogReturn(), BARS)
