"""The imitation term: its weights, its sources, and memory that starts where episodes start."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from quantail.diagnostics.metrics import control_metrics
from quantail.errors import ConfigError, DataError
from quantail.gradient import loss_terms
from quantail.learner import Extras, update
from quantail.losses.imitation import (
    AdvantageWeighted,
    Cloning,
    advantage_weights,
    imitation_loss,
    imitation_share,
)
from quantail.nets.cores import LstmConfig, NoCoreConfig
from quantail.optim.schedules import Schedules, StepLinear
from quantail.rollout.demonstrations import (
    Demonstrations,
    draw_chunks,
    raw_action,
    replayed_states,
)
from quantail.state import TrainState
from tests.catalogue import catalogue
from tests.learner.agents import NOW, acted, settings, small
from tests.learner.test_term_gradients import reached, whole
from tests.rollout.noisy_env import NoisyEnv

CORE = LstmConfig(hidden_size=8)


@catalogue("F13")
def test_weights_are_held_before_the_exponential() -> None:
    scaled = torch.tensor([-50.0, 0.0, math.log(100), 1000.0], requires_grad=True)
    weights = advantage_weights(5 * scaled, 5.0, 100.0)
    torch.testing.assert_close(weights, torch.tensor([math.exp(-50), 1.0, 100.0, 100.0]))
    assert not weights.requires_grad


@catalogue("F13", "F52")
def test_the_term_reaches_the_actor_alone_and_not_its_weights() -> None:
    state = acted(small(core=CORE))
    chosen = settings(imitation=AdvantageWeighted(coefficient=1.0))
    terms = loss_terms(state.policy, whole(state), chosen, replace(NOW, imitation=1.0))
    assert reached(state, terms.imitation) == {"actor_core", "actor"}
    plain = loss_terms(state.policy, whole(state), settings(), NOW)
    torch.testing.assert_close(terms.total, plain.total + terms.imitation)
    log_probs = torch.tensor([-1.0, -2.0], requires_grad=True)
    weights = torch.tensor([3.0, 1.0], requires_grad=True)
    imitation_loss(log_probs, weights).sum().backward()
    assert weights.grad is None
    assert log_probs.grad is not None
    assert log_probs.grad.tolist() == [-3.0, -1.0]


@catalogue("F14")
def test_the_share_is_measured_and_told() -> None:
    assert float(imitation_share(torch.tensor(-3.0), torch.tensor(1.0))) == 0.75
    assert float(imitation_share(torch.tensor(0.0), torch.tensor(0.0))) == 0.0
    told = []
    for coefficient in (1e-6, 100.0):
        state = acted(small(core=NoCoreConfig()), length=1)
        optimizer = torch.optim.Adam(state.policy.parameters(), lr=1e-3)
        chosen = settings(imitation=AdvantageWeighted(coefficient=coefficient), n_epochs=1)
        result, _ = update(
            state.policy, optimizer, state.rollout, chosen, NOW, TrainState(), state.generator
        )
        told.append(control_metrics(result))
    assert [metrics.imitation_dominates for metrics in told] == [False, True]
    assert told[0].imitation_coefficient == 1e-6
    assert (told[1].imitation_share or 0) > 0.8


def recorded(n_steps: int = 64, n_envs: int = 2) -> Demonstrations:
    env = NoisyEnv(n_envs, end_probability=0.2)
    return Demonstrations.from_policy(lambda seen: (seen[:, 0] > 0) * 2, env, n_steps)  # type: ignore[call-overload]


def test_a_rule_is_recorded_with_its_episodes() -> None:
    demos = recorded()
    assert demos.actions.shape == (64, 2)
    assert demos.episode_starts[0].all()
    assert 2 < int(demos.episode_starts.sum()) < 60
    assert isinstance(demos.observations, torch.Tensor)
    assert torch.equal(demos.actions, (demos.observations[..., 0] > 0).long() * 2)


@pytest.mark.parametrize("core", [CORE, NoCoreConfig()], ids=lambda core: core.kind)
def test_shown_actions_become_likely(core: Any) -> None:
    length = 8 if core.kind == "lstm" else 1
    state = acted(small(core=core), length=length)
    demos = recorded()
    optimizer = torch.optim.Adam(state.policy.parameters(), lr=0.01)
    chosen = settings(
        imitation=Cloning(coefficient=5.0),
        n_epochs=20,
        chunk_length=8 if core.kind == "lstm" else None,
    )
    result, _ = update(
        state.policy,
        optimizer,
        state.rollout,
        chosen,
        replace(NOW, learning_rate=0.01),
        TrainState(),
        state.generator,
        Extras(demonstrations=demos),
    )
    first, last = (float(result.steps[index].losses.imitation) for index in (0, -1))
    assert first == pytest.approx(math.log(3), rel=0.1)
    assert last < first / 2


def test_memory_before_a_chunk_is_that_of_the_whole_stream() -> None:
    """Drawn chunks give the same law as one pass over the stream from its start."""
    state = acted(small(core=CORE))
    demos = recorded()
    states = replayed_states(state.policy, demos, 8)
    rows = draw_chunks(demos, states, 8, 64, torch.Generator().manual_seed(0))
    law = state.policy(rows.observations, rows.state, rows.episode_starts).actions
    start = state.policy.initial_state(2)
    everything = state.policy(demos.observations, start, demos.episode_starts).actions
    log_probs = law.log_prob(raw_action(law, rows.actions))
    expected = everything.log_prob(raw_action(everything, demos.actions))
    for column in log_probs.T:
        near = (expected.unfold(0, 8, 8) - column).abs().amax(-1)
        assert float(near.detach().min()) < 1e-5


@pytest.mark.parametrize("space", ["discrete", "box", "squashed", "multi_discrete", "multi_binary"])
def test_raw_actions_are_those_behind_the_environment_s(space: str) -> None:
    state = acted(small(core=CORE), space)
    law, raw = state.rollout.policy, state.rollout.actions
    back = raw_action(law, law.to_env(raw))
    if space == "box":
        assert torch.equal(back, raw.clamp(-1, 1))
    else:
        torch.testing.assert_close(back, raw, atol=1e-3, rtol=1e-3, check_dtype=False)


def test_demonstrations_that_do_not_fit_are_refused() -> None:
    rows = np.zeros((4, 3), np.float32)
    starts = np.array([True, False, False, False])
    one = Demonstrations.from_arrays(rows, np.zeros(4, np.int64), starts)
    assert one.episode_starts.shape == (4, 1)
    with pytest.raises(DataError, match="must begin with an episode"):
        Demonstrations.from_arrays(rows, np.zeros(4), ~starts)
    with pytest.raises(DataError, match="actions must start with the axes"):
        Demonstrations.from_arrays(rows, np.zeros(3), starts)
    with pytest.raises(DataError, match="observations of a demonstration must be finite"):
        Demonstrations.from_arrays(rows * np.nan, np.zeros(4), starts)
    state = acted(small(core=CORE))
    with pytest.raises(DataError, match=r"at least chunk_length \(8\) steps"):
        replayed_states(state.policy, one, 8)


@pytest.mark.parametrize(
    ("observations", "actions", "message"),
    [
        (np.zeros((4, 3)), np.full(4, 7), r"choices of Discrete\(2\); 4 are not, the first is 7"),
        (np.zeros((4, 3)), np.full(4, -1), "the first is -1"),
        (np.zeros((4, 3)), np.full(4, 0.5), "the first is 0.5"),
        (np.zeros((4, 3)), np.zeros((4, 2), int), r"actions .* the shape \(\) .* was \(2,\)"),
        (np.zeros((4, 2)), np.zeros(4, int), r"observations .* the shape \(3,\) .* was \(2,\)"),
        ({"a": np.zeros((4, 3))}, np.zeros(4, int), "one array, .* a dictionary with the keys 'a'"),
    ],
)
def test_demonstrations_of_other_spaces_are_refused(
    observations: Any, actions: Any, message: str
) -> None:
    demos = Demonstrations.from_arrays(observations, actions, np.arange(4) == 0)
    with pytest.raises(DataError, match=message):
        demos.check_spaces(spaces.Box(-1.0, 1.0, (3,)), spaces.Discrete(2))


@pytest.mark.parametrize(
    ("space", "seen", "message"),
    [
        (spaces.Discrete(3), np.full(4, 7), r"observations .* Discrete\(3\); 4 are not, .* is 7"),
        (spaces.MultiDiscrete([3, 2]), np.tile([1, 2], (4, 1)), "4 are not, the first is 2"),
        (
            spaces.Dict({"a": spaces.Discrete(3), "b": spaces.Discrete(3)}),
            {"a": np.zeros(4, int), "b": np.array([0, 0, -1, 0])},
            r"observations\['b'\] .* 1 are not, the first is -1",
        ),
    ],
)
def test_observations_that_are_no_choices_of_their_space_are_refused(
    space: spaces.Space[Any], seen: Any, message: str
) -> None:
    demos = Demonstrations.from_arrays(seen, np.zeros(4, int), np.arange(4) == 0)
    with pytest.raises(DataError, match=message):
        demos.check_spaces(space, spaces.Discrete(2))


def test_choices_may_be_of_any_type() -> None:
    starts, actions = np.arange(4) == 0, np.zeros(4, int)
    flags = Demonstrations.from_arrays(np.ones((4, 2), np.bool_), actions, starts)
    flags.check_spaces(spaces.MultiBinary(2), spaces.Discrete(2))
    small = Demonstrations.from_arrays(np.ones(4, np.uint8), actions, starts)
    small.check_spaces(spaces.Discrete(3, start=-1), spaces.Discrete(2))


def test_demonstrations_of_the_same_spaces_are_not() -> None:
    rows, starts = np.zeros((4, 3)), np.arange(4) == 0
    seen = spaces.Box(-1.0, 1.0, (3,))
    chosen: list[tuple[Any, Any]] = [
        (spaces.Discrete(2, start=-1), np.array([-1, 0, 0, -1])),
        (spaces.MultiDiscrete([3, 2]), np.tile([2, 1], (4, 1))),
        (spaces.MultiBinary(2), np.ones((4, 2), int)),
        (spaces.Box(-1.0, 1.0, (2,)), np.full((4, 2), 3.0)),
    ]
    for space, actions in chosen:
        Demonstrations.from_arrays(rows, actions, starts).check_spaces(seen, space)
    both = spaces.Dict({"a": seen})
    made = Demonstrations.from_arrays({"a": rows}, np.zeros(4, int), starts)
    made.check_spaces(both, spaces.Discrete(2))


def test_the_coefficient_has_one_owner() -> None:
    falling = Schedules(imitation=StepLinear(start=1.0, end_step=100))
    with pytest.raises(ConfigError, match="given once.*was given 0 times"):
        settings(imitation=Cloning())
    with pytest.raises(ConfigError, match="given once.*was given 2 times"):
        settings(imitation=Cloning(coefficient=1.0), schedules=falling)
    with pytest.raises(ConfigError, match="no effect without imitation"):
        settings(schedules=falling)
    assert settings(imitation=Cloning(), schedules=falling)
