"""Schedules by environment steps, two learning rates, and that what is logged is what is used."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from quantail.control import coefficients_now
from quantail.errors import ConfigError
from quantail.learner import update
from quantail.losses.value_clip import MeanClip
from quantail.nets.cores import LstmConfig, NoCoreConfig
from quantail.optim.groups import actor_and_critic, set_learning_rates
from quantail.optim.kl_control import KlControl, KlLearningRate
from quantail.optim.kl_control import step as kl_step
from quantail.optim.schedules import Schedules, StepCosine, StepLinear
from quantail.state import TrainState
from tests.catalogue import catalogue
from tests.learner.agents import NOW, acted, settings, small


def test_values_by_hand() -> None:
    line = StepLinear(start=1.0, end=0.2, start_step=100, end_step=300)
    steps = (0, 100, 200, 300, 900)
    assert [line.at(step) for step in steps] == pytest.approx([1, 1, 0.6, 0.2, 0.2])
    half = StepCosine(start=1.0, end=0.0, end_step=100)
    assert [half.at(step) for step in (0, 50, 100)] == pytest.approx([1, 0.5, 0])


def test_a_schedule_goes_on_where_training_stands() -> None:
    """The value depends on all steps so far, and not on how they were cut into calls."""
    falling = Schedules(entropy=StepLinear(start=1.0, end_step=1000), value=None)
    chosen = settings(schedules=falling)
    for steps in (0, 250, 999):
        now, _ = coefficients_now(chosen, NOW, TrainState(env_steps=steps, updates=3))
        assert now.entropy == pytest.approx(1 - steps / 1000)
        assert (now.value, now.clip_range) == (NOW.value, NOW.clip_range)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StepLinear(start=1.0, end=1.0, end_step=5), "start and end must differ"),
        (lambda: StepLinear(start=1.0, start_step=5, end_step=5), "start_step must be less than"),
        (lambda: Schedules(clip_range=StepLinear(start=0.2, end_step=9)), "must stay greater th"),
        (lambda: Schedules(entropy=StepLinear(start=-1.0, end_step=9)), "must stay at least 0"),
        (lambda: settings(schedules=Schedules(kl_target=LINE)), "no effect without kl_control"),
        (lambda: settings(schedules=Schedules(value_clip_range=LINE)), "without value clipping"),
        (
            lambda: settings(
                schedules=Schedules(value_clip_range=LINE), value_clip=MeanClip(range=0.7)
            ),
            "both set one number",
        ),
        (
            lambda: settings(
                schedules=Schedules(critic_learning_rate=LINE), critic_learning_rate=0.1
            ),
            "both set one number",
        ),
    ],
)
def test_schedules_without_effect_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


LINE = StepLinear(start=0.2, end=0.1, end_step=100)


@catalogue("F51")
@hypothesis_settings(max_examples=1000, deadline=None)
@given(
    rate=st.floats(1e-6, 1.0),
    critic=st.one_of(st.none(), st.floats(1e-6, 1.0)),
    scheduled=st.one_of(st.none(), st.tuples(st.integers(0, 50), st.integers(51, 200))),
    history=st.lists(
        st.tuples(st.floats(0, 0.1), st.booleans(), st.integers(1, 60)), min_size=1, max_size=4
    ),
)
def test_the_rate_in_use_is_the_rate_that_is_told(
    rate: float,
    critic: float | None,
    scheduled: tuple[int, int] | None,
    history: list[tuple[float, bool, int]],
) -> None:
    """What a cycle tells, what its optimizer has, and the rule by hand agree in every cycle."""
    line = scheduled and StepCosine(
        start=0.2, end=0.1, start_step=scheduled[0], end_step=scheduled[1]
    )
    control = KlControl(learning_rate=KlLearningRate())
    chosen = settings(
        kl_control=control,
        critic_learning_rate=critic,
        schedules=Schedules(learning_rate=line),
    )
    optimizer = torch.optim.SGD(actor_and_critic(PARTS), lr=123.0)
    state, factor = TrainState(), 1.0
    for kl, stopped, steps in history:
        now, _ = coefficients_now(chosen, replace(NOW, learning_rate=rate), state)
        set_learning_rates(optimizer, now.learning_rate, now.critic_learning_rate)
        base = rate if line is None else line.at(state.env_steps)
        assert now.learning_rate == pytest.approx(base * factor)
        actor_rate, critic_rate = (group["lr"] for group in optimizer.param_groups)
        assert actor_rate == now.learning_rate
        if critic is None:
            assert critic_rate == now.learning_rate
        else:
            assert critic_rate == now.critic_learning_rate == pytest.approx(critic * factor)
        after, _ = kl_step(control, state.kl, 0.02, kl, stopped, 10)
        state = replace(state, kl=after, env_steps=state.env_steps + steps)
        factor *= 1 / 1.5 if stopped or kl / 0.02 > 2 else 1.5 if kl / 0.02 < 0.5 else 1.0
        factor = min(max(factor, 0.01), 1.0)


PARTS = {
    name: [torch.nn.Parameter(torch.zeros(1))]
    for name in ("shared_core", "actor", "critic_core", "critic1", "critic2")
}


@pytest.mark.parametrize("share", [False, True])
def test_each_parameter_is_in_one_group_and_what_is_shared_is_the_actor_s(share: bool) -> None:
    state = acted(small(core=LstmConfig(hidden_size=8), share_core=share))
    parts = state.policy.parameter_groups()
    actor, critic = (group["params"] for group in actor_and_critic(parts))
    assert len({id(p) for p in [*actor, *critic]}) == len(list(state.policy.parameters()))
    own = [p for name, group in parts.items() if name.startswith("critic") for p in group]
    assert [id(p) for p in critic] == [id(p) for p in own]


def test_the_critics_learn_at_their_own_rate() -> None:
    """Plain gradient descent: the move is the rate times the gradient, for each group its own."""
    state = acted(small(core=NoCoreConfig()), length=1)
    groups = actor_and_critic(state.policy.parameter_groups())
    optimizer = torch.optim.SGD(groups, lr=123.0)
    chosen = settings(n_epochs=1, batch_size=256, max_grad_norm=0.0, critic_learning_rate=0.02)
    result, _ = update(
        state.policy, optimizer, state.rollout, chosen, NOW, TrainState(), state.generator
    )
    assert result.coefficients.critic_learning_rate == 0.02
    assert [group["lr"] for group in optimizer.param_groups] == [NOW.learning_rate, 0.02]


def test_scheduled_ranges_are_used() -> None:
    chosen = settings(value_clip=MeanClip(), schedules=Schedules(value_clip_range=LINE))
    now, _ = coefficients_now(chosen, NOW, TrainState(env_steps=50))
    assert now.value_clip_range == pytest.approx(0.15)
    assert chosen.value_clip_at(0.15) == MeanClip(range=0.15)
    assert chosen.value_clip_at(None) == MeanClip()
