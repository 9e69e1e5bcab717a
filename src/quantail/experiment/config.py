"""What a run is: environment, agent, budget, selection."""

from typing import Annotated, Final, Literal, TypeAlias, get_args

from annotated_types import Ge, Gt, Le, Lt

from quantail.config_class import BY_KIND, config
from quantail.errors import ConfigError, ConfigProblem
from quantail.evaluation.curves import MarketEvaluation
from quantail.evaluation.evaluate_problem import ProblemEvaluation
from quantail.losses.value_clip import NoClip, ValueClipConfig, check_value_clip
from quantail.market.dataset import DataConfig
from quantail.nets.cores import CoreConfig, LstmConfig, NoCoreConfig
from quantail.nets.critics import CriticConfig, QuantileCritic, ScalarCritic
from quantail.optim.entropy_control import EntropyControl
from quantail.optim.kl_control import KlControl
from quantail.optim.schedules import LinearSchedule, ScheduleConfig
from quantail.risk.config import RiskConfig
from quantail.risk.cost import CostLimit
from quantail.rollout.sequences import chunk_length
from quantail.sim.config import SimConfig
from quantail.sim.problems import HiddenRegime, ProblemConfig
from quantail.sim.problems.trading import TradingProblem
from quantail.sim.rewards import check_gamma
from quantail.sim.step_cost import StepCost
from quantail.targets.twin import Twin

USUAL_COST_RAMP: Final = 0.5
"""Share of training over which costs rise, where there are costs and nothing else is said."""

MarketMetric: TypeAlias = Literal[
    "total_return", "annual_return", "volatility", "sharpe", "sortino", "calmar", "max_drawdown",
    "max_drawdown_bars", "var_95", "cvar_95", "var_99", "cvar_99", "hit_rate", "profit_factor",
    "turnover", "costs_paid",
]  # fmt: skip
Metric: TypeAlias = Literal["mean_reward", MarketMetric]


@config
class ProblemEnvironment:
    """An embedded problem whose best answer is known exactly."""

    kind: Literal["problem"] = "problem"
    problem: ProblemConfig = HiddenRegime()
    """Which problem."""
    validation_envs: Annotated[int, Ge(2)] = 256
    """Instances in which an agent is tried during training."""
    validation_steps: Annotated[int, Ge(1)] = 400
    """Steps of each that count; for problems that end, episodes."""
    test_envs: Annotated[int, Ge(2)] = 1000
    """Instances in which the chosen agent is judged, once."""
    test_steps: Annotated[int, Ge(1)] = 1000
    """Steps of each that count; for problems that end, episodes."""
    evaluation: ProblemEvaluation = ProblemEvaluation()
    """Intervals and curves of the judgment."""

    def check(self) -> None:
        """Refuse problems whose best policy is not the one with the highest mean."""
        if not self.problem.maximizes_mean:
            problem = (
                f"must be a problem that asks for the highest mean reward; {self.problem.kind!r} "
                "trades mean for less risk, so a run could not say how good an agent is"
            )
            raise ConfigError([ConfigProblem("problem", problem)])

    @property
    def has_costs(self) -> bool:
        """Whether trading costs something that can be ramped."""
        return isinstance(self.problem.build(1, 0), TradingProblem)


@config
class MarketEnvironment:
    """Bars of a market, the user's own or those that come with the demos."""

    kind: Literal["market"] = "market"
    data: DataConfig
    """Bars, features, splits."""
    simulator: SimConfig = SimConfig()
    """Account, costs, reward and episodes of training; a test runs each window once, whole."""
    evaluation: MarketEvaluation = MarketEvaluation()
    """Intervals, baselines and curves of the judgment."""
    cost: StepCost | None = None
    """What agent.cost limits, summed over the steps of an episode: ``costs`` paid, or ``turnover``
    (notional traded), each over the equity before the step."""

    @property
    def has_costs(self) -> bool:
        """Whether trading costs something that can be ramped."""
        return True


EnvironmentConfig: TypeAlias = Annotated[ProblemEnvironment | MarketEnvironment, BY_KIND]


@config
class AgentConfig:
    """How the agent is built and learns; the names are those of ``DistributionalPPO``."""

    core: CoreConfig = LstmConfig()
    """Memory; ``kind: none`` for an agent without."""
    actor_layers: tuple[Annotated[int, Ge(1)], ...] = (64, 64)
    """Hidden layers of the policy, after the memory."""
    critic_layers: tuple[Annotated[int, Ge(1)], ...] = (64, 64)
    """Hidden layers of each critic."""
    shared_core: bool = False
    """The critics read the policy's memory, which then learns from the policy alone."""
    critic: CriticConfig | None = None
    """How the law of returns is predicted; null takes quantiles, dense in the tail with risk."""
    twin: Twin = "min"
    """How two critics are combined, or off for one."""
    normalize_observations: bool = True
    """Keep the scale of observations inside the policy."""
    learning_rate: ScheduleConfig = LinearSchedule(start=1e-3)
    """Step size over the course of training."""
    n_steps: Annotated[int, Ge(1)] = 128
    """Steps of each environment in a rollout."""
    batch_size: Annotated[int, Ge(2)] = 8192
    """Rows of a minibatch; divides budget.n_envs times n_steps."""
    n_epochs: Annotated[int, Ge(1)] = 2
    """Passes over a rollout."""
    gamma: Annotated[float, Gt(0), Le(1)] = 0.95
    """Discount per step."""
    gae_lambda: Annotated[float, Ge(0), Le(1)] = 0.9
    """1 trusts sampled rewards alone, 0 the critic alone."""
    clip_range: Annotated[float, Gt(0)] = 0.2
    """How far the probability of an action may move in one update."""
    ent_coef: Annotated[float, Ge(0)] = 0.005
    """Weight of the entropy bonus."""
    vf_coef: Annotated[float, Ge(0)] = 0.5
    """Weight of the critics' loss."""
    max_grad_norm: Annotated[float, Gt(0)] = 0.5
    """Largest norm of a gradient."""
    target_kl: Annotated[float, Gt(0)] | None = None
    """End the epochs when the policy has moved 1.5 times this far."""
    kl_control: KlControl | None = None
    """What happens when a cycle moves the policy too far; in place of target_kl."""
    entropy_control: EntropyControl | None = None
    """Decay, boost and floor of ent_coef."""
    risk: RiskConfig | None = None
    """Tail risk in the objective: a weight of CVaR beside the mean, or a least CVaR."""
    cost: CostLimit | None = None
    """A limit on the mean of an episode's discounted environment.cost."""
    value_clip: ValueClipConfig = NoClip()
    """How far the critics may move in one update."""
    critic_target: Literal["auto", "sr_lambda", "scalar"] = "auto"
    """What the critics learn toward."""
    chunk_length: Annotated[int, Ge(1)] | None = None
    """Rows through which memory is trained; null picks one that fits."""

    def check(self) -> None:
        """Refuse settings that contradict each other or have no effect."""
        check_value_clip(self.value_clip, (self.critic or QuantileCritic()).kind)
        if self.kl_control is not None and self.target_kl is not None:
            problem = "has no effect beside agent.kl_control, which has a target of its own"
            raise ConfigError([ConfigProblem("target_kl", problem)])
        if self.risk is not None and isinstance(self.critic, ScalarCritic):
            problem = "must predict a law of returns for agent.risk; was 'scalar'"
            raise ConfigError([ConfigProblem("critic.kind", problem)])
        has_memory = not isinstance(self.core, NoCoreConfig)
        chunk_length(self.n_steps, self.batch_size, self.chunk_length, has_memory)
        if self.shared_core and not has_memory:
            problem = "has no effect without a memory to share; leave it out, or choose a core"
            raise ConfigError([ConfigProblem("shared_core", problem)])


@config
class BudgetConfig:
    """How long to train, and what to keep."""

    steps: Annotated[int, Ge(1)] = 2_600_000
    """Steps of all environments together; with several splits, for each of them."""
    n_envs: Annotated[int, Ge(1)] = 256
    """Environments stepped together."""
    cost_ramp: Annotated[float, Ge(0), Lt(1)] | None = None
    """Share of training over which trading costs rise from nothing to full; 0 starts at full cost,
    where an agent often learns not to trade before it has found anything. Null takes 0.5 where
    trading costs something. Validation and test always pay the full cost."""
    threads: Annotated[int, Ge(1)] = 1
    """Threads of a network's arithmetic; more than one rarely helps small networks."""


@config
class SelectionConfig:
    """How the agent that is judged is chosen, on validation data alone."""

    metric: Metric | None = None
    """What agents are ranked by: a measure that has a better side, such as calmar or cvar_95 (the
    least volatility, drawdown, turnover or cost wins). Null takes sharpe on a market and
    mean_reward on a problem."""
    validations: Annotated[int, Ge(1)] = 6
    """How often during training the agent is tried, its end included."""
    keep: Annotated[int, Ge(1)] = 3
    """How many of the tried agents are kept on file, the best first."""

    def check(self) -> None:
        """Refuse to keep more agents than are tried."""
        if self.keep > self.validations:
            problem = (
                f"must be at most selection.validations ({self.validations}), the number of agents "
                f"that are tried; was {self.keep}"
            )
            raise ConfigError([ConfigProblem("keep", problem)])


@config
class RunConfig:
    """One run; the default trains on the embedded market with a hidden regime."""

    environment: EnvironmentConfig = ProblemEnvironment()
    agent: AgentConfig = AgentConfig()
    budget: BudgetConfig = BudgetConfig()
    selection: SelectionConfig = SelectionConfig()
    seed: Annotated[int, Ge(0), Lt(2**32)] = 0
    """Of everything that is drawn: weights, actions, episodes."""

    @property
    def metric(self) -> str:
        """What validation ranks agents by."""
        usual = "sharpe" if isinstance(self.environment, MarketEnvironment) else "mean_reward"
        return self.selection.metric or usual

    @property
    def cost_ramp(self) -> float:
        """Share of training over which costs rise."""
        if self.budget.cost_ramp is not None:
            return self.budget.cost_ramp
        return USUAL_COST_RAMP if self.environment.has_costs else 0.0

    def check(self) -> None:
        """Refuse what contradicts each other across the parts."""
        problems = [*self._size_problems(), *self._metric_problems()]
        if self.budget.cost_ramp and not self.environment.has_costs:
            problem = "has no effect in an environment without trading costs; leave it out"
            problems.append(ConfigProblem("budget.cost_ramp", problem))
        problems += self._cost_problems()
        if problems:
            raise ConfigError(problems)
        if isinstance(self.environment, MarketEnvironment):
            check_gamma(self.environment.simulator.reward, self.agent.gamma)

    def _size_problems(self) -> list[ConfigProblem]:
        rows = self.budget.n_envs * self.agent.n_steps
        found = []
        if rows % self.agent.batch_size:
            problem = (
                f"must divide budget.n_envs times agent.n_steps ({rows}), the rows of a rollout; "
                f"was {self.agent.batch_size}"
            )
            found.append(ConfigProblem("agent.batch_size", problem))
        least = rows * self.selection.validations
        if self.budget.steps < least:
            problem = (
                f"must be at least {least}, one rollout of budget.n_envs "
                f"times agent.n_steps for each of selection.validations; was {self.budget.steps}"
            )
            found.append(ConfigProblem("budget.steps", problem))
        return found

    def _cost_problems(self) -> list[ConfigProblem]:
        of_market = isinstance(self.environment, MarketEnvironment)
        chosen = self.environment.cost if isinstance(self.environment, MarketEnvironment) else None
        if self.agent.cost is None and chosen is not None:
            problem = f"has no effect without agent.cost, which limits it; was {chosen!r}"
            return [ConfigProblem("environment.cost", problem)]
        if self.agent.cost is None or chosen is not None:
            return []
        problem = (
            f"needs environment.cost, one of {', '.join(get_args(StepCost))}, to be limited"
            if of_market
            else "needs an environment of kind 'market'; a problem tells no costs"
        )
        return [ConfigProblem("agent.cost", problem)]

    def _metric_problems(self) -> list[ConfigProblem]:
        of_market = isinstance(self.environment, MarketEnvironment)
        allowed = get_args(MarketMetric) if of_market else ("mean_reward",)
        if self.selection.metric is None or self.selection.metric in allowed:
            return []
        problem = (
            f"must be one of {', '.join(allowed)} in an environment of kind "
            f"{self.environment.kind!r}; was {self.selection.metric!r}"
        )
        return [ConfigProblem("selection.metric", problem)]
