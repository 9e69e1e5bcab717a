"""An agent on bars it has not seen: tracks, measures, comparisons, curves and verdict."""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from quantail.evaluation.agent_policy import AgentPolicy
from quantail.evaluation.backtest import MarketRun, MarketTask, make_track, run_market
from quantail.evaluation.baselines import average_position, market_baselines
from quantail.evaluation.calibration import (
    UNJUDGED_CRITIC,
    Stretches,
    calibration_of,
    horizon,
    stretches,
)
from quantail.evaluation.constant import ConstantPosition, constant_position, largest_position
from quantail.evaluation.curves import (
    OWN,
    Evidence,
    MarketEvaluation,
    run_variants,
    sensitivity_curves,
)
from quantail.evaluation.overfitting import deflated_sharpe_of, probability_of_overfitting
from quantail.evaluation.periods import periods_per_year
from quantail.evaluation.record import Calibration, Evaluation, Overfitting, Track
from quantail.evaluation.tables import compare, measure_series
from quantail.evaluation.tail import tail_note
from quantail.evaluation.verdict import market_verdict
from quantail.sb3.agent import DistributionalPPO
from quantail.types import BoolArray, FloatArray


def judge_market(
    task: MarketTask,
    agent: DistributionalPPO,
    *,
    role: Literal["validation", "test"],
    split: str,
    seeds: tuple[int, ...] = (),
    n_trials: int = 1,
    trial_returns: FloatArray | None = None,
    settings: MarketEvaluation = MarketEvaluation(),  # noqa: B008 - frozen
) -> tuple[Evaluation, Evidence]:
    """Judge an agent over all windows of a task, at full cost.

    Returned beside the evaluation is what it rests on.

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
    length = task.config.episodes.length
    run, variants = run_variants(task, agent, settings)
    costs, delays = sensitivity_curves(variants, settings, periods)
    track = variants[OWN]
    judged, tracks = run, [track]
    if settings.sampled:
        drawn = AgentPolicy(agent, deterministic=False, seed=bootstrap.seed, budget_steps=length)
        judged = run_market(task.simulator(), drawn, horizon(agent.gamma))
        tracks.append(make_track(task, judged, name="agent_sampled", label="Agent, drawn actions"))
    tracks += [*market_baselines(task, settings.momentum_window), average_position(task, track)]
    comparisons = tuple(
        compare(track, other, periods, bootstrap) for other in tracks if other is not track
    )
    verdict = market_verdict(comparisons, role)
    foretold = market_stretches(judged, agent.gamma)
    calibration = calibration_of(foretold)
    constant = constant_position(track.bars.position, largest_position(task.config))
    evaluation = Evaluation(
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
        notes=tuple(_notes(role, tracks, constant, calibration, tail_note(agent, run, length))),
    )
    return evaluation, Evidence(variants, foretold, trial_returns, constant)


def market_stretches(run: MarketRun, gamma: float) -> Stretches | None:
    """Return what the critic foretold of the run's discounted rewards, and what came."""
    ruined: BoolArray = np.array([bool(reason) for reason in run.ended])
    return stretches(run.forecasts, run.rewards, run.alive, ruined, gamma)


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


def _notes(
    role: str,
    tracks: Sequence[Track],
    constant: ConstantPosition | None,
    calibration: Calibration | None,
    of_tail: str | None,
) -> list[str]:
    notes = [
        f"{track.label}: the account in {window.symbol} was {window.ended}; it earns "
        "nothing from there to the end of its window."
        for track in tracks
        for window in track.windows
        if window.ended
    ]
    if constant is not None:
        notes.insert(0, constant.sentence(f"the {role}"))
    if of_tail is not None:
        notes.append(of_tail)
    if calibration is None:
        notes.append(UNJUDGED_CRITIC)
    return notes
