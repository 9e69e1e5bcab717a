"""Tail-risk problems with exact answers: one agent, one problem, one seed, its mean and CVaR.

``python -m tests.learning.risk NAME SEED`` runs one of them and prints what came of it.
"""

import sys
import time
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from quantail import DistributionalPPO
from quantail.nets.critics import CategoricalCritic
from quantail.optim.schedules import Schedules, StepLinear
from quantail.risk.config import DualConfig, RiskConfig, TargetSearch
from quantail.sb3.evaluate import evaluate_episodes
from quantail.sb3.problem_vec_env import ProblemVecEnv
from quantail.sim.problems import BettingGame, GambleChain, GaussianWeight, peso_game
from quantail.sim.problems.laws import sample_cvar
from quantail.sim.problems.lottery import total_scale
from quantail.types import FloatArray


@dataclass(frozen=True)
class Case:
    """What to train on and how."""

    problem: Any
    n_steps: int
    """Of an episode, and of a rollout."""
    updates: int
    risk: RiskConfig | None
    n_envs: int = 512
    entropy: float = 0.01
    """Coefficient of the bonus at first."""
    falls: tuple[float, float] = (0.6, 0.9)
    """Between which shares of training it falls to 0. Early steps are bold only if later ones are
    good, so a policy that stops trying before those are stays too safe."""
    rate: float = 1.5e-3
    """Of the actor, falls to a twentieth; of the critics, twice as much, constant."""
    agent: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """A trained agent and its fresh episodes."""

    model: DistributionalPPO
    returns: FloatArray
    mean: float
    cvar: float


BLIND = GambleChain(observe_total=False)
"""Only the budget tells how much was won so far."""
SMALL = {"n_epochs": 6, "gae_lambda": 0.95, "policy_kwargs": {"net_arch": [32, 32]}}
BETS = {"n_epochs": 2, "gae_lambda": 0.95, "batch_size": 2560, "critic_learning_rate": 4e-3}
"""Early bets differ by hundredths of a return of spread 5: fresh episodes tell them apart, further
passes over old ones do not."""


SHARP = TargetSearch(sharpness=0.5, settle=0.6, episode_rate=0.04)
"""For policies of twenty bets, which must answer to their targets when one is chosen."""
FOCUSED = replace(SHARP, focus=1.0, episode_rate=0.03)


def chain(problem: GambleChain = BLIND, updates: int = 300, **risk: Any) -> Case:
    settings = RiskConfig(alpha=0.1, **risk) if risk else None
    return Case(problem, 5, updates, settings, n_envs=1024, entropy=0.03, agent=SMALL)


def bets(rate: float = 4e-3, search: TargetSearch = FOCUSED, **risk: Any) -> Case:
    settings = RiskConfig(alpha=0.1, search=search, **risk)
    game = BettingGame()
    return Case(
        game, 20, 600, settings, n_envs=1024, entropy=0.02, falls=(0.2, 0.9), rate=rate, agent=BETS
    )


CASES = {
    "chain": chain(limit=-1.4),
    "chain_blind": chain(limit=-1.4, observe_budget=False),
    "chain_neutral": chain(updates=80),
    "chain_safe": chain(limit=0.9),
    "chain_infeasible": chain(
        updates=120, limit=1.5, dual=DualConfig(hold=0.0, proportional=0.1, integral=0.2, cap=2.0)
    ),
    "bets_03": bets(weight=0.3),
    "bets_05": bets(rate=2e-3, search=replace(FOCUSED, final="quantile"), weight=0.5),
    "bets_limit": bets(limit=-5.3, dual=DualConfig(start=0.4, hold=0.6)),
    "peso": Case(
        peso_game(),
        12,
        200,
        RiskConfig(limit=-0.01, dual=DualConfig(start=0.5, hold=0.6), search=SHARP),
        entropy=0.03,
        agent=SMALL,
    ),
    "peso_neutral": Case(
        peso_game(),
        12,
        120,
        None,
        rate=3e-3,
        agent={
            **SMALL,
            "critic": CategoricalCritic(n_atoms=101),
            "critic_learning_rate": None,
            "policy_kwargs": {"net_arch": [64, 64]},
        },
    ),
    "gaussian": Case(
        GaussianWeight(mean=0.1, sd=0.2, n_steps=1, loss_limit=0.15, max_weight=1.0),
        1,
        300,
        # A policy that changes smoothly shows at once that it has become bolder.
        RiskConfig(limit=-0.15, dual=DualConfig(relief=1.0, slack=0.0)),
        n_envs=20_000,  # the weight follows a CVaR measured over this many episodes
        entropy=0.0,
        rate=1e-3,
        agent={
            "n_epochs": 4,
            "policy_kwargs": {"net_arch": [32], "log_std_init": -2.5},
        },
    ),
}


def train(name: str, seed: int, updates: int | None = None) -> DistributionalPPO:
    """Train an agent on a case; ``updates`` shortens it."""
    case = CASES[name]
    rows, updates = case.n_envs * case.n_steps, updates or case.updates
    falls = [int(share * updates * rows) for share in case.falls]
    entropy: StepLinear | None = None
    if case.entropy:
        entropy = StepLinear(start=case.entropy, end=0.0, start_step=falls[0], end_step=falls[1])
    settings: dict[str, Any] = {
        "n_steps": case.n_steps,
        "batch_size": rows // 2,
        "gamma": 1.0,
        "twin": "off",
        "critic_learning_rate": 2 * case.rate,
        "learning_rate": lambda left: case.rate * max(left, 0.05),
        "schedules": Schedules(entropy=entropy),
        "risk": case.risk,
        **case.agent,
    }
    env = ProblemVecEnv(case.problem.build(case.n_envs, seed))
    model = DistributionalPPO("MlpPolicy", env, seed=seed, device="cpu", **settings)
    return model.learn(updates * rows)


def outcome(name: str, seed: int, updates: int | None = None, episodes: int = 400_000) -> Outcome:
    """Train an agent, play fresh episodes with its most likely actions, and say what came of it."""
    torch.set_num_threads(1)
    clock = time.process_time()
    model, problem = train(name, seed, updates), CASES[name].problem
    fresh = ProblemVecEnv(problem.build(5000, 10_000 + seed))
    returns = evaluate_episodes(model, fresh, episodes).returns
    mean, cvar = float(returns.mean()), sample_cvar(returns, float(problem.alpha))
    state = model.train_state.risk
    print(  # noqa: T201
        f"{name} {seed}: mean {mean:.4f} cvar {cvar:.4f} target {state.search.target:.3f}",
        f"multiplier {state.dual.multiplier:.3f} cpu {time.process_time() - clock:.0f} s",
    )
    return Outcome(model, returns, mean, cvar)


def signature(model: DistributionalPPO, totals: FloatArray, time: int) -> NDArray[np.int64]:
    """Return the bet that an agent of the betting game makes at each total so far, [W]."""
    budget = model.policy.net.budget
    assert budget is not None
    lotteries = BettingGame().lotteries
    seen = np.stack([np.full(len(totals), time / 20), totals / total_scale(lotteries)], axis=1)
    left = float(budget.target) - totals
    starts = np.zeros(len(totals), np.bool_)
    actions, _ = model.predict(seen.astype(np.float32), (left,), starts, deterministic=True)
    return actions


if __name__ == "__main__":
    found = outcome(sys.argv[1], int(sys.argv[2]))
    if sys.argv[1].startswith("bets"):
        ladder = np.arange(-12.0, 13.0)
        for step in (5, 10, 15, 18, 19):
            print(f"t {step:2d}", *signature(found.model, ladder, step))  # noqa: T201
