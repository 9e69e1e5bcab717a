"""A short training on a problem with a known answer, and what came of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from quantail.evaluation.agent_policy import AgentPolicy
from quantail.evaluation.bootstrap import BootstrapConfig
from quantail.evaluation.evaluate_problem import compare_runs, optimum_fraction
from quantail.evaluation.policies import RuleOfProblem
from quantail.evaluation.problem_run import ProblemTask, run_problem
from quantail.evaluation.record import Comparison, OptimumFraction
from quantail.experiment.agent import build_agent
from quantail.experiment.config import USUAL_COST_RAMP, AgentConfig
from quantail.flow import Rollout
from quantail.sb3.agent import DistributionalPPO
from quantail.sb3.hooks import train
from quantail.sb3.problem_vec_env import ProblemVecEnv
from quantail.sim.problems import ProblemConfig
from quantail.sim.problems.trading import TradingProblem


@dataclass(frozen=True, slots=True)
class Practice:
    """What to train, on what, for how long."""

    problem: ProblemConfig
    agent: AgentConfig
    n_envs: int
    steps: int
    test_envs: int = 200
    test_steps: int = 400
    """Steps, or episodes for a problem that ends."""


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """A trained agent and how it did on random numbers of its own."""

    agent: DistributionalPPO
    optimum: OptimumFraction | None
    """None where the optimum is no better than the trivial policy."""
    against_base: Comparison
    last_rollout: Rollout


class _Hooks:
    """Ramps costs up over the first half and keeps the latest rollout."""

    def __init__(
        self, steps: int, set_cost_scale: Callable[[float], None], on_step: Callable[[float], None]
    ) -> None:
        self._steps, self._set_cost_scale, self._on_step = steps, set_cost_scale, on_step
        self.rollout: Rollout | None = None

    def before_rollout(self, step: int) -> None:
        self._set_cost_scale(min(1.0, step / self._steps / USUAL_COST_RAMP))

    def should_stop(self) -> bool:
        return False

    def after_rollout(self, step: int, rollout: Rollout) -> None:
        self.rollout = rollout
        self._on_step(min(1.0, step / self._steps))

    def on_metrics(self, step: int, row: Mapping[str, float]) -> None:
        pass


def practise(
    practice: Practice, seed: int = 0, on_step: Callable[[float], None] = lambda _share: None
) -> Outcome:
    """Train from scratch, then judge on random numbers that training has not seen.

    Args:
        practice: What to do.
        seed: Of training; the test uses the next one.
        on_step: Told the share that is done.
    """
    torch.manual_seed(seed)
    problem = practice.problem.build(practice.n_envs, seed)
    env = ProblemVecEnv(problem)
    trades = isinstance(problem, TradingProblem)
    scale = problem.set_cost_scale if isinstance(problem, TradingProblem) else lambda _scale: None
    hooks = _Hooks(practice.steps, scale, on_step)
    agent = build_agent(practice.agent, env, seed)
    train(agent, env, practice.steps, hooks)
    assert hooks.rollout is not None
    solution, rules = practice.problem.solve(), practice.problem.policies()
    burn_in = 100 if trades else 0
    task = ProblemTask(
        practice.problem, practice.test_envs, practice.test_steps, seed + 1, burn_in=burn_in
    )
    runs = {
        "agent": run_problem(task, AgentPolicy(agent, budget_steps=task.budget_steps)),
        solution.base: run_problem(task, RuleOfProblem(rules[solution.base])),
        "optimal": run_problem(task, RuleOfProblem(rules["optimal"])),
    }
    settings = BootstrapConfig()
    exact = solution.values["optimal"]
    return Outcome(
        agent=agent,
        optimum=optimum_fraction(task, runs, solution.base, exact, settings),
        against_base=compare_runs(runs["agent"], runs[solution.base], solution.base, settings),
        last_rollout=hooks.rollout,
    )
