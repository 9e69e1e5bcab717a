"""A limit on a mean cost through acting and learning: sums, ends, and whom its terms reach."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from quantail.errors import DataError
from quantail.flow import Rollout, Targets
from quantail.gradient import loss_terms
from quantail.learner import update
from quantail.nets.actor_critic import ActorCritic
from quantail.nets.cores import LstmConfig, NoCoreConfig
from quantail.nets.cost import CostCritic
from quantail.risk.cost import CostLimit, CostState
from quantail.risk.dual import DualState
from quantail.rollout.collect import collect, start
from quantail.rollout.environment import EnvStep
from quantail.rollout.sequences import gather, minibatches
from quantail.state import TrainState
from quantail.targets.compute import compute_targets
from quantail.targets.cost import CostObjective
from tests.catalogue import catalogue
from tests.learner.agents import NOW, SPACES, settings, small
from tests.rollout.noisy_env import NoisyEnv

GAMMA = 0.9
CORE = LstmConfig(hidden_size=8)
TARGETS = replace(settings().targets, gamma=GAMMA)
SPENT = CostObjective(weight=0.5, price=2.0)


class CostlyEnv(NoisyEnv):
    """The noisy environment, whose actions cost something; keeps what it gave."""

    def __init__(self, *args: Any, spoil: tuple[int, int] | None = None) -> None:
        super().__init__(*args)
        self.steps: list[EnvStep] = []
        self.spoil = spoil

    def step(self, actions: Any) -> EnvStep:
        size = np.asarray(actions, np.float32).reshape(self.n_envs, -1).sum(1)
        step = replace(super().step(actions), costs=size + 0.1)
        if self.spoil is not None and len(self.steps) == self.spoil[0]:
            step.rewards[self.spoil[1]] = np.nan
        self.steps.append(step)
        return step


class Costly(NamedTuple):
    policy: ActorCritic
    rollouts: tuple[Rollout, Rollout]
    env: CostlyEnv
    targets: Targets
    generator: torch.Generator


def costly(length: int = 8, spoil: tuple[int, int] | None = None, **given: Any) -> Costly:
    """Act twice with a policy that has a cost critic, so that the second starts mid-episode."""
    torch.manual_seed(0)
    config = small(cost=CostCritic(discount=GAMMA), **given)
    env = CostlyEnv(8, SPACES["discrete"], spoil=spoil)
    policy = ActorCritic(env.observation_space, env.action_space, config)
    generator = torch.Generator().manual_seed(0)
    carry = start(policy, *env.reset(), 8)
    first, carry = collect(policy, env, carry, 32, length, generator)
    second, _ = collect(policy, env, carry, 32, length, generator)
    targets = compute_targets(second, TARGETS, config.twin, generator, None, SPENT)
    return Costly(policy, (first, second), env, targets, generator)


def test_episode_costs_are_discounted_sums_over_rollouts() -> None:
    state = costly(core=NoCoreConfig(), length=1)
    ended: list[list[float]] = [[], []]
    for env in range(8):
        total, factor = 0.0, 1.0
        for t, step in enumerate(state.env.steps):
            assert step.costs is not None
            total += factor * float(step.costs[env])
            factor *= GAMMA
            if step.terminated[env] | step.truncated[env]:
                ended[t // 32].append(total)
                total, factor = 0.0, 1.0
    for rollout, expected in zip(state.rollouts, ended, strict=True):
        assert rollout.cost is not None
        assert len(expected) > 20
        assert sorted(rollout.cost.ended_costs.tolist()) == pytest.approx(sorted(expected))
        assert rollout.cost.costs.shape == (32, 8)


def test_cut_episodes_and_the_end_of_a_rollout_are_valued_by_the_cost_critic() -> None:
    state = costly(core=NoCoreConfig(), length=1)
    rollout, policy = state.rollouts[1], state.policy
    assert rollout.cost is not None
    steps = [step for step in state.env.steps[32:] if step.final_observations is not None]
    finals = np.concatenate([np.asarray(step.final_observations) for step in steps])
    assert len(finals) > 5
    for seen, stored in (
        (torch.as_tensor(finals), rollout.cost.truncated_values),
        (torch.as_tensor(state.env.observation), rollout.cost.last_values),
        (rollout.observations[3], rollout.cost.values.rows(3)),  # type: ignore[index]
    ):
        n = len(seen)
        output = policy.step(seen, policy.initial_state(n), torch.zeros(n, dtype=torch.bool))
        assert output.cost is not None
        torch.testing.assert_close(stored.mean(), output.cost.mean())


def test_rows_before_a_bad_number_bootstrap_their_costs_too() -> None:
    state = costly(core=NoCoreConfig(), length=1, spoil=(40, 3))
    rollout = state.rollouts[1]
    assert rollout.cost is not None
    assert rollout.faults is not None
    row = (7, 3)  # the one before the bad reward
    assert bool(rollout.truncated[row])
    place = int(rollout.truncated.flatten()[: 7 * 8 + 3].sum())
    stored = rollout.cost.truncated_values.mean()[place]
    torch.testing.assert_close(stored, rollout.cost.values.mean()[8, 3])
    assert len(rollout.cost.truncated_values.mean()) == int(rollout.truncated.sum())
    assert bool(torch.isfinite(rollout.cost.ended_costs).all())


def test_environments_without_costs_are_refused() -> None:
    torch.manual_seed(0)
    env = NoisyEnv(8, SPACES["discrete"])
    config = small(cost=CostCritic(discount=GAMMA))
    policy = ActorCritic(env.observation_space, env.action_space, config)
    with pytest.raises(DataError, match=r"the environments gave none; fill EnvStep\.costs"):
        collect(policy, env, start(policy, *env.reset(), 8), 4, 4)


def reached(state: Costly, loss: Tensor) -> set[str]:
    found = set()
    for name, parameters in state.policy.parameter_groups().items():
        gradients = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        if any(g is not None and float(g.abs().sum()) > 0 for g in gradients):
            found.add(name)
    return found


@catalogue("F52")
def test_the_cost_term_reaches_the_actor_and_the_cost_loss_its_critic() -> None:
    """With the cost's advantages alone: a gradient for the actor, none for a return critic."""
    state = costly(core=CORE)
    rollout = state.rollouts[1]
    assert state.targets.cost is not None
    only = replace(state.targets, advantages=-state.targets.cost.advantages)
    batch = gather(rollout, only, rollout.chunk_states, 8, torch.arange(32))
    terms = loss_terms(state.policy, batch, settings(), NOW)
    assert reached(state, terms.policy) == {"actor_core", "actor"}
    assert terms.cost is not None
    assert reached(state, terms.cost) == {"critic_core", "critic_cost"}
    for k, value in enumerate(terms.values, start=1):
        assert reached(state, value) == {"critic_core", f"critic{k}"}


def test_return_critics_learn_the_same_whatever_the_cost_weighs() -> None:
    state = costly(core=CORE)
    rollout = state.rollouts[1]
    heads = list(state.policy.critics.parameters())
    gradients = []
    for objective in (None, SPENT, CostObjective(weight=9.0, price=90.0)):
        seeded = torch.Generator().manual_seed(1)
        targets = compute_targets(rollout, TARGETS, "min", seeded, None, objective)
        batch = gather(rollout, targets, rollout.chunk_states, 8, torch.arange(32))
        total = loss_terms(state.policy, batch, settings(), NOW, actor=False).total
        gradients.append(torch.autograd.grad(total, heads, allow_unused=True))
    seeded = torch.Generator().manual_seed(1)
    bare = compute_targets(replace(rollout, cost=None), TARGETS, "min", seeded)
    batch = gather(rollout, bare, rollout.chunk_states, 8, torch.arange(32))
    state.policy.cost_critic = None
    total = loss_terms(state.policy, batch, settings(), NOW, actor=False).total
    gradients.append(torch.autograd.grad(total, heads))
    for plain, *others in zip(*gradients, strict=True):
        for other in others:
            assert torch.equal(plain, other)


def test_a_cost_critic_adds_its_own_weights_and_changes_no_other() -> None:
    env = NoisyEnv(2, SPACES["discrete"])
    for given in ({}, {"orthogonal_init": False}, {"core": CORE, "share_core": True}):
        states = []
        for cost in (None, CostCritic(discount=GAMMA)):
            torch.manual_seed(3)
            config = small(cost=cost, **given)
            policy = ActorCritic(env.observation_space, env.action_space, config)
            states.append(policy.state_dict())
        plain, full = states
        assert [name for name in full if not name.startswith("cost_critic.")] == list(plain)
        assert len(full) > len(plain)
        for name, tensor in plain.items():
            assert torch.equal(tensor, full[name]), name


def test_every_ratio_is_one_before_the_first_step_and_microbatches_change_nothing() -> None:
    state = costly(core=CORE)
    rollout = state.rollouts[1]
    for batch in minibatches(rollout, state.targets, rollout.chunk_states, 8, 64, state.generator):
        terms = loss_terms(state.policy, batch, settings(), NOW)
        assert float(terms.ratio.log_ratio_max_abs) < 1e-5
    before = {name: value.clone() for name, value in state.policy.state_dict().items()}
    ends = []
    for size in (None, 16):
        state.policy.load_state_dict(before)
        optimizer = torch.optim.SGD(state.policy.parameters(), lr=0.1)
        chosen = settings(
            cost=CostLimit(limit=1.0), chunk_length=8, microbatch_size=size, targets=TARGETS
        )
        generator = torch.Generator().manual_seed(5)
        update(state.policy, optimizer, rollout, chosen, NOW, TrainState(), generator)
        ends.append({name: value.clone() for name, value in state.policy.state_dict().items()})
    for name, value in ends[0].items():
        torch.testing.assert_close(value, ends[1][name], rtol=1e-4, atol=1e-5)


def test_a_cycle_moves_the_cost_critic_its_scale_and_the_multiplier() -> None:
    state = costly(core=CORE)
    before = {name: value.clone() for name, value in state.policy.named_parameters()}
    cost = CostLimit(limit=0.5)
    known = TrainState(
        cost=CostState(active=True, dual=DualState(multiplier=4.0, integral=4.0), mean_std=2.0)
    )
    optimizer = torch.optim.Adam(state.policy.parameters())
    chosen = settings(cost=cost, chunk_length=8, targets=TARGETS)
    result, after = update(
        state.policy, optimizer, state.rollouts[1], chosen, NOW, known, state.generator
    )
    moved = [n for n, value in state.policy.named_parameters() if not torch.equal(value, before[n])]
    assert set(moved) == set(before)
    info = result.cost
    assert info is not None
    assert state.rollouts[1].cost is not None
    ended = state.rollouts[1].cost.ended_costs
    assert info.mean == pytest.approx(float(ended.mean()))
    assert info.violation == pytest.approx(float(ended.mean()) - 0.5)
    assert info.multiplier == pytest.approx(0.01 * (np.e**4 - 1))
    assert info.price == pytest.approx(2.0 * info.multiplier)
    assert after.cost.dual.multiplier > 4.0
    assert state.policy.cost_critic is not None
    assert float(state.policy.cost_critic.head.scale.updates) == 1.0
    assert all(step.losses.cost is not None for step in result.steps)


def test_the_cost_critic_learns_to_predict_costs() -> None:
    state = costly(core=NoCoreConfig(), length=1)
    optimizer = torch.optim.Adam(state.policy.parameters())
    chosen = settings(cost=CostLimit(limit=0.5), targets=TARGETS, n_epochs=30)
    now = replace(NOW, learning_rate=3e-3)
    result, _ = update(
        state.policy, optimizer, state.rollouts[1], chosen, now, TrainState(), state.generator
    )
    losses = [float(step.losses.cost) for step in result.steps]  # type: ignore[arg-type]
    assert np.mean(losses[-4:]) < 0.5 * np.mean(losses[:4])
