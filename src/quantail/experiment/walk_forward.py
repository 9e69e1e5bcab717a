"""Several splits as one judgment: each agent on its own test bars, all of them end to end."""

from collections.abc import Sequence

import numpy as np

from quantail.evaluation.backtest import equal_weight
from quantail.evaluation.calibration import UNJUDGED_CRITIC, calibration_of, join_stretches
from quantail.evaluation.curves import Evidence, MarketEvaluation, sensitivity_curves
from quantail.evaluation.evaluate_market import overfitting
from quantail.evaluation.record import SERIES_NUMBERS, Evaluation, Series, Track, Window
from quantail.evaluation.tables import compare, measure_series
from quantail.evaluation.verdict import market_verdict
from quantail.types import FloatArray


def join_evaluations(
    parts: Sequence[Evaluation], evidence: Sequence[Evidence], settings: MarketEvaluation
) -> Evaluation:
    """Return the evaluation of all splits' bars together.

    Every split has an agent of its own, trained on what lay before. Windows are put one after
    another; the portfolio is their mean in each bar, as within one split. A point of a sensitivity
    curve is the same multiple or delay in every split, each agent on its own bars. The critics'
    forecasts are judged as one pool, each critic's against what came to its own agent. The k-th
    agents that were tried in all splits count as one trial over all validation bars.

    Args:
        parts: Evaluations of one role, over windows that do not overlap.
        evidence: What each of them rests on.
        settings: How they were judged.
    """
    first, bootstrap = parts[0], settings.bootstrap
    periods = first.periods_per_year
    names = [track.name for track in first.tracks]
    tracks = tuple(_join_tracks([part.track(name) for part in parts]) for name in names)
    agent = tracks[names.index("agent")]
    comparisons = tuple(
        compare(agent, other, periods, bootstrap) for other in tracks if other is not agent
    )
    n_trials = sum(part.n_trials for part in parts)
    variants = {
        variant: _join_tracks([part.variants[variant] for part in evidence])
        for variant in settings.variants
    }
    costs, delays = sensitivity_curves(variants, settings, periods)
    foretold = [part.stretches for part in evidence if part.stretches is not None]
    calibration = calibration_of(join_stretches(foretold))
    return Evaluation(
        role=first.role,
        split=f"{len(parts)} splits",
        unit=first.unit,
        symbols=tuple(dict.fromkeys(symbol for part in parts for symbol in part.symbols)),
        seeds=first.seeds,
        n_trials=n_trials,
        confidence=bootstrap.confidence,
        periods_per_year=periods,
        main_baseline=first.main_baseline,
        tracks=tracks,
        measures={each.name: measure_series(each.portfolio, periods, bootstrap) for each in tracks},
        comparisons=comparisons,
        verdict=market_verdict(comparisons, first.role),
        cost_curve=costs,
        delay_curve=delays,
        calibration=calibration,
        overfitting=overfitting(agent.portfolio.net_return, n_trials, _join_trials(evidence)),
        notes=(
            f"{len(parts)} agents, one for each split, each judged on bars after its own training: "
            f"{', '.join(part.split for part in parts)}. Curves and calibration are over the bars "
            "of all of them; those of single agents are below, split by split.",
            *(
                f"{part.split}: {note}"
                for part in parts
                for note in part.notes
                if note != UNJUDGED_CRITIC
            ),
            *((UNJUDGED_CRITIC,) if calibration is None else ()),
        ),
    )


def _join_trials(evidence: Sequence[Evidence]) -> FloatArray | None:
    """Return the trials' returns [bars of all splits, trials]; None where some are not on record.

    What makes the k-th agents of the splits one trial is that they were trained equally long.
    """
    trials = [part.trial_returns for part in evidence if part.trial_returns is not None]
    counts = {each.shape[1] for each in trials}
    if len(trials) < len(evidence) or len(counts) != 1:
        return None
    return np.concatenate(trials)


def _join_tracks(parts: Sequence[Track]) -> Track:
    windows, start = [], 0
    for part in parts:
        windows += [
            Window(each.symbol, each.start + start, each.stop + start, each.ended)
            for each in part.windows
        ]
        start += len(part.bars)
    bars = _join_series([part.bars for part in parts])
    first = parts[0]
    return Track(
        name=first.name,
        label=first.label,
        unit=first.unit,
        hindsight=first.hindsight,
        windows=tuple(windows),
        bars=bars,
        portfolio=equal_weight(bars, _price_returns(bars, windows)),
    )


def _join_series(parts: Sequence[Series]) -> Series:
    numbers = [np.concatenate([getattr(part, name) for part in parts]) for name in SERIES_NUMBERS]
    return Series(np.concatenate([part.time for part in parts]), *numbers)


def _price_returns(bars: Series, windows: Sequence[Window]) -> FloatArray:
    """Return the change of the price in each bar, [R]; 0 in the first bar of a window."""
    moves = np.zeros(len(bars))
    for window in windows:
        price = bars.price[window.start : window.stop]
        moves[window.start + 1 : window.stop] = price[1:] / price[:-1] - 1.0
    return moves
