"""Alerts of the program itself, and how well values predict returns after an update."""

import math
from dataclasses import fields, replace
from typing import Any

import pytest
import torch

from quantail.config import ExplainedVariance
from quantail.diagnostics.drift import Moments, drift
from quantail.diagnostics.health import alerts
from quantail.diagnostics.metrics import control_metrics, critic_norms, update_metrics
from quantail.diagnostics.monitors import watch_critics
from quantail.diagnostics.schema import UpdateMetrics, declared
from quantail.diagnostics.value_quality import explained_variance, grouped_explained_variance
from quantail.errors import ConfigError, DataError
from quantail.learner import update
from quantail.losses.value_clip import MeanClip
from quantail.nets.cores import LstmConfig
from quantail.rollout.states import replayed_values
from quantail.state import TrainState
from quantail.targets.twin import twin_mean
from tests.catalogue import catalogue
from tests.learner.agents import NOW, acted, settings, small

CORE = LstmConfig(hidden_size=8)


def cycle(state: Any = None, **given: Any) -> Any:
    state = state or acted(small(core=CORE))
    optimizer = torch.optim.Adam(state.policy.parameters(), lr=1e-3)
    chosen = settings(chunk_length=8, **given)
    return update(
        state.policy, optimizer, state.rollout, chosen, NOW, TrainState(), state.generator
    )[0]


@catalogue("F64")
def test_every_declared_range_raises_its_alert() -> None:
    result = cycle()
    watch = watch_critics(critic_norms(result), 0)
    healthy = update_metrics(result, watch)
    ranges = {
        field.name: known
        for field, known in zip(fields(healthy), declared(UpdateMetrics).values(), strict=True)
        if known.healthy is not None
    }
    assert {"log_ratio_clamp_fraction", "critics_grad_ratio", "ratio_mean"} <= set(ranges)
    calm = replace(healthy, **{n: sum(r.healthy) / 2 for n, r in ranges.items() if r.healthy})
    assert list(alerts(calm)) == []
    for name, known in ranges.items():
        assert known.healthy is not None
        found = list(alerts(replace(calm, **{name: known.healthy[1] + 1.0})))
        assert [alert.tag for alert in found] == [known.tag]
        assert known.sentence in found[0].sentence
    assert list(alerts(replace(calm, ratio_mean=math.nan))) == []


def test_advantages_that_hardly_vary_are_told() -> None:
    """No reward ever, and values that say so: nothing is better than expected."""

    def zero(law: Any) -> Any:
        none = torch.zeros_like(law.mean())
        return law.affine(none, none)

    for size, expected in ((1.0, 0.0), (0.0, 1.0)):
        state = acted(small(core=CORE), end_probability=0.0)
        rollout = replace(
            state.rollout,
            rewards=size * state.rollout.rewards,
            values=tuple(map(zero, state.rollout.values)),
            last_values=tuple(map(zero, state.rollout.last_values)),
        )
        result = cycle(state._replace(rollout=rollout), n_epochs=1)
        metrics = update_metrics(result, watch_critics(critic_norms(result), 0))
        assert metrics.advantages_degenerate == expected
        assert ("warn/advantages_degenerate" in {a.tag for a in alerts(metrics)}) == bool(expected)


@catalogue("F04")
def test_an_extreme_log_ratio_is_a_warning_of_its_own() -> None:
    for shift, expected in ((0.0, 0.0), (12.0, 1.0)):
        state = acted(small(core=CORE))
        log_probs = state.rollout.log_probs.clone()
        log_probs[0, 0] -= shift
        state = state._replace(rollout=replace(state.rollout, log_probs=log_probs))
        result = cycle(state, n_epochs=1, batch_size=256)
        assert control_metrics(result).severe_log_ratio == expected
        fraction = result.steps[0].losses.ratio.log_ratio_extreme_fraction
        assert float(fraction) == pytest.approx(expected / 256)


def test_explained_variance_after_the_update_is_that_of_the_new_critics() -> None:
    """Unclipped: a value clip of almost no width must not show in it."""
    state = acted(small(core=CORE))
    result = cycle(state, n_epochs=8, value_clip=MeanClip(range=1e-6))
    assert not any(p.grad is not None and p.grad.isnan().any() for p in state.policy.parameters())
    with torch.no_grad():
        values = twin_mean(replayed_values(state.policy, state.rollout), "min")
    assert values.shape == state.rollout.rewards.shape
    assert result.explained_variance_after is not None
    assert not result.explained_variance_after.requires_grad
    without = cycle(
        acted(small(core=CORE)), explained_variance=ExplainedVariance(after_update=False)
    )
    assert without.explained_variance_after is None


def test_a_replay_gives_the_acting_values_again() -> None:
    state = acted(small(core=CORE))
    again = twin_mean(replayed_values(state.policy, state.rollout), "min")
    torch.testing.assert_close(again, twin_mean(state.rollout.values, "min"), atol=1e-5, rtol=1e-5)


@catalogue("F70")
def test_judging_the_critics_does_not_change_what_is_learned() -> None:
    results = []
    for judge in (True, False):
        state = acted(small(core=CORE))
        cycle(state, explained_variance=ExplainedVariance(after_update=judge))
        results.append([p.detach().clone() for p in state.policy.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_groups_are_judged_by_themselves() -> None:
    observed = torch.tensor([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    predicted = torch.tensor([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    weights = torch.ones(3, 2)
    groups = [["a", "b"]] * 3
    found = grouped_explained_variance(predicted, observed, weights, groups)
    assert found["a"] == pytest.approx(1.0)
    assert math.isnan(found["b"])
    assert math.isnan(float(explained_variance(predicted[:1, 0], observed[:1, 0], weights[:1, 0])))
    with pytest.raises(DataError, match="groups must name one group per row"):
        grouped_explained_variance(predicted, observed, weights, groups[:2])
    with pytest.raises(ConfigError, match="groups has no effect with after_update = false"):
        ExplainedVariance(after_update=False, groups="env")


@catalogue("F43")
def test_drift_by_hand() -> None:
    before = Moments(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 2.0]))
    after = Moments(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 2.0 * math.e]))
    assert drift(before, after) == pytest.approx((0.5, 0.5))
    assert drift(None, after) is None


def test_a_skipped_step_does_not_spoil_the_metrics() -> None:
    """One minibatch of four is bad throughout; the means over the others stay finite."""
    state = acted(small(core=CORE))
    log_probs = state.rollout.log_probs.clone()
    log_probs[0, 0] = torch.nan
    state = state._replace(rollout=replace(state.rollout, log_probs=log_probs))
    result = cycle(state, n_epochs=1, batch_size=64)
    metrics = update_metrics(result, watch_critics(critic_norms(result), 0))
    assert math.isfinite(metrics.loss)
    assert metrics.log_ratio_nan_count == 1
    assert result.control.faults["log_ratio"] == 1
