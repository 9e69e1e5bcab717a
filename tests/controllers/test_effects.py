"""A setting that is accepted has an effect: every field of every controller, changed once."""

import itertools
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
import torch

from quantail.errors import ConfigError
from quantail.losses.imitation import AdvantageWeighted, advantage_weights
from quantail.optim.entropy_control import (
    EntropyBoost,
    EntropyControl,
    EntropyDecay,
    EntropyState,
    Plateau,
    coefficient,
    observe,
)
from quantail.optim.guard import Guard, GuardState, count
from quantail.optim.kl_control import (
    EpochFactor,
    KlControl,
    KlLearningRate,
    KlPenalty,
    KlState,
    KlStop,
    beta_now,
    epochs_now,
    judge,
    step,
)
from quantail.optim.schedules import StepCosine, StepLinear
from tests.catalogue import ROOT, catalogue

# What cannot be seen without an agent; each has a test of its own.
ELSEWHERE = {
    "KlControl.stop left out": "test_without_the_switch_nothing_stops",
    "KlStop.after": "test_the_critics_go_on_while_the_actor_stands_still",
    "KlStop.undo": "test_a_step_too_far_can_be_undone",
    "KlControl.estimator": "test_decisions_read_the_chosen_estimate",
    "Guard.rollbacks": "test_weights_go_back_to_health",
    "Guard.report_path": "test_bad_numbers_from_the_environment_stop_with_a_report",
    "AdvantageWeighted.coefficient": "test_the_share_is_measured_and_told",
}
KL = KlControl(
    target=0.02,
    stop=KlStop(factor=3.0, consecutive=3, fraction=0.4),
    epochs=EpochFactor(),
    penalty=KlPenalty(kd=0.01, least=0.001, greatest=0.06),
    learning_rate=KlLearningRate(least=0.5, greatest=1.5),
)
ENTROPY = EntropyControl(
    floor=0.02,
    decay=EntropyDecay(
        updates=10, final=0.01, plateau=Plateau(window=3, tolerance=0.1, min_updates=7)
    ),
    boost=EntropyBoost(cap=0.11),
)
WALK = [0.001, 0.5, 0.05, 0.03, 0.03, 0.03, 0.001, 0.001, 0.001, 0.001, 0.001, 0.03, 0.01, 0.05]


def kl_trace(control: KlControl) -> list[Any]:
    state, seen = KlState(), []
    for end, kl in enumerate(WALK, start=1):
        reason = judge(control.stop, control.target, WALK[:end], 4 if end % 4 == 0 else 0)
        state, _ = step(control, state, control.target, kl, reason != "", 10)
        factor, beta = epochs_now(control, state, 100), beta_now(control, state)
        seen.append((reason, factor, beta, state.rate_factor))
    return seen


def entropy_trace(control: EntropyControl) -> list[float]:
    state, seen = EntropyState(), []
    entropies = [3.0, 2.0, 1.0, 0.9, 0.85, 0.84, 0.6, 0.58, 0.57] + [0.56] * 20
    explained = [0.5, -1, -1, -1, -1, -1, 0.5] + [0.5] * 22
    for update, pair in enumerate(zip(entropies, explained, strict=True)):
        seen.append(coefficient(control, state, 0.08, update).used)
        state = observe(control, state, update, *pair)
    return seen


def guard_trace(guard: Guard) -> list[bool]:
    rows: Any = [["loss"] * n for n in (1, 5, 19, 25)]
    return [count(guard, GuardState(), row, acting=False)[1] for row in rows]


def weight_trace(config: AdvantageWeighted) -> list[float]:
    rows = torch.tensor([-1.0, 1.0, 1e3])
    return advantage_weights(rows, config.beta, config.max_weight).tolist()


def schedule_trace(schedule: StepLinear | StepCosine) -> list[float]:
    return [schedule.at(steps) for steps in (0, 3, 5, 8, 50)]


CASES: list[tuple[Any, Any]] = [
    (KL, kl_trace),
    (ENTROPY, entropy_trace),
    (Guard(), guard_trace),
    (AdvantageWeighted(coefficient=1.0), weight_trace),
    (StepLinear(start=1.0, end=0.5, start_step=2, end_step=9), schedule_trace),
    (StepCosine(start=1.0, end=0.5, start_step=2, end_step=9), schedule_trace),
]


def changed(value: Any) -> list[Any]:
    """Other values of a field; those that the config refuses are left out later."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1, value * 2]
    if isinstance(value, float):
        return [value * 0.5, value * 1.5, value + 0.3, value * 0.9]
    return [None]


def variants(config: Any, prefix: str = "") -> list[tuple[str, list[Any]]]:
    """Return (Class.field, configs with that field changed), through nested parts."""
    found = []
    for field in fields(config):
        value = getattr(config, field.name)
        name = f"{type(config).__name__}.{field.name}"
        if field.name == "kind" or name in ELSEWHERE:
            continue
        if is_dataclass(value):
            inner = variants(value)
            found += [
                (name, [made for part in parts for made in built(config, field.name, part)])
                for name, parts in inner
            ]
            if f"{name} left out" not in ELSEWHERE:
                found.append((f"{name} left out", built(config, field.name, None)))
        else:
            options = changed(value)
            found.append(
                (name, [made for option in options for made in built(config, field.name, option)])
            )
    return found


def built(config: Any, name: str, value: Any) -> list[Any]:
    try:
        return [replace(config, **{name: value})]
    except (ConfigError, TypeError):
        return []


ALL = list(
    itertools.chain.from_iterable(
        [(name, made, config, trace) for name, made in variants(config)] for config, trace in CASES
    )
)


@catalogue("X45")
@pytest.mark.parametrize(("name", "made", "config", "trace"), ALL, ids=[case[0] for case in ALL])
def test_changing_a_setting_changes_something(
    name: str, made: list[Any], config: Any, trace: Any
) -> None:
    assert made, f"{name} could not be changed to anything that is allowed"
    usual = trace(config)
    assert any(trace(other) != usual for other in made), name


def test_what_is_shown_elsewhere_is_really_there() -> None:
    text = "".join(file.read_text() for file in (ROOT / "tests" / "controllers").glob("*.py"))
    assert all(f"def {test}" in text for test in ELSEWHERE.values())
