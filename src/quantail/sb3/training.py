"""One cycle of learning for an agent: its coefficients, the update, what is recorded of it."""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from quantail.config import LearnerConfig
from quantail.cost_control import told_cost
from quantail.diagnostics.core_states import core_state_metrics
from quantail.diagnostics.health import Alert, alerts
from quantail.diagnostics.metrics import (
    control_metrics,
    cost_metrics,
    critic_norms,
    group_metrics,
    risk_metrics,
    update_metrics,
)
from quantail.diagnostics.monitors import watch_critics
from quantail.diagnostics.schema import SkinMetrics, tagged
from quantail.errors import QuantailWarning
from quantail.flow import Coefficients, Rollout, UpdateResult
from quantail.learner import Extras, update
from quantail.losses.value_clip import MeanClip
from quantail.optim.entropy_control import without_effect
from quantail.optim.guard import NonFiniteError
from quantail.optim.safety import Snapshot
from quantail.tail_control import told_at_end, told_cut, told_infeasible

if TYPE_CHECKING:
    from quantail.sb3.agent import DistributionalPPO


def learn_from(model: "DistributionalPPO", rollout: Rollout) -> None:
    """Learn from one rollout and record what happened.

    Raises:
        NonFiniteError: Too much was not finite in a row; a report has been written.
    """
    model.policy.set_training_mode(True)
    settings = _settings(model)
    if settings.guard.rollbacks and model._healthy is None:
        model._healthy = Snapshot.take(model.policy.net, model.policy.optimizer)
    _tell_once(model, settings)
    try:
        result, model.train_state = update(
            model.policy.net,
            model.policy.optimizer,
            rollout,
            settings,
            _coefficients(model),
            model.train_state,
            model._generator,
            Extras(demonstrations=model.demonstrations, healthy=model._healthy),
        )
    except NonFiniteError as error:
        raise _reported(error, settings, model.logger.get_dir()) from None
    if not any(result.control.faults.values()):
        model._healthy = None  # the next cycle starts from these weights
    model._n_updates += result.epochs
    starts = rollout.episode_starts[:: model._length]
    _record(model, result, core_state_metrics(rollout.chunk_states, starts))


def _settings(model: "DistributionalPPO") -> LearnerConfig:
    settings = model.learner_config
    if model.clip_range_vf is None:
        return settings
    # Where a schedule ends at 0 the value is held as tight as floats allow.
    width = model.clip_range_vf(model._current_progress_remaining) or 1e-8  # type: ignore[operator]
    return replace(settings, value_clip=MeanClip(range=width))


def _coefficients(model: "DistributionalPPO") -> Coefficients:
    """Return the numbers that the agent's arguments give at this progress."""
    progress = model._current_progress_remaining
    return Coefficients(
        learning_rate=model.lr_schedule(progress),
        clip_range=model.clip_range(progress),  # type: ignore[operator]
        entropy=model.ent_coef,
        value=model.vf_coef,
        progress=1.0 - progress,
    )


def _tell_once(model: "DistributionalPPO", settings: LearnerConfig) -> None:
    """Say once when the entropy decay changes nothing."""
    state = model.train_state.entropy
    advice = without_effect(settings.entropy_control, model.ent_coef)
    if advice is not None and not state.told:
        warnings.warn(advice, QuantailWarning, stacklevel=4)
        model.train_state = replace(model.train_state, entropy=replace(state, told=True))


def _record(model: "DistributionalPPO", result: UpdateResult, states: dict[str, float]) -> None:
    watch = watch_critics(critic_norms(result), model.train_state.cycles_imbalanced)
    model.train_state = replace(model.train_state, cycles_imbalanced=watch.cycles_imbalanced)
    if watch.advice is not None:
        warnings.warn(watch.advice, QuantailWarning, stacklevel=4)
    _tell_limits(model, result)
    update_record, control_record = update_metrics(result, watch), control_metrics(result)
    _tell_alerts(model, [*alerts(update_record, control_record)])
    recorded = {
        **tagged(update_record),
        **tagged(control_record),
        **tagged(_skin_metrics(model)),
        **group_metrics(result),
        **risk_metrics(result),
        **cost_metrics(result),
        **states,
    }
    for tag, value in recorded.items():
        model.logger.record(tag, value)


def _tell_limits(model: "DistributionalPPO", result: UpdateResult) -> None:
    """Warn of episodes that are cut, and of limits that are infeasible, or broken at the end."""
    settings, is_last = model.learner_config, model._current_progress_remaining <= 0
    if settings.tail_risk is not None and result.risk is not None:
        state, cut = told_cut(model.train_state)
        state, advice = told_infeasible(settings.tail_risk, state, result.risk)
        model.train_state = state
        if advice is None and is_last:
            advice = told_at_end(settings.tail_risk, state, result.risk)
        for sentence in (cut, advice):
            if sentence is not None:
                warnings.warn(sentence, QuantailWarning, stacklevel=5)
    if settings.cost is not None and result.cost is not None:
        cost, advice = told_cost(
            settings.cost, model.train_state.cost, result.cost, is_last=is_last
        )
        model.train_state = replace(model.train_state, cost=cost)
        if advice is not None:
            warnings.warn(advice, QuantailWarning, stacklevel=5)


def _tell_alerts(model: "DistributionalPPO", found: list[Alert]) -> None:
    """Warn of each metric once, when it has left its healthy range; only a talkative agent does."""
    known = model.train_state.alerts
    fresh = [alert for alert in found if alert.tag not in known]
    if model.verbose < 1 or not fresh:
        return
    model.train_state = replace(model.train_state, alerts=(*known, *(alert.tag for alert in fresh)))
    for alert in fresh:
        warnings.warn(alert.sentence, QuantailWarning, stacklevel=5)


def _skin_metrics(model: "DistributionalPPO") -> SkinMetrics:
    width = model.clip_range_vf
    log_std = getattr(model.policy.net.actor, "log_std", None)
    return SkinMetrics(
        n_updates=model._n_updates,
        value_clip_range=width(model._current_progress_remaining) if callable(width) else None,
        std=None if log_std is None else log_std.detach().exp().mean().item(),
    )


def _reported(error: NonFiniteError, settings: LearnerConfig, folder: str | None) -> NonFiniteError:
    """Write the report into its file; return the error with the place of the file in its text."""
    path = settings.guard.report_path or (folder and str(Path(folder) / "non_finite.json"))
    if path is None:
        where = "No report was written, as the logger has no folder; set guard.report_path."
    else:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(json.dumps(error.report, indent=2) + "\n", "utf-8")
        where = f"Report: {path}"
    return NonFiniteError({**error.report, "sentence": f"{error.report['sentence']} {where}"})
