"""A number that is not finite, at any of seven places: named, counted, left out, never spread."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from quantail.errors import ConfigError
from quantail.flow import Minibatch, Rollout, StepInfo
from quantail.gradient import gradient_step
from quantail.learner import Extras, update
from quantail.nets.actor_critic import ActorCritic
from quantail.nets.cores import LstmConfig, NoCoreConfig
from quantail.optim.guard import PLACES, Guard, GuardState, NonFiniteError, count
from quantail.optim.safety import Snapshot, guarded_step
from quantail.rollout.collect import collect, start
from quantail.rollout.environment import EnvStep
from quantail.rollout.sequences import gather
from quantail.state import TrainState
from tests.catalogue import catalogue
from tests.learner.agents import NOW, Acted, acted, settings, small
from tests.rollout.noisy_env import NoisyEnv

CORE = LstmConfig(hidden_size=8)
BAD = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
MICRO = settings(batch_size=128, microbatch_size=64, chunk_length=8)


def batch_of(state: Acted, chunks: Any) -> Minibatch:
    return gather(
        state.rollout, state.targets, state.rollout.chunk_states, 8, torch.as_tensor(chunks)
    )


@contextmanager
def spoiled_call(module: nn.Module, call: int, spoil: Callable[[Any], Any]) -> Iterator[None]:
    """Spoil what a module returns in one of its calls."""
    calls = 0

    def hook(_: nn.Module, __: Any, output: Any) -> Any:
        nonlocal calls
        calls += 1
        return spoil(output) if calls == call else None

    handle = module.register_forward_hook(hook)
    yield
    handle.remove()


def steps(state: Acted, batches: list[Any], place: str, value: float) -> list[StepInfo]:
    """Take one step on each batch of chunks; the second micro-batch of all is spoiled at a place.

    With ``place`` empty nothing is spoiled.
    """
    optimizer = torch.optim.Adam(state.policy.parameters(), lr=0.01)
    head = state.policy.critics[0].head  # type: ignore[union-attr]
    found = []

    def spoil_law(law: Any) -> Any:
        return law.affine(torch.full_like(law.mean(), value), torch.ones_like(law.mean()))

    for number, chunks in enumerate(batches):
        batch = batch_of(state, chunks)
        if place == "log_ratio" and number == 0:
            log_probs = batch.log_probs.clone()
            log_probs[2, 9] = value
            batch = replace(batch, log_probs=log_probs)
        call = 2 if number == 0 and place == "loss" else 0
        with spoiled_call(head, call, spoil_law):
            found.append(gradient_step(state.policy, optimizer, batch, MICRO, NOW))
    return found


@catalogue("F03", "F49")
@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("place", ["log_ratio", "loss"])
def test_a_bad_microbatch_is_as_if_absent(place: str, value: str) -> None:
    """Chunks 8 to 15 are the spoiled micro-batch; the other run never sees them."""
    whole, rest = list(range(16)), list(range(16, 32))
    spoiled, clean = acted(small(core=CORE)), acted(small(core=CORE))
    with_bad = steps(spoiled, [whole, rest], place, BAD[value])
    steps(clean, [whole[:8], rest], "", 0.0)
    assert_equal_weights(spoiled, clean)
    assert with_bad[0].outcomes == (None, place)
    assert with_bad[1].outcomes == (None, None)


def assert_equal_weights(one: Acted, other: Acted) -> None:
    pairs = zip(one.policy.parameters(), other.policy.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@catalogue("F49")
@pytest.mark.parametrize("value", BAD)
def test_a_bad_gradient_is_as_if_absent(value: str) -> None:
    """The gradient alone is spoiled: the forward pass of the micro-batch is finite."""
    results = []
    for chunks in (range(16), range(8)):
        state = acted(small(core=CORE))
        parameter = state.policy.critics[1].head.linear.weight  # type: ignore[union-attr]
        calls = 0

        def hook(gradient: Tensor) -> Tensor:
            nonlocal calls
            calls += 1
            return gradient * BAD[value] if calls == 2 else gradient

        handle = parameter.register_hook(hook)
        optimizer = torch.optim.Adam(state.policy.parameters(), lr=0.01)
        step = gradient_step(state.policy, optimizer, batch_of(state, chunks), MICRO, NOW)
        handle.remove()
        results.append((state, step))
    assert_equal_weights(results[0][0], results[1][0])
    assert results[0][1].outcomes == (None, "gradient")
    assert "critics.1.head.linear.weight" in results[0][1].first_bad


class FailingAdam(torch.optim.Adam):
    """Writes a bad number into a parameter in one of its steps."""

    def __init__(self, parameters: Any, bad_step: int, value: float) -> None:
        super().__init__(parameters, lr=0.01)
        self.bad_step, self.value, self.taken = bad_step, value, 0

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        self.taken += 1
        if self.taken == self.bad_step:
            self.param_groups[0]["params"][3].data.view(-1)[0] = self.value


@pytest.mark.parametrize("value", BAD)
def test_a_step_that_spoils_a_parameter_is_undone(value: str) -> None:
    results = []
    for batches, bad_step in (([0, 1, 2], 2), ([0, 2], 0)):
        state = acted(small(core=CORE))
        optimizer = FailingAdam(state.policy.parameters(), bad_step, BAD[value])
        infos = [
            gradient_step(
                state.policy, optimizer, batch_of(state, range(8 * n, 8 * n + 8)), MICRO, NOW
            )
            for n in batches
        ]
        results.append((state, infos, optimizer))
    assert_equal_weights(results[0][0], results[1][0])
    for one, other in zip(results[0][2].state.values(), results[1][2].state.values(), strict=True):
        assert torch.equal(one["exp_avg"], other["exp_avg"])
        assert torch.equal(one["step"], other["step"])
    assert [info.taken for info in results[0][1]] == [True, False, True]
    assert results[0][1][1].outcomes == ("parameter",)
    assert results[0][1][1].first_bad == [n for n, _ in results[0][0].policy.named_parameters()][3]


def test_the_very_first_step_can_be_undone() -> None:
    net = nn.Linear(2, 1)
    net(torch.ones(1, 2)).sum().backward()
    optimizer = FailingAdam(net.parameters(), 1, float("nan"))
    optimizer.param_groups[0]["params"] = [*net.parameters()] * 2
    before = [p.detach().clone() for p in net.parameters()]
    assert guarded_step(optimizer, dict(net.named_parameters())) == "bias"
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    assert not optimizer.state


class SpoiledEnv(NoisyEnv):
    """Gives one bad number at one step, or the number and weights that should stand for it."""

    def __init__(self, place: str, value: float | None, at: int, **given: Any) -> None:
        super().__init__(4, spaces.Box(-1.0, 1.0, (1,), np.float32), **given)
        self.place, self.value, self.at, self.time = place, value, at, 0
        self.actions: list[Any] = []

    def step(self, actions: Any) -> EnvStep:
        before = self.observation.copy()
        self.actions.append(actions.copy())
        step = super().step(actions)
        self.time += 1
        rewards, observations = step.rewards.copy(), step.observations
        assert isinstance(observations, np.ndarray)
        weights = step.weights.copy()
        if self.place == "reward" and self.time == self.at + 1:
            rewards[1] = 0.0 if self.value is None else self.value
            weights[1] = 1.0 if self.value is not None else 0.0
        if self.place == "observation" and self.time == self.at:
            observations[1] = before[1] if self.value is None else self.value
        if self.place == "observation" and self.time == self.at + 1 and self.value is None:
            weights[1] = 0.0
        return replace(step, rewards=rewards, observations=observations, weights=weights)


def learned(place: str, value: float | None, core: Any, end_probability: float) -> Any:
    torch.manual_seed(0)
    env = SpoiledEnv(place, value, 5, end_probability=end_probability)
    policy = ActorCritic(env.observation_space, env.action_space, small(core=core))
    generator = torch.Generator().manual_seed(0)
    length = 1 if core.kind == "none" else 8
    rollout, _ = collect(policy, env, start(policy, *env.reset(), 4), 16, length, generator)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)
    chosen = settings(n_steps=16, batch_size=32, chunk_length=None if core.kind == "none" else 8)
    result, state = update(policy, optimizer, rollout, chosen, NOW, TrainState(), generator)
    return policy, rollout, result, state


@pytest.mark.parametrize("core", [CORE, NoCoreConfig()], ids=lambda core: core.kind)
@pytest.mark.parametrize("value", BAD)
@pytest.mark.parametrize("place", ["reward", "observation"])
def test_a_bad_row_is_as_if_it_had_no_weight(place: str, value: str, core: Any) -> None:
    """Episodes of one step, so that the row stands alone; the other run gives it no weight."""
    policy, rollout, result, state = learned(place, BAD[value], core, 1.0)
    other, plain, _, _ = learned(place, None, core, 1.0)
    assert plain.faults is None
    assert rollout.faults is not None
    assert rollout.faults.counts[place] == 1  # type: ignore[index]
    assert rollout.faults.first == f"{place} of environment 1 at step 5 of the rollout"
    assert torch.equal(rollout.weights, plain.weights)
    for one, reference in zip(policy.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, reference)
    assert result.control.faults[place] == 1  # type: ignore[index]
    assert state.guard.counted()[place] == 1  # type: ignore[index]
    assert all(
        torch.isfinite(part).all() for core_state in rollout.chunk_states for part in core_state
    )


@pytest.mark.parametrize("place", ["reward", "observation"])
def test_rows_before_a_bad_one_learn_from_the_critic_instead(place: str) -> None:
    """Without ends the rows before are cut off, and one more row for a bad observation."""
    _, rollout, result, _ = learned(place, float("nan"), CORE, 0.0)
    left_out = [5] if place == "reward" else [4, 5]
    assert rollout.weights[:, 1].eq(0).nonzero().flatten().tolist() == left_out
    assert rollout.weights[:, [0, 2, 3]].eq(1).all()
    cut = left_out[0] - 1
    assert rollout.truncated.nonzero().tolist() == [[cut, 1]]
    for values, after in zip(rollout.values, rollout.truncated_values, strict=True):
        expected = values.mean()[left_out[0], 1].unsqueeze(0)
        torch.testing.assert_close(after.mean(), expected)
    assert all(step.taken for step in result.steps)


def test_a_bad_action_is_not_sent_and_not_learned_from() -> None:
    env = SpoiledEnv("", None, 0, end_probability=0.0)
    torch.manual_seed(0)
    policy = ActorCritic(env.observation_space, env.action_space, small(core=CORE))

    def draw(step: int, law: Any) -> Tensor:
        raw = law.mode() + 0.1
        if step == 3:
            raw[2] = torch.inf
        return raw

    rollout, _ = collect(policy, env, start(policy, *env.reset(), 4), 8, 8, None, None, draw)
    assert rollout.faults is not None
    assert rollout.faults.counts == {"observation": 0, "action": 1, "reward": 0}
    assert rollout.weights.eq(0).nonzero().tolist() == [[3, 2]]
    assert np.isfinite(np.stack(env.actions)).all()
    mode = rollout.policy.mode()[3, 2]
    assert torch.equal(rollout.actions[3, 2], mode)


def test_the_return_of_an_episode_with_a_bad_reward_is_unknown() -> None:
    _, rollout, _, _ = learned("reward", float("nan"), NoCoreConfig(), 1.0)
    assert len(rollout.episodes.returns) == 16 * 4 - 1
    assert np.isfinite(rollout.episodes.returns).all()


def spoil_all(rollout: Rollout) -> Rollout:
    return replace(rollout, log_probs=torch.full_like(rollout.log_probs, torch.nan))


def test_too_many_in_a_row_stop_with_a_report() -> None:
    state = acted(small(core=CORE))
    optimizer = torch.optim.Adam(state.policy.parameters(), lr=0.01)
    before = [p.detach().clone() for p in state.policy.parameters()]
    chosen = settings(batch_size=64, chunk_length=8, n_epochs=10, guard=Guard(limit=20))
    given = (state.policy, optimizer, spoil_all(state.rollout), chosen, NOW)
    with pytest.raises(NonFiniteError, match="20 times in a row.*Place: log_ratio") as caught:
        update(*given, TrainState(), state.generator)
    assert caught.value.report["counts"]["log_ratio"] == 20
    assert caught.value.report["epoch"] == 5
    heads = {id(p) for critic in state.policy.critics for p in critic.head.parameters()}  # type: ignore[union-attr]
    for old, parameter in zip(before, state.policy.parameters(), strict=True):
        assert id(parameter) in heads or torch.equal(old, parameter)


def test_nineteen_in_a_row_go_on_and_are_remembered() -> None:
    state = acted(small(core=CORE))
    optimizer = torch.optim.Adam(state.policy.parameters(), lr=0.01)
    chosen = settings(batch_size=64, chunk_length=8, n_epochs=4, guard=Guard(limit=20))
    given = (state.policy, optimizer, spoil_all(state.rollout), chosen, NOW)
    result, after = update(*given, TrainState(), state.generator)
    assert after.guard.learning_row == 16
    assert result.control.faults["log_ratio"] == 16
    with pytest.raises(NonFiniteError, match="cycle 1"):
        update(*given, after, state.generator)


def test_weights_go_back_to_health() -> None:
    state = acted(small(core=CORE))
    optimizer = torch.optim.Adam(state.policy.parameters(), lr=0.01)
    healthy = Snapshot.take(state.policy, optimizer)
    with torch.no_grad():
        next(state.policy.parameters()).fill_(torch.nan)
    chosen = settings(batch_size=64, chunk_length=8, n_epochs=4, guard=Guard(limit=5, rollbacks=1))
    given = (state.policy, optimizer, spoil_all(state.rollout), chosen, NOW)
    result, after = update(*given, TrainState(), state.generator, Extras(healthy=healthy))
    assert result.control.rolled_back
    assert all(bool(torch.isfinite(p).all()) for p in state.policy.parameters())
    assert after.guard.rollbacks == 1
    with pytest.raises(NonFiniteError):
        update(*given, after, state.generator, Extras(healthy=healthy))


@pytest.mark.parametrize("place", ["observation", "reward", "action"])
def test_bad_steps_in_a_row_stop_acting_too(place: str) -> None:
    outcomes: Any = [place] * 12
    state, exceeded = count(Guard(limit=20), GuardState(), outcomes, acting=True)
    assert not exceeded
    state, exceeded = count(Guard(limit=20), state, [None, *outcomes], acting=True)
    assert not exceeded
    assert state.acting_row == 12
    _, exceeded = count(Guard(limit=20), state, outcomes, acting=True)
    assert exceeded


def test_every_place_is_counted() -> None:
    state, _ = count(Guard(), GuardState(), PLACES, acting=False)
    assert set(state.counted().values()) == {1}


def test_a_guard_that_stops_before_anything_is_refused() -> None:
    with pytest.raises(ConfigError, match="limit: must be at least 1; was 0"):
        Guard(limit=0)
