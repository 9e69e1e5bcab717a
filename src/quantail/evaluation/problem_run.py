"""A policy in many instances of a problem with a known answer, on common random numbers."""

import dataclasses
from collections import deque
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from quantail.errors import ConfigError
from quantail.evaluation.measures import equity_curve
from quantail.evaluation.policies import ActingPolicy, Forecast, Moment
from quantail.evaluation.record import SERIES_NUMBERS, Series, Track, Window
from quantail.sim.problems import (
    HiddenRegime,
    NegativeControl,
    NoTradeBand,
    PositiveControl,
    Problem,
    ProportionalCost,
    VectorProblem,
)
from quantail.sim.problems.trading import TradingProblem
from quantail.types import FloatArray

StateT = TypeVar("StateT")

SHOWN: Final = 6
"""Instances whose steps a track keeps."""
_PROPORTIONAL: Final = (
    HiddenRegime,
    NegativeControl,
    NoTradeBand,
    PositiveControl,
    ProportionalCost,
    VectorProblem,
)


@dataclass(frozen=True, slots=True)
class ProblemTask:
    """Which instances of a problem policies are judged in."""

    problem: Problem
    n_envs: int
    """Independent instances N."""
    n_steps: int
    """Steps that count in each instance; episodes for a problem that ends."""
    seed: int
    """The same seed gives every policy the same random numbers."""
    burn_in: int = 200
    """Steps before the count starts; none for a problem that ends."""

    @property
    def budget_steps(self) -> int | None:
        """Steps of an episode in training, after which an agent's budget starts anew.

        None for a problem that ends by itself.
        """
        return self.problem.build(1, self.seed).episode_length


@dataclass(frozen=True, slots=True, eq=False)
class ProblemRun:
    """What N instances gave."""

    rewards: FloatArray
    """[T, N] by step, or by episode for a problem that ends."""
    position: FloatArray
    """[T, N]; NaN where the problem knows no position."""
    turnover: FloatArray
    """[T, N] change of the position; NaN where there is none."""
    fee: FloatArray
    """[T, N] costs in proportion to the turnover; NaN where costs are of another kind."""
    returns: FloatArray
    """[T, N] what the price did; NaN where there is none."""
    forecasts: tuple[Forecast, ...]
    """At steps 0, h, 2h, ... of those that count."""


def is_traded(problem: Problem) -> bool:
    """Whether an action sets a position, and changing it costs something."""
    return problem.continuing and isinstance(problem.build(1, 0), TradingProblem)


def run_problem(
    task: ProblemTask,
    policy: ActingPolicy[StateT],
    *,
    cost_scale: float = 1.0,
    delay: int = 0,
    forecast_every: int | None = None,
) -> ProblemRun:
    """Run a policy; instance i meets the same random numbers whatever the policy does.

    Args:
        task: The problem and its instances.
        policy: Who acts.
        cost_scale: Factor on the trading costs.
        delay: Steps by which every action comes late; no position is held until the first comes.
        forecast_every: Steps between two forecasts that are kept; None keeps none.

    Raises:
        ConfigError: When costs are scaled or actions delayed in a problem without trading.
    """
    if (cost_scale != 1.0 or delay) and not is_traded(task.problem):
        raise ConfigError(
            f"problem {task.problem.kind!r} has no trading costs to scale and no orders to delay."
        )
    if not task.problem.continuing:
        return _run_episodes(task, policy)
    changes: dict[str, Any] = {"episode_length": task.burn_in + task.n_steps + 1}
    endless: Problem = dataclasses.replace(task.problem, **changes)  # type: ignore[type-var]
    env = endless.build(task.n_envs, task.seed)
    if isinstance(env, TradingProblem):
        env.set_cost_scale(cost_scale)
    run = _run_steps(task, env, policy, delay, forecast_every)
    rate = task.problem.cost if isinstance(task.problem, _PROPORTIONAL) else np.nan
    return dataclasses.replace(run, fee=cost_scale * rate * run.turnover)


def _run_steps(
    task: ProblemTask,
    env: VectorProblem,
    policy: ActingPolicy[StateT],
    delay: int,
    forecast_every: int | None,
) -> ProblemRun:
    """Step through burn-in and what counts; fees are left unknown."""
    shape = (task.n_steps, task.n_envs)
    rewards = np.zeros(shape)
    position, turnover, returns, fee = (np.full(shape, np.nan) for _ in range(4))
    held = np.zeros(task.n_envs)
    forecasts: list[Forecast | None] = []
    orders = deque([_no_position(env)] * delay)
    state: StateT | None = None
    observations = env.reset()
    for step in range(-task.burn_in, task.n_steps):
        starts = np.full(task.n_envs, step == -task.burn_in)
        moment = Moment(observations, np.full(task.n_envs, step), starts)
        actions, after = policy.act(moment, state)
        if forecast_every is not None and step >= 0 and step % forecast_every == 0:
            forecasts.append(policy.forecast(after))
        orders.append(np.asarray(actions))
        result = env.step(orders.popleft())
        state = policy.receive(after, result.reward)
        observations = result.observation
        if isinstance(env, TradingProblem):
            known = env.get_state()
            before, held = held, known["position"]
            if step >= 0:
                position[step], turnover[step] = held, np.abs(held - before)
                returns[step] = known.get("last_return", np.nan)
        if step >= 0:
            rewards[step] = result.reward
    said = tuple(forecast for forecast in forecasts if forecast is not None)
    return ProblemRun(rewards, position, turnover, fee, returns, said)


def _no_position(env: VectorProblem) -> NDArray[Any]:
    """Return the actions [N, ...] that hold nothing: the middle choice, or zero."""
    space = env.action_space
    if isinstance(space, spaces.Discrete):
        return np.full(env.n_envs, int(space.n) // 2)
    return np.zeros((env.n_envs, *space.shape))


def _run_episodes(task: ProblemTask, policy: ActingPolicy[StateT]) -> ProblemRun:
    env = task.problem.build(task.n_envs, task.seed)
    observations = env.reset()
    shape = (task.n_steps, task.n_envs)
    rewards = np.zeros(shape)
    episode = np.zeros(task.n_envs, np.int64)
    starts = np.ones(task.n_envs, np.bool_)
    state: StateT | None = None
    instances = np.arange(task.n_envs)
    while episode.min() < task.n_steps:
        actions, after = policy.act(Moment(observations, episode, starts), state)
        result = env.step(actions)
        state = policy.receive(after, result.reward)
        counted = episode < task.n_steps
        rewards[episode[counted], instances[counted]] += result.reward[counted]
        starts = result.terminated | result.truncated
        episode = episode + starts
        observations = result.observation
    unknown = np.full(shape, np.nan)
    return ProblemRun(rewards, unknown, unknown, unknown, unknown, ())


def make_problem_track(
    task: ProblemTask, run: ProblemRun, name: str, label: str, hindsight: bool
) -> Track:
    """Return a track: the mean over all instances, and the steps of the first few of them."""
    columns = {
        "net_return": run.rewards,
        "position": run.position,
        "exposure": np.abs(run.position),
        "turnover": run.turnover,
        "fee": run.fee,
    }
    shown = min(SHOWN, task.n_envs)
    steps = np.arange(task.n_steps)
    kept = [
        _series(steps, {key: value[:, i] for key, value in columns.items()}, run.returns[:, i])
        for i in range(shown)
    ]
    numbers = [np.concatenate([getattr(part, key) for part in kept]) for key in SERIES_NUMBERS]
    mean = {key: value.mean(axis=1) for key, value in columns.items()}
    return Track(
        name=name,
        label=label,
        unit="reward",
        hindsight=hindsight,
        windows=tuple(
            Window(f"path {i + 1}", i * task.n_steps, (i + 1) * task.n_steps) for i in range(shown)
        ),
        bars=Series(np.tile(steps, shown), *numbers),
        portfolio=_series(steps, mean, np.full(task.n_steps, np.nan)),
    )


def _series(steps: Any, columns: dict[str, FloatArray], returns: FloatArray) -> Series:
    zero = np.zeros(len(steps))
    return Series(
        time=steps, equity=equity_curve(columns["net_return"], additive=True),
        price=np.cumsum(returns), spread=zero, slippage=zero, funding=zero, borrow=zero, **columns,
    )  # fmt: skip
