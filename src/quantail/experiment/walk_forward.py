"""Several splits as one judgment: each agent on its own test bars, all of them end to end."""

from collections.abc import Sequence

import numpy as np

from quantail.evaluation.backtest import equal_weight
from quantail.evaluation.bootstrap import BootstrapConfig
from quantail.evaluation.evaluate_market import overfitting
from quantail.evaluation.record import SERIES_NUMBERS, Evaluation, Series, Track, Window
from quantail.evaluation.tables import compare, measure_series
from quantail.evaluation.verdict import market_verdict
from quantail.types import FloatArray


def join_evaluations(parts: Sequence[Evaluation], bootstrap: BootstrapConfig) -> Evaluation:
    """Return the evaluation of all splits' bars together.

    Every split has an agent of its own, trained on what lay before. Windows are put one after
    another; the portfolio is their mean in each bar, as within one split. Sensitivity curves and
    calibration belong to single agents and stay with the splits.

    Args:
        parts: Evaluations of one role, over windows that do not overlap.
        bootstrap: How intervals are computed.
    """
    first = parts[0]
    periods = first.periods_per_year
    names = [track.name for track in first.tracks]
    tracks = tuple(_join_tracks([part.track(name) for part in parts]) for name in names)
    agent = tracks[names.index("agent")]
    comparisons = tuple(
        compare(agent, other, periods, bootstrap) for other in tracks if other is not agent
    )
    n_trials = sum(part.n_trials for part in parts)
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
        overfitting=overfitting(agent.portfolio.net_return, n_trials),
        notes=(
            f"{len(parts)} agents, one for each split, each judged on bars after its own training: "
            f"{', '.join(part.split for part in parts)}. Cost and delay curves and calibration "
            "belong to single agents; they are in the folder of each split.",
            *(note for part in parts for note in part.notes if "account" in note),
        ),
    )


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
