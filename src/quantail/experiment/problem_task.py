"""A problem with a known answer as the task of a run."""

from dataclasses import dataclass
from typing import Literal

from quantail.evaluation.agent_policy import AgentPolicy
from quantail.evaluation.constant import constant_position, size_of
from quantail.evaluation.evaluate_problem import judge_problem
from quantail.evaluation.policies import RuleOfProblem
from quantail.evaluation.problem_run import ProblemTask, run_problem
from quantail.experiment.config import ProblemEnvironment, RunConfig
from quantail.experiment.provenance import role_seed
from quantail.experiment.tasks import Judgment, TrainingEnvironment, Tried, Validation
from quantail.sb3.agent import DistributionalPPO
from quantail.sb3.problem_vec_env import ProblemVecEnv
from quantail.sim.problems.trading import TradingProblem


@dataclass(frozen=True, slots=True)
class KnownProblem:
    """The embedded problem of a run."""

    environment: ProblemEnvironment
    seed: int
    base_value: float
    """Mean reward of the best trivial policy on the validation's random numbers."""
    optimal_value: float
    largest_position: float
    """That the optimal policy takes in validation; NaN where it takes none, or only ever one."""

    @staticmethod
    def of(config: RunConfig, environment: ProblemEnvironment) -> "KnownProblem":
        """Return the task; the known policies are run once on the validation's random numbers."""
        problem = environment.problem
        policies, base = problem.policies(), problem.solve().base
        task = _instances(environment, config.seed, "validation")
        trivial, optimal = (
            run_problem(task, RuleOfProblem(policies[name])) for name in (base, "optimal")
        )
        return KnownProblem(
            environment,
            config.seed,
            base_value=float(trivial.rewards.mean()),
            optimal_value=float(optimal.rewards.mean()),
            largest_position=size_of(optimal.position),
        )

    @property
    def name(self) -> str:
        """The kind of the problem."""
        return self.environment.problem.kind

    def training_environment(self, n_envs: int) -> TrainingEnvironment:
        """Return N instances."""
        problem = self.environment.problem.build(n_envs, role_seed(self.seed, "train"))
        env = ProblemVecEnv(problem)
        if isinstance(problem, TradingProblem):
            return TrainingEnvironment(env, problem.set_cost_scale)
        return TrainingEnvironment(env, _no_costs)

    def validate(self, agent: DistributionalPPO) -> Validation:
        """Return the mean reward, and its place between trivial and optimal."""
        task = _instances(self.environment, self.seed, "validation")
        run = run_problem(task, AgentPolicy(agent, budget_steps=task.budget_steps))
        value = float(run.rewards.mean())
        room = self.optimal_value - self.base_value
        fraction = (value - self.base_value) / room if room > 0.0 else None
        constant = constant_position(run.position, self.largest_position)
        return Validation(value, fraction, constant=constant)

    def evaluate(
        self, agent: DistributionalPPO, role: Literal["validation", "test"], tried: Tried
    ) -> Judgment:
        """Judge an agent against the known policies, on random numbers of the role's own."""
        evaluation, constant = judge_problem(
            _instances(self.environment, self.seed, role),
            agent,
            role=role,
            seeds=(self.seed,),
            n_trials=tried.count,
            settings=self.environment.evaluation,
        )
        return Judgment(evaluation, constant)


def _no_costs(scale: float) -> None:
    """There is nothing to scale."""


def _instances(
    environment: ProblemEnvironment, seed: int, role: Literal["validation", "test"]
) -> ProblemTask:
    is_test = role == "test"
    return ProblemTask(
        problem=environment.problem,
        n_envs=environment.test_envs if is_test else environment.validation_envs,
        n_steps=environment.test_steps if is_test else environment.validation_steps,
        seed=role_seed(seed, role),
    )
