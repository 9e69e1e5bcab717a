"""An agent on bars it has not seen: tracks, measures, comparisons, curves and verdict."""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import numpy as np
from annotated_types import Ge

from quantail.config_class import config
from quantail.errors import ConfigError, ConfigProblem
from quantail.evaluation.agent_policy import AgentPolicy
from quantail.evaluation.backtest import (
    MarketRun,
    MarketTask,
    make_track,
    memory_groups,
    run_market,
    run_markets,
)
from quantail.evaluation.baselines import average_position, market_baselines
from quantail.evaluation.bootstrap import BootstrapConfig
from quantail.evaluation.calibration import calibrate, horizon
from quantail.evaluation.overfitting import deflated_sharpe_of, probability_of_overfitting
from quantail.evaluation.periods import periods_per_year
from quantail.evaluation.record import (
    Calibration,
    CostCurve,
    DelayCurve,
    Evaluation,
    Overfitting,
    Series,
    Track,
)
from quantail.evaluation.tables import break_even, compare, measure_series, sensitivity_point
from quantail.evaluation.verdict import market_verdict
from quantail.sb3.agent import DistributionalPPO
from quantail.types import BoolArray, FloatArray

_OWN: Final = (1.0, 0)
"""Factor on the costs and additional delay of the agent as it is."""


@config
class MarketEvaluation:
    """How an agent is judged on a market."""

    bootstrap: BootstrapConfig = BootstrapConfig()
    """How intervals are computed."""
    cost_factors: tuple[Annotated[float, Ge(0)], ...] = (0.0, 0.5, 1.0, 2.0, 4.0)
    """Multiples of fee, spread and slippage; must include 1. Empty for no curve."""
    delays: tuple[Annotated[int, Ge(0)], ...] = (0, 1, 2)
    """Bars that orders fill later than ``fill.delay`` says; must include 0. Empty for no curve."""
    momentum_window: Annotated[int, Ge(1)] = 20
    """Bars over which the momentum baseline looks back."""
    sampled: bool = True
    """Also run the agent with drawn actions, as it acted in training."""

    def check(self) -> None:
        """Refuse curves out of order or without their reference point."""
        for name, values, reference in (
            ("cost_factors", self.cost_factors, 1.0),
            ("delays", self.delays, 0),
        ):
            if values and (list(values) != sorted(set(values)) or reference not in values):
                problem = f"must rise and include {reference:g}, or be empty; was {values!r}"
                raise ConfigError([ConfigProblem(name, problem)])


def evaluate_market(
    task: MarketTask,
    agent: DistributionalPPO,
    *,
    role: Literal["validation", "test"],
    split: str,
    seeds: tuple[int, ...] = (),
    n_trials: int = 1,
    trial_returns: FloatArray | None = None,
    settings: MarketEvaluation = MarketEvaluation(),  # noqa: B008 - frozen
) -> Evaluation:
    """Judge an agent over all windows of a task, at full cost.

    Args:
        task: The bars and windows, as :meth:`MarketTask.of_rows` builds them from a fold.
        agent: The agent.
        role: What the windows are for.
        split: The split's name.
        seeds: Seeds of the agent's training, for the record; the draws of the sampled policy and
            the bootstrap use ``settings.bootstrap.seed``.
        n_trials: Agents tried before this one was chosen, itself included.
        trial_returns: [T, trials] returns of the tried agents' portfolios over common bars, the
            validation's as a rule: gives the probability of overfitting.
        settings: Baselines, curves and intervals.
    """
    bootstrap, periods = settings.bootstrap, periods_per_year(task.bars)
    run, costs, delays = run_with_curves(task, agent, settings)
    track = make_track(task, run, name="agent", label="Agent")
    judged, tracks = run, [track]
    if settings.sampled:
        drawn = AgentPolicy(agent, deterministic=False, seed=bootstrap.seed)
        judged = run_market(task.simulator(), drawn, horizon(agent.gamma))
        tracks.append(make_track(task, judged, name="agent_sampled", label="Agent, drawn actions"))
    tracks += [*market_baselines(task, settings.momentum_window), average_position(task, track)]
    comparisons = tuple(
        compare(track, other, periods, bootstrap) for other in tracks if other is not track
    )
    verdict = market_verdict(comparisons, role)
    calibration = market_calibration(judged, agent.gamma)
    return Evaluation(
        role=role,
        split=split,
        unit="return",
        symbols=tuple(dict.fromkeys(symbol for symbol, _ in task.windows)),
        seeds=seeds,
        n_trials=n_trials,
        confidence=bootstrap.confidence,
        periods_per_year=periods,
        main_baseline="flat",
        tracks=tuple(tracks),
        measures={each.name: measure_series(each.portfolio, periods, bootstrap) for each in tracks},
        comparisons=comparisons,
        verdict=verdict,
        cost_curve=costs,
        delay_curve=delays,
        calibration=calibration,
        overfitting=overfitting(track.portfolio.net_return, n_trials, trial_returns),
        notes=tuple(_notes(tracks, calibration)),
    )


def market_calibration(run: MarketRun, gamma: float) -> Calibration | None:
    """Return how well the critic foresaw the run's discounted rewards."""
    ruined: BoolArray = np.array([bool(reason) for reason in run.ended])
    return calibrate(run.forecasts, run.rewards, run.alive, ruined, gamma)


def run_with_curves(
    task: MarketTask, agent: DistributionalPPO, settings: MarketEvaluation
) -> tuple[MarketRun, CostCurve | None, DelayCurve | None]:
    """Run the agent as it is, at other multiples of the costs and with later fills, side by side.

    Returns:
        The agent's own run and the curves, whose points 1 (costs) and 0 (delay) are that run.
    """
    on_costs = [(factor, 0) for factor in settings.cost_factors]
    on_delays = [(1.0, delay) for delay in settings.delays]
    variants = list(dict.fromkeys([_OWN, *on_costs, *on_delays]))
    own: list[MarketRun] = []
    portfolios: dict[tuple[float, int], Series] = {}
    for group in memory_groups(task, variants):
        sims = [task.delayed(delay).simulator(cost_scale=factor) for factor, delay in group]
        runs = run_markets(sims, AgentPolicy(agent), horizon(agent.gamma))
        for variant, run in zip(group, runs, strict=True):
            portfolios[variant] = make_track(task, run, name="agent", label="").portfolio
            if variant == _OWN:
                own.append(run)
    periods = periods_per_year(task.bars)
    costs = tuple(
        sensitivity_point(factor, portfolios[factor, delay], periods, settings.bootstrap)
        for factor, delay in on_costs
    )
    delays = tuple(
        sensitivity_point(delay, portfolios[factor, delay], periods, settings.bootstrap)
        for factor, delay in on_delays
    )
    return (
        own[0],
        CostCurve(costs, break_even(costs)) if costs else None,
        DelayCurve(delays) if delays else None,
    )


def overfitting(
    returns: FloatArray, n_trials: int, trial_returns: FloatArray | None = None
) -> Overfitting:
    """Return what the number of trials leaves of a result; see :mod:`.overfitting`."""
    sharpes, probability = None, None
    if trial_returns is not None and trial_returns.shape[1] > 1:
        spread = trial_returns.std(axis=0, ddof=1)
        means = trial_returns.mean(axis=0)
        sharpes = np.where(spread > 0.0, means / np.where(spread > 0.0, spread, 1.0), 0.0)
        blocks = min(16, 2 * (len(trial_returns) // 8))
        if blocks >= 4:
            probability = probability_of_overfitting(trial_returns, blocks)
    deflated, threshold = deflated_sharpe_of(returns, n_trials, sharpes)
    return Overfitting(
        n_trials=n_trials,
        deflated_sharpe=deflated,
        expected_maximum_sharpe=threshold,
        probability=probability,
    )


def _notes(tracks: Sequence[Track], calibration: Calibration | None) -> list[str]:
    notes = [
        f"{track.label}: the account in {window.symbol} was {window.ended}; it earns "
        "nothing from there to the end of its window."
        for track in tracks
        for window in track.windows
        if window.ended
    ]
    if calibration is None:
        notes.append(
            "The critic's forecasts cannot be judged: it predicts no law, its returns are not "
            "discounted, or the windows hold too few whole stretches of its horizon."
        )
    return notes
