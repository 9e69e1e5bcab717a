"""A number that is not finite: named, counted, left out, never spread.

The whole agent meets one at each of the seven places in ``test_guard_agent.py``.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from quantail.errors import ConfigError
from quantail.flow import Rollout
from quantail.gradient import _first_bad, gradient_step
from quantail.learner import Extras, update
from quantail.nets.actor_critic import ActorCritic
from quantail.nets.cores import LstmConfig, NoCoreConfig
from quantail.nets.normalizer import ObservationNormalizer
from quantail.optim.accumulation import GRADIENT_NORM, AccumulationInfo
from quantail.optim.guard import PLACES, Guard, GuardState, NonFiniteError, count
from quantail.optim.safety import Snapshot, guarded_step
from quantail.rollout.collect import collect, start
from quantail.rollout.environment import EnvStep
from quantail.rollout.sequences import gather
from quantail.state import TrainState
from tests.learner.agents import NOW, acted, settings, small
from tests.rollout.noisy_env import NoisyEnv

CORE = LstmConfig(hidden_size=8)
BAD = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


@pytest.mark.parametrize(
    ("field", "name"),
    [("log_probs", "log-ratio"), ("advantages", "policy loss"), ("atoms", "loss of critic 1")],
)
@pytest.mark.parametrize("value", BAD)
def test_what_was_bad_first_is_named(field: str, name: str, value: str) -> None:
    state = acted(small(core=CORE))
    batch = gather(state.rollout, state.targets, state.rollout.chunk_states, 8, torch.arange(16))
    rows = getattr(batch, field).clone()
    rows[2, 9] = BAD[value]
    optimizer = torch.optim.Adam(state.policy.parameters(), lr=0.01)
    chosen = settings(batch_size=128, microbatch_size=64, chunk_length=8)
    step = gradient_step(state.policy, optimizer, replace(batch, **{field: rows}), chosen, NOW)
    assert step.first_bad == name
    assert step.outcomes == (None, "log_ratio" if name == "log-ratio" else "loss")
    assert step.taken


def test_a_norm_that_overflows_is_named_as_such() -> None:
    """Every part of the gradient is finite, and their norm is not."""
    terms: list[Any] = [None]
    info = AccumulationInfo(used=(False,), bad=(GRADIENT_NORM,), weight=0.0, empty=0, non_finite=1)
    assert _first_bad(terms, info) == "gradient norm"
    assert _first_bad(terms, replace(info, bad=("actor.bias",))) == "gradient of actor.bias"


def test_the_very_first_step_can_be_undone() -> None:
    """There are no moments before it, and so there are none after."""

    class Failing(torch.optim.Adam):
        def step(self, closure: Any = None) -> Any:
            super().step(closure)
            self.param_groups[0]["params"][1].data[0] = torch.nan

    net = nn.Linear(2, 1)
    net(torch.ones(1, 2)).sum().backward()
    optimizer = Failing(net.parameters())
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
def test_the_normalizer_never_sees_a_bad_row(place: str) -> None:
    policy, rollout, _, _ = learned(place, float("nan"), CORE, 1.0)
    assert int(rollout.faults.rows.sum()) == 1
    fresh = ObservationNormalizer(policy.observation_space, policy.config.observation_clip)
    fresh.update(rollout.observations[~rollout.faults.rows])
    found, expected = policy.normalizer.state_dict(), fresh.state_dict()
    assert all(torch.equal(found[name], value) for name, value in expected.items())


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
