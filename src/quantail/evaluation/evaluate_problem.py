"""An agent on a problem with a known answer: the fraction of the optimum, with its interval."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final, Literal

import numpy as np
from annotated_types import Ge

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem
from quantail.evaluation import measures as m
from quantail.evaluation.agent_policy import AgentPolicy
from quantail.evaluation.bootstrap import BootstrapConfig, intervals, mean_test
from quantail.evaluation.calibration import UNJUDGED_CRITIC, calibrate, horizon
from quantail.evaluation.constant import ConstantPosition, constant_position, size_of
from quantail.evaluation.policies import ActingPolicy, RuleOfProblem
from quantail.evaluation.problem_run import (
    ProblemRun,
    ProblemTask,
    is_traded,
    make_problem_track,
    run_problem,
)
from quantail.evaluation.record import (
    Calibration,
    Comparison,
    CostCurve,
    DelayCurve,
    Estimate,
    Evaluation,
    Measures,
    OptimumFraction,
    SensitivityPoint,
)
from quantail.evaluation.tables import break_even, scaled
from quantail.evaluation.verdict import problem_verdict
from quantail.sb3.agent import DistributionalPPO
from quantail.types import FloatArray

_LABELS: Final = {
    "optimal": "Known optimum",
    "memoryless": "Memoryless rule (the best that sees the latest observation alone)",
    "average": "Moving average rule (the best on an exponential average of returns)",
    "flat": "No position",
}
_CURVE_ENVS: Final = 300
_CURVE_STEPS: Final = 200
_CURVE_BURN_IN: Final = 50
"""Size of a point of a curve, which needs less precision than F."""
_GROUPS: Final = 20
"""Groups of instances whose spread gives the interval of a pooled measure."""


@config
class ProblemEvaluation:
    """How an agent is judged on a problem."""

    bootstrap: BootstrapConfig = BootstrapConfig()
    """How intervals are computed."""
    cost_factors: tuple[Annotated[float, Ge(0)], ...] = (0.0, 0.5, 1.0, 2.0, 4.0)
    """Multiples of the trading costs, in rising order; not used in a problem without trading."""
    delays: tuple[Annotated[int, Ge(0)], ...] = (0, 1, 2)
    """Steps by which actions come late, in rising order; not used in a problem without trading."""
    sampled: bool = True
    """Also run the agent with drawn actions, as it acted in training."""

    def check(self) -> None:
        """Refuse curves out of order."""
        for name, values in (("cost_factors", self.cost_factors), ("delays", self.delays)):
            if list(values) != sorted(set(values)):
                raise ConfigError([ConfigProblem(name, f"must rise; was {values!r}")])


def judge_problem(
    task: ProblemTask,
    agent: DistributionalPPO,
    *,
    role: Literal["validation", "test"] = "test",
    seeds: tuple[int, ...] = (),
    n_trials: int = 1,
    settings: ProblemEvaluation = ProblemEvaluation(),  # noqa: B008 - frozen
) -> tuple[Evaluation, ConstantPosition | None]:
    """Judge an agent against the policies that a problem knows, on common random numbers.

    Returned beside the evaluation is the position that the agent holds nearly always, if it does.

    Args:
        task: The problem and its instances; take a seed that training has not used.
        agent: The agent.
        role: What the instances are for.
        seeds: Seeds of the agent's training, for the record.
        n_trials: Agents tried before this one was chosen, itself included.
        settings: Curves and intervals.

    Raises:
        ConfigError: When the problem trades mean for less risk, so that its mean is no score.
    """
    if not task.problem.maximizes_mean:
        raise ConfigError(
            f"problem {task.problem.kind!r} trades mean for less risk, so its mean is no score; "
            "use quantail.sim.problems.risk_score on the returns instead."
        )
    every = horizon(agent.gamma) if task.problem.continuing else None
    bootstrap, solution = settings.bootstrap, task.problem.solve()
    policies = known_policies(task, agent, settings)
    runs = {
        name: run_problem(task, policy, forecast_every=every)
        for name, (_, policy) in policies.items()
    }
    comparisons = {
        name: compare_runs(runs["agent"], run, name, bootstrap)
        for name, run in runs.items()
        if name != "agent"
    }
    optimum = optimum_fraction(task, runs, solution.base, solution.values["optimal"], bootstrap)
    costs, delays = problem_curves(task, agent, settings)
    calibration = _calibration(runs["agent_sampled" if settings.sampled else "agent"], agent.gamma)
    constant = constant_position(runs["agent"].position, size_of(runs["optimal"].position))
    evaluation = Evaluation(
        role=role,
        split=task.problem.kind,
        unit="reward",
        symbols=(),
        seeds=seeds,
        n_trials=n_trials,
        confidence=bootstrap.confidence,
        periods_per_year=1.0,
        main_baseline=solution.base,
        tracks=tuple(
            make_problem_track(task, runs[name], name, label, hindsight=False)
            for name, (label, _) in policies.items()
        ),
        measures={name: problem_measures(run, bootstrap) for name, run in runs.items()},
        comparisons=tuple(comparisons.values()),
        verdict=problem_verdict(comparisons[solution.base], optimum),
        cost_curve=costs,
        delay_curve=delays,
        calibration=calibration,
        optimum=optimum,
        notes=_notes(task, role, constant, calibration),
    )
    return evaluation, constant


def known_policies(
    task: ProblemTask, agent: DistributionalPPO, settings: ProblemEvaluation
) -> dict[str, tuple[str, ActingPolicy[Any]]]:
    """Return labels and policies by name: the agent's, then those of the problem."""
    steps = task.budget_steps
    policies: dict[str, tuple[str, ActingPolicy[Any]]] = {
        "agent": ("Agent", AgentPolicy(agent, budget_steps=steps))
    }
    if settings.sampled:
        seed = settings.bootstrap.seed
        drawn = AgentPolicy(agent, deterministic=False, seed=seed, budget_steps=steps)
        policies["agent_sampled"] = ("Agent, drawn actions", drawn)
    for name, rule in task.problem.policies().items():
        label = _LABELS.get(name, name.replace("_", " ").capitalize())
        policies[name] = (label, RuleOfProblem(rule))
    return policies


def compare_runs(
    agent: ProblemRun, other: ProblemRun, name: str, settings: BootstrapConfig
) -> Comparison:
    """Return agent minus another policy; the instances are independent pairs."""
    test = mean_test((agent.rewards - other.rewards).mean(axis=0), settings, block=1.0)
    # A policy that never trades has no risk and no reward; its ratio is taken as 0.
    ours, theirs = (np.nan_to_num(m.sharpe(run.rewards.ravel(), 1.0)) for run in (agent, other))
    return Comparison(
        baseline=name,
        mean_difference=test.mean,
        annual_difference=test.mean,
        sharpe_difference=Estimate(float(ours - theirs)),
        p_value=test.p_value,
        block_length=test.block_length,
        confidence=settings.confidence,
    )


def optimum_fraction(
    task: ProblemTask,
    runs: dict[str, ProblemRun],
    base: str,
    exact: float,
    settings: BootstrapConfig,
) -> OptimumFraction | None:
    """Return F = (V_agent − V_base)/(V* − V_base), resampling the instances of all three together.

    None where the optimum does not beat the base policy, so that there is nothing to reach.
    """
    means = np.stack([runs[name].rewards.mean(axis=0) for name in ("agent", base, "optimal")])
    if means[2].mean() <= means[1].mean():
        return None

    def fraction(columns: FloatArray) -> FloatArray:
        agent, low, high = np.moveaxis(columns.mean(axis=-1), -1, 0)
        return np.asarray((agent - low) / (high - low))

    estimate = intervals(means, {"fraction": fraction}, 1.0, settings)["fraction"]
    return OptimumFraction(
        fraction=estimate,
        agent_value=float(means[0].mean()),
        base=base,
        base_value=float(means[1].mean()),
        optimal_value=float(means[2].mean()),
        exact_optimum=exact,
        n_envs=task.n_envs,
        n_steps=task.n_steps,
    )


def problem_measures(run: ProblemRun, settings: BootstrapConfig) -> Measures:
    """Return measures per step: of all instances' steps pooled, means over instances otherwise.

    Rewards add up. Total and drawdown are means over instances; ratios, quantiles and rates pool
    the steps of all; the Calmar ratio, a yearly figure, is not defined.
    """
    by_instance = np.ascontiguousarray(run.rewards.T)
    mean = mean_test(run.rewards.mean(axis=0), settings, block=1.0).mean
    pooled: dict[str, Callable[[FloatArray], FloatArray]] = {
        "volatility": partial(m.volatility, periods_per_year=1.0),
        "sharpe": partial(m.sharpe, periods_per_year=1.0),
        "sortino": partial(m.sortino, periods_per_year=1.0),
        "var_95": partial(m.value_at_risk, alpha=0.05),
        "cvar_95": partial(m.cvar, alpha=0.05),
        "var_99": partial(m.value_at_risk, alpha=0.01),
        "cvar_99": partial(m.cvar, alpha=0.01),
        "hit_rate": m.hit_rate,
        "profit_factor": m.profit_factor,
    }
    facts = {
        "calmar": math.nan,
        "max_drawdown": m.max_drawdown(by_instance, additive=True).mean(),
        "max_drawdown_bars": m.max_drawdown_bars(by_instance, additive=True).mean(),
        "turnover": run.turnover.mean(),
        "exposure": np.abs(run.position).mean(),
        "costs_paid": run.fee.sum(axis=0).mean(),
        "time_in_market": np.where(np.isnan(run.position), np.nan, run.position != 0.0).mean(),
    }
    return Measures(
        total_return=scaled(mean, len(run.rewards)),
        annual_return=mean,
        **{name: _grouped(by_instance, measure, settings) for name, measure in pooled.items()},
        **{name: Estimate(float(value)) for name, value in facts.items()},
        n_bars=len(run.rewards),
        periods_per_year=1.0,
    )


def _grouped(
    rows: FloatArray, measure: Callable[[FloatArray], FloatArray], settings: BootstrapConfig
) -> Estimate:
    """Measure the steps of all instances [N, T] together; groups of instances give the interval.

    Resampling a million steps a thousand times would take minutes; the spread between independent
    groups says the same.
    """
    value = float(measure(rows.ravel()))
    size = len(rows) // _GROUPS
    if size < 2:
        return Estimate(value)
    groups = measure(rows[: size * _GROUPS].reshape(_GROUPS, -1))
    if not np.isfinite(groups).all():
        return Estimate(value)
    spread = mean_test(groups, settings, block=1.0).mean
    if spread.low is None or spread.high is None:
        return Estimate(value)
    return Estimate(value, value + spread.low - spread.value, value + spread.high - spread.value)


def problem_curves(
    task: ProblemTask, agent: DistributionalPPO, settings: ProblemEvaluation
) -> tuple[CostCurve | None, DelayCurve | None]:
    """Run the agent at other multiples of the costs and with late actions; None without trading."""
    if not is_traded(task.problem):
        return None, None
    few = replace(
        task,
        n_envs=min(task.n_envs, _CURVE_ENVS),
        n_steps=min(task.n_steps, _CURVE_STEPS),
        burn_in=min(task.burn_in, _CURVE_BURN_IN),
    )
    policy = AgentPolicy(agent, budget_steps=task.budget_steps)
    on_costs = [(factor, 0) for factor in settings.cost_factors]
    on_delays = [(1.0, delay) for delay in settings.delays]
    found = {
        (factor, delay): problem_measures(
            run_problem(few, policy, cost_scale=factor, delay=delay), settings.bootstrap
        )
        for factor, delay in dict.fromkeys([*on_costs, *on_delays])
    }

    def point(value: float, measures: Measures) -> SensitivityPoint:
        total = measures.total_return.value
        return SensitivityPoint(value, total, measures.annual_return, measures.sharpe)

    costs = tuple(point(factor, found[factor, delay]) for factor, delay in on_costs)
    delays = tuple(point(delay, found[factor, delay]) for factor, delay in on_delays)
    return (
        CostCurve(costs, break_even(costs)) if costs else None,
        DelayCurve(delays) if delays else None,
    )


def _calibration(run: ProblemRun, gamma: float) -> Calibration | None:
    alive = np.ones(run.rewards.shape, np.bool_)
    ruined = np.zeros(run.rewards.shape[1], np.bool_)
    return calibrate(run.forecasts, run.rewards, alive, ruined, gamma)


def _notes(
    task: ProblemTask,
    role: str,
    constant: ConstantPosition | None,
    calibration: Calibration | None,
) -> tuple[str, ...]:
    count = "steps" if task.problem.continuing else "episodes"
    notes = [
        f"{task.n_envs} independent instances, {task.n_steps} {count} each; every policy met the "
        "same random numbers."
    ]
    if constant is not None:
        notes.insert(0, constant.sentence(f"the {role}"))
    if calibration is None:
        notes.append(UNJUDGED_CRITIC)
    return tuple(notes)
