"""Metrics of a cycle: means by rows, extremes and counts kept."""

from dataclasses import replace

import pytest
import torch

from quantail.diagnostics.metrics import critic_norms, update_metrics
from quantail.diagnostics.monitors import watch_critics
from quantail.learner import update
from quantail.state import TrainState
from tests.learner.agents import NOW, acted, settings


def test_a_smaller_minibatch_counts_by_its_rows() -> None:
    state = acted()
    optimizer = torch.optim.Adam(state.policy.parameters(), lr=1e-2)
    # 256 rows in minibatches of 96: the last has 64.
    chosen = settings(chunk_length=8, batch_size=96, n_epochs=1)
    result, _ = update(
        state.policy, optimizer, state.rollout, chosen, NOW, TrainState(), state.generator
    )
    assert [step.weight for step in result.steps] == [96.0, 96.0, 64.0]
    metrics = update_metrics(result, watch_critics(critic_norms(result), 0))
    rows = zip((96, 96, 64), result.steps, strict=True)
    expected = sum(weight * float(step.losses.total) for weight, step in rows) / 256
    assert metrics.loss == pytest.approx(expected, rel=1e-5)
    largest = max(float(step.losses.ratio.log_ratio_max_abs) for step in result.steps)
    assert metrics.log_ratio_max_abs == pytest.approx(largest)


def test_counts_are_summed_and_steps_without_rows_do_not_divide_by_zero() -> None:
    state = acted()
    spoiled = replace(state.rollout, log_probs=torch.full_like(state.rollout.log_probs, torch.nan))
    optimizer = torch.optim.Adam(state.policy.parameters())
    chosen = settings(chunk_length=8, n_epochs=1)
    result, _ = update(state.policy, optimizer, spoiled, chosen, NOW, TrainState(), state.generator)
    metrics = update_metrics(result, watch_critics(critic_norms(result), 0))
    assert metrics.log_ratio_nan_count == 256
    assert metrics.skipped_microbatches == 4
