"""Return statistics: refreshed once per cycle, in one place, without moving a prediction."""

from typing import Any

import pytest
import torch

from quantail.learner import update
from quantail.nets.actor_critic import ActorCritic
from quantail.nets.cores import LstmConfig
from quantail.nets.critics import QuantileCritic, ScalarCritic
from quantail.state import TrainState
from tests.catalogue import catalogue
from tests.learner.agents import NOW, Acted, acted, settings, small

CORE = LstmConfig(hidden_size=8)


def scales(policy: ActorCritic) -> list[tuple[float, float]]:
    return [
        (float(critic.head.scale.mean), float(critic.head.scale.std))  # type: ignore[union-attr]
        for critic in policy.critics
    ]


def learn(state: Acted, **given: Any) -> None:
    optimizer = torch.optim.Adam(state.policy.parameters(), lr=1e-3)
    update(
        state.policy, optimizer, state.rollout, settings(chunk_length=8, **given), NOW,
        TrainState(), state.generator,
    )  # fmt: skip


@catalogue("F38", "F39")
def test_statistics_move_once_per_cycle_before_the_epochs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = acted(small(core=CORE))
    moved: list[list[tuple[float, float]]] = []
    seen: list[list[tuple[float, float]]] = []
    whole_update, whole_forward = ActorCritic.update_scale, ActorCritic.forward

    def spy_update(self: ActorCritic, *given: Any) -> None:
        whole_update(self, *given)
        moved.append(scales(self))

    def spy_forward(self: ActorCritic, *given: Any, **named: Any) -> Any:
        seen.append(scales(self))
        return whole_forward(self, *given, **named)

    before = scales(state.policy)
    monkeypatch.setattr(ActorCritic, "update_scale", spy_update)
    monkeypatch.setattr(ActorCritic, "forward", spy_forward)
    learn(state, n_epochs=3)
    assert len(moved) == 1
    assert moved[0] != before
    assert all(row == moved[0] for row in seen)
    assert scales(state.policy) == moved[0]


@catalogue("X38", "F38")
@pytest.mark.parametrize("critic", [QuantileCritic(n_quantiles=8), ScalarCritic()])
def test_moving_statistics_leave_raw_predictions_alone(critic: Any) -> None:
    state = acted(small(core=CORE, critic=critic))
    rows = (state.carry.observation, state.carry.state, state.carry.episode_starts)
    with torch.no_grad():
        before = state.policy.step(*rows).values
        atoms = 1000.0 + 50.0 * torch.randn(64, 5)
        state.policy.update_scale(atoms, torch.full((5,), 0.2), torch.ones(64))
        after = state.policy.step(*rows).values
    assert scales(state.policy)[0][0] > 500.0
    for old, new in zip(before, after, strict=True):
        torch.testing.assert_close(new.atoms()[0], old.atoms()[0], rtol=1e-5, atol=1e-5 * 1000.0)


@catalogue("X02")
def test_cvar_of_the_training_pass_keeps_its_graph_after_a_value_query() -> None:
    state = acted(small(core=CORE))
    output = state.policy(
        state.rollout.observations,
        type(state.rollout.chunk_states)(
            *(tuple(part[0] for part in core) for core in state.rollout.chunk_states)
        ),
        state.rollout.episode_starts,
    )
    tail = output.values[0].cvar(0.1).mean()
    with torch.no_grad():
        state.policy.step(state.carry.observation, state.carry.state, state.carry.episode_starts)
    groups = state.policy.parameter_groups()
    for name, reached in (("critic1", True), ("critic_core", True), ("critic2", False)):
        gradients = torch.autograd.grad(tail, groups[name], retain_graph=True, allow_unused=True)
        total = sum(float(g.abs().sum()) for g in gradients if g is not None)
        assert (total > 0) is reached, name
