"""Tail risk through acting and learning: budgets, ratios, and whom the tail term reaches."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from quantail.errors import ConfigError
from quantail.flow import Coefficients, Rollout, Targets
from quantail.gradient import loss_terms
from quantail.learner import update
from quantail.losses.imitation import Cloning
from quantail.nets.actor_critic import ActorCritic
from quantail.nets.budget import BudgetConfig
from quantail.nets.cores import GruConfig, LstmConfig, NoCoreConfig
from quantail.nets.critics import CategoricalCritic, QuantileCritic
from quantail.optim.schedules import Schedules, StepLinear
from quantail.risk.budget import TargetDraw, after_step, start_budgets
from quantail.risk.config import DualConfig, RiskConfig
from quantail.risk.control import RiskState
from quantail.risk.search import SearchState
from quantail.rollout.collect import collect, start
from quantail.rollout.environment import EnvStep
from quantail.rollout.sequences import gather, minibatches
from quantail.rollout.target_curve import _some, start_tail, target_curve
from quantail.state import TrainState
from quantail.tail_control import tail_objective
from quantail.targets.compute import TailObjective, compute_targets
from tests.catalogue import catalogue
from tests.learner.agents import NOW, SPACES, settings, small
from tests.rollout.noisy_env import NoisyEnv

GAMMA = 0.9
DRAW = TargetDraw(target=-1.0, low=-3.0, high=1.0, share=0.5)
TAIL = TailObjective(alpha=0.2, weight=2.0)
TARGETS = replace(settings().targets, gamma=GAMMA)


class Recorder:
    """An environment that keeps what it gave."""

    def __init__(self, env: NoisyEnv) -> None:
        self.env, self.n_envs = env, env.n_envs
        self.steps: list[EnvStep] = []

    def reset(self) -> Any:
        return self.env.reset()

    def step(self, actions: Any) -> EnvStep:
        self.steps.append(self.env.step(actions))
        return self.steps[-1]


class Risky(NamedTuple):
    policy: ActorCritic
    rollouts: tuple[Rollout, Rollout]
    steps: list[EnvStep]
    targets: Targets
    generator: torch.Generator


def risky(space: str = "discrete", length: int = 8, observed: bool = True, **given: Any) -> Risky:
    """Act twice with a policy that has a budget, so that the second rollout starts mid-episode."""
    torch.manual_seed(0)
    config = small(budget=BudgetConfig(discount=GAMMA, observed=observed), **given)
    env = Recorder(NoisyEnv(8, SPACES[space]))
    policy = ActorCritic(env.env.observation_space, env.env.action_space, config)
    assert policy.budget is not None
    policy.budget.move(-1.0, 2.0)
    generator = torch.Generator().manual_seed(0)
    carry = start(policy, *env.reset(), 8, DRAW, generator)
    first, carry = collect(policy, env, carry, 32, length, generator, targets=DRAW)
    second, _ = collect(policy, env, carry, 32, length, generator, targets=DRAW)
    targets = compute_targets(second, TARGETS, config.twin, generator, TAIL)
    return Risky(policy, (first, second), env.steps, targets, generator)


@pytest.mark.parametrize(
    "core", [LstmConfig(hidden_size=8), GruConfig(hidden_size=8), NoCoreConfig()]
)
@pytest.mark.parametrize("critic", [QuantileCritic(n_quantiles=8), CategoricalCritic(n_atoms=11)])
def test_every_ratio_is_one_before_the_first_step(core: Any, critic: Any) -> None:
    length = 1 if core.kind == "none" else 8
    state = risky(core=core, critic=critic, length=length)
    rollout = state.rollouts[1]
    for batch in minibatches(
        rollout, state.targets, rollout.chunk_states, length, 64, state.generator
    ):
        ratio = loss_terms(state.policy, batch, settings(), NOW).ratio
        assert float(ratio.log_ratio_max_abs) < 1e-5


def test_budgets_follow_rewards_and_start_anew_with_episodes() -> None:
    state = risky(core=NoCoreConfig(), length=1)
    budgets = torch.cat([rollout.budget.budgets for rollout in state.rollouts if rollout.budget])
    ended: list[float] = []
    for env in range(8):
        total, factor = 0.0, 1.0
        for t, step in enumerate(state.steps):
            total += factor * float(step.rewards[env])
            factor *= GAMMA
            done = bool(step.terminated[env] | step.truncated[env])
            if t + 1 < len(state.steps):
                after = float(budgets[t + 1, env])
                if done:
                    assert after == -1.0 or -3.0 <= after <= 1.0
                else:
                    assert after == pytest.approx(
                        (float(budgets[t, env]) - float(step.rewards[env])) / GAMMA
                    )
            if done:
                ended.append(total)
                total, factor = 0.0, 1.0
    found = torch.cat([r.budget.ended_returns for r in state.rollouts if r.budget])
    assert sorted(found.tolist()) == pytest.approx(sorted(ended))
    targets = torch.cat([r.budget.ended_targets for r in state.rollouts if r.budget])
    explored = torch.cat([r.budget.ended_explored for r in state.rollouts if r.budget])
    assert bool((targets[~explored] == -1.0).all())
    assert bool(((targets[explored] > -3.0) & (targets[explored] < 1.0)).all())
    assert 0.2 < float(explored.double().mean()) < 0.8
    cut = torch.cat([r.budget.ended_cut for r in state.rollouts if r.budget])
    flags = [step.truncated[step.terminated | step.truncated] for step in state.steps]
    assert cut.tolist() == np.concatenate(flags).tolist()
    assert 0.2 < float(cut.double().mean()) < 0.8


def test_an_episode_of_unknown_return_counts_neither_as_cut_nor_as_ended() -> None:
    torch.manual_seed(0)
    env = Recorder(NoisyEnv(8, SPACES["discrete"]))
    config = small(budget=BudgetConfig(discount=GAMMA), core=NoCoreConfig())
    policy = ActorCritic(env.env.observation_space, env.env.action_space, config)
    carry = start(policy, *env.reset(), 8, DRAW)
    _, carry = collect(policy, env, carry, 8, 1, targets=DRAW)
    assert carry.budget is not None
    spoiled = torch.where(torch.arange(8) < 4, torch.nan, carry.budget.returns)
    carry = replace(carry, budget=replace(carry.budget, returns=spoiled))
    rows = collect(policy, env, carry, 32, 1, targets=DRAW)[0].budget
    assert rows is not None
    known, flags = np.arange(8) >= 4, []
    for step in env.steps[8:]:
        ended = step.terminated | step.truncated
        flags += step.truncated[ended & known].tolist()
        known |= ended
    assert known.all()
    assert rows.ended_cut.tolist() == flags
    assert len(rows.ended_returns) == len(flags)


def test_cut_episodes_are_valued_at_the_budget_after_their_last_step() -> None:
    state = risky(core=NoCoreConfig(), length=1)
    rollout, policy = state.rollouts[1], state.policy
    assert rollout.budget is not None
    assert policy.budget is not None
    left = (rollout.budget.budgets - rollout.rewards) / GAMMA
    steps = [step for step in state.steps[32:] if step.final_observations is not None]
    finals = np.concatenate([np.asarray(step.final_observations) for step in steps])
    assert len(finals) > 5
    count = len(finals)
    values = policy.step(
        torch.as_tensor(finals),
        policy.initial_state(count),
        torch.zeros(count, dtype=torch.bool),
        None,
        policy.budget(left[rollout.truncated]),
    ).values
    for stored, again in zip(rollout.truncated_values, values, strict=True):
        torch.testing.assert_close(stored.mean(), again.mean())


def test_an_unobserved_budget_shows_nothing() -> None:
    hidden, shown = (risky(observed=observed).rollouts[1].budget for observed in (False, True))
    assert hidden is not None
    assert shown is not None
    assert bool((hidden.inputs == 0).all())
    assert bool((shown.inputs.std((0, 1)) > 0.1).all())


def test_advantages_are_mixed_before_they_are_normalized() -> None:
    state = risky()
    plain = replace(TARGETS, normalize_advantage=False)
    args = (state.rollouts[1], plain, "min")
    seeds = [torch.Generator().manual_seed(1) for _ in range(2)]
    mean = compute_targets(*args, seeds[0])
    mixed = compute_targets(*args, seeds[1], TAIL)
    assert mixed.tail is not None
    # By the slope of the utility: a gain counts 1, and λ/α more where the return falls short.
    slope = 1.0 + 2.0 / TAIL.alpha * mixed.tail.probability
    expected = (mean.advantages.double() + 2.0 * mixed.tail.advantages) / slope
    torch.testing.assert_close(mixed.advantages.double(), expected, rtol=1e-5, atol=1e-6)
    assert float(mixed.tail.advantages.std()) > 0.1
    torch.testing.assert_close(mixed.atoms, mean.atoms)
    assert 0.0 < float(mixed.tail.tail_share) <= 1.0


def test_a_row_deep_in_the_tail_weighs_no_more_than_one_far_above() -> None:
    """There A_tail is A_mean/α, and the slope 1 + λ/α takes it back: A is that of the mean."""
    state = risky(core=NoCoreConfig(), length=1)
    rollout = state.rollouts[1]
    assert rollout.budget is not None
    plain = replace(TARGETS, normalize_advantage=False)
    mean = compute_targets(rollout, plain, "min", torch.Generator().manual_seed(1)).advantages
    for far, probability in ((1e6, 1.0), (-1e6, 0.0)):
        budgets = torch.full_like(rollout.budget.budgets, far)
        moved = replace(rollout, budget=replace(rollout.budget, budgets=budgets))
        found = compute_targets(moved, plain, "min", torch.Generator().manual_seed(1), TAIL)
        assert found.tail is not None
        assert bool((found.tail.probability - probability).abs().max() < 1e-6)
        torch.testing.assert_close(found.advantages, mean, rtol=1e-4, atol=1e-5)


@catalogue("F35", "F52", "X02")
def test_the_tail_term_reaches_the_actor_and_never_the_critics() -> None:
    """With the tail's advantages alone: a gradient for the actor, none for a single quantile."""
    state = risky(core=LstmConfig(hidden_size=8))
    rollout = state.rollouts[1]
    assert state.targets.tail is not None
    only = replace(state.targets, advantages=state.targets.tail.advantages.float())
    batch = gather(rollout, only, rollout.chunk_states, 8, torch.arange(32))
    policy_term = loss_terms(state.policy, batch, settings(), NOW).policy
    groups = state.policy.parameter_groups()
    for name, parameters in groups.items():
        gradients = torch.autograd.grad(
            policy_term, parameters, retain_graph=True, allow_unused=True
        )
        reached = {g is not None and float(g.abs().sum()) > 0 for g in gradients}
        assert reached == {not name.startswith("critic")}, name


@catalogue("F35")
def test_critics_learn_the_same_whatever_the_tail_weighs() -> None:
    state = risky()
    rollout = state.rollouts[1]
    gradients = []
    for objective in (None, TAIL, replace(TAIL, weight=50.0)):
        seeded = torch.Generator().manual_seed(1)
        targets = compute_targets(rollout, TARGETS, "min", seeded, objective)
        batch = gather(rollout, targets, rollout.chunk_states, 8, torch.arange(32))
        terms = loss_terms(state.policy, batch, settings(), NOW)
        heads = list(state.policy.critics.parameters())
        gradients.append(torch.autograd.grad(sum(terms.values), heads))  # type: ignore[arg-type]
    for plain, *others in zip(*gradients, strict=True):
        for other in others:
            assert torch.equal(plain, other)


def test_a_cycle_moves_target_scale_and_multiplier() -> None:
    state = risky()
    risk = RiskConfig(alpha=0.2, limit=5.0, dual=DualConfig(hold=0.0))
    before = TrainState(
        risk=RiskState(active=True, search=SearchState(target=-1.0, low=-3.0, high=1.0), scale=2.0)
    )
    optimizer = torch.optim.Adam(state.policy.parameters())
    chosen = settings(tail_risk=risk, chunk_length=8, targets=TARGETS)
    now: Coefficients = replace(NOW, progress=0.1)
    result, after = update(
        state.policy, optimizer, state.rollouts[1], chosen, now, before, state.generator
    )
    info = result.risk
    assert info is not None
    assert after.risk.dual.multiplier > 0
    assert len(after.risk.search.means) == risk.search.grid
    assert state.policy.budget is not None
    assert float(state.policy.budget.target) == after.risk.search.target
    assert float(state.policy.budget.scale) == after.risk.scale
    assert info.violation is not None
    assert info.cvar is not None
    assert info.violation == pytest.approx(5.0 - info.cvar)
    assert info.weight == risk.search.sharpness  # the multiplier was 0 when the cycle began


def test_the_curve_is_what_the_critics_say_at_each_target() -> None:
    state = risky(core=NoCoreConfig(), length=1, twin="off")
    rollout, policy = state.rollouts[1], state.policy
    few = rollout.episode_starts.clone()
    few[3:] = False
    rollout = replace(rollout, episode_starts=few)
    assert policy.budget is not None
    grid = np.array([-2.0, 0.5])
    found = target_curve(policy, rollout, grid, state.generator)
    assert found is not None
    rows = rollout.observations[rollout.episode_starts]  # type: ignore[index]
    assert 0 < len(rows) <= 32
    for k, target in enumerate(grid):
        seen = policy.budget(torch.full((len(rows),), target))
        starts = torch.ones(len(rows), dtype=torch.bool)
        law = policy.step(rows, policy.initial_state(len(rows)), starts, None, seen).values[0]
        atoms, weights = law.atoms()
        pooled = np.sort(np.repeat(atoms.detach().numpy().ravel(), 1))
        assert found.means[k] == pytest.approx(float(law.mean().mean().detach()), abs=1e-5)
        assert bool((weights == weights[0]).all())
        short = np.maximum(target - pooled, 0.0).mean()
        assert found.shortfalls[k] == pytest.approx(short, abs=1e-4)


def test_the_predicted_tail_is_what_the_critics_said_when_episodes_started() -> None:
    """Whatever they have learned since: an episode judges those that had not seen it."""
    state = risky(core=NoCoreConfig(), length=1, twin="off")
    rollout = state.rollouts[1]
    assert rollout.budget is not None
    found = start_tail(rollout, DRAW.target, 0.25, "off", state.generator)
    chosen = rollout.episode_starts & (rollout.budget.budgets == DRAW.target)
    atoms, weights = rollout.values[0].rows(chosen).atoms()
    assert 0 < len(atoms) <= 32
    assert bool((weights == weights[0]).all())
    pooled = np.sort(atoms.numpy().ravel())
    assert found is not None
    assert found.cvar == pytest.approx(pooled[: len(pooled) // 4].mean(), abs=1e-4)
    assert pooled[len(pooled) // 4 - 1] <= found.quantile + 1e-6
    assert found.quantile <= pooled[len(pooled) // 4] + 1e-6
    assert start_tail(rollout, 77.0, 0.25, "off", state.generator) is None


def test_starts_are_read_from_all_environments() -> None:
    """Sixteen environments in step, eight episodes each: equal steps would meet four of them."""
    starts = torch.zeros(64, 16, dtype=torch.bool)
    starts[::8] = True
    times, envs = _some(starts)
    assert len(times) == 32
    assert bool(starts[times, envs].all())
    assert len(envs.unique()) == 16
    assert len(times.unique()) == 8


def test_settings_that_do_not_go_together_are_refused() -> None:
    falling = Schedules(cvar_weight=StepLinear(start=1.0, end=0.0, end_step=10))
    for risk in (None, RiskConfig(limit=-1.0)):
        with pytest.raises(ConfigError, match=r"schedules\.cvar_weight has no effect without"):
            settings(schedules=falling, tail_risk=risk)
    settings(schedules=falling, tail_risk=RiskConfig(weight=1.0))
    scalar = replace(TARGETS, critic_target="scalar")
    with pytest.raises(ConfigError, match="critic_target 'scalar' teaches them one that is too"):
        settings(tail_risk=RiskConfig(weight=1.0), targets=scalar)
    with pytest.raises(ConfigError, match="demonstrations come without the budget"):
        settings(tail_risk=RiskConfig(weight=1.0), imitation=Cloning(coefficient=1.0))


def test_a_scheduled_weight_takes_the_place_of_the_fixed_one() -> None:
    risk, active = RiskConfig(weight=1.0), RiskState(active=True)
    for scheduled, weight in ((None, 1.0), (0.25, 0.25)):
        found = tail_objective(risk, active, replace(NOW, cvar_weight=scheduled))
        assert found is not None
        assert found.weight == weight
    assert tail_objective(risk, active, replace(NOW, cvar_weight=0.0)) is None
    assert tail_objective(risk, RiskState(), replace(NOW, cvar_weight=0.25)) is None
    assert tail_objective(None, active, NOW) is None


def test_a_bad_reward_leaves_its_return_out_and_the_budget_finite() -> None:
    carry = start_budgets(2, replace(DRAW, share=0.0))
    clean, measured = torch.tensor([0.0, 1.0]), torch.tensor([torch.nan, 1.0])
    after = after_step(carry, clean, GAMMA, measured)
    assert bool(torch.isfinite(after.budget).all())
    assert torch.isfinite(after.returns).tolist() == [False, True]
