"""What an evaluation found: plain values that are saved, loaded and reported.

An :class:`Evaluation` holds everything about one role (validation or test) of one split. Its tracks
are the bars themselves; everything else is computed from them, with intervals where chance matters.
Shape letters beyond those of :mod:`quantail.types`: ``R`` rows of all windows one after another,
``W`` windows.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from quantail.errors import DataError
from quantail.types import FloatArray, IntArray

COST_NAMES: Final = ("fee", "spread", "slippage", "funding", "borrow")
SERIES_NUMBERS: Final = (
    "net_return", "equity", "position", "exposure", "turnover", *COST_NAMES, "price",
)  # fmt: skip

Unit = Literal["return", "reward"]
Level = Literal["skill", "no_evidence", "worse"]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and, where chance matters and enough bars are there, its interval."""

    value: float
    """NaN where the measure is not defined."""
    low: float | None = None
    high: float | None = None

    def covers(self, number: float) -> bool:
        """Whether ``number`` may be the truth; without an interval nothing can be ruled out."""
        if self.low is None or self.high is None:
            return True
        return not (number < self.low or number > self.high)


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """One number of each kind for each bar, [R]; fractions of the equity before the bar.

    Raises:
        DataError: When the arrays differ in length or ``time`` is of a wrong kind.
    """

    time: NDArray[np.datetime64] | IntArray
    """Opening time of the bar in UTC (``datetime64[ns]``); number of the step in a problem."""
    net_return: FloatArray
    """Simple return of the account after all costs; the reward in a problem."""
    equity: FloatArray
    """Equity after the bar, 1 before the first; sum of rewards in a problem."""
    position: FloatArray
    """Signed notional over equity after the bar."""
    exposure: FloatArray
    """Absolute notional over equity after the bar."""
    turnover: FloatArray
    """Traded notional over equity before the bar."""
    fee: FloatArray
    spread: FloatArray
    slippage: FloatArray
    funding: FloatArray
    """Negative where the position was paid for."""
    borrow: FloatArray
    price: FloatArray
    """Close of the bar; NaN where there is no price."""

    def __post_init__(self) -> None:
        if self.time.dtype.kind not in "Mi":
            raise DataError(
                f"time of a series must be instants or step numbers; was {self.time.dtype}."
            )
        for name in SERIES_NUMBERS:
            shape = getattr(self, name).shape
            if shape != self.time.shape or self.time.ndim != 1:
                raise DataError(
                    f"{name} of a series must have one number per bar, {list(self.time.shape)}; "
                    f"had {list(shape)}."
                )

    def __len__(self) -> int:
        return len(self.time)

    @property
    def costs(self) -> FloatArray:
        """[R] all costs of the bar as a fraction of the equity before it."""
        total: FloatArray = sum((getattr(self, name) for name in COST_NAMES), np.zeros(len(self)))
        return total

    def rows(self, part: slice) -> "Series":
        """Return some of the bars, as views."""
        return Series(self.time[part], *(getattr(self, name)[part] for name in SERIES_NUMBERS))


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of bars of one symbol that a policy traded from first to last."""

    symbol: str
    start: int
    """First row in the track's bars."""
    stop: int
    ended: str = ""
    """Why the account ended before the window did (bankrupt, liquidated); empty if it did not."""


@dataclass(frozen=True, slots=True, eq=False)
class Track:
    """One policy over all windows, and their equal-weight portfolio.

    Each window is traded by an account of its own that starts with equity 1 and no position. The
    portfolio's return in a bar is the plain mean over the accounts that trade in it, which means
    equal weights, rebalanced in every bar at no cost.
    """

    name: str
    """agent, agent_sampled, flat, buy_and_hold, best_constant, momentum, optimal, memoryless ..."""
    label: str
    """The name as a reader should see it."""
    unit: Unit
    """Compounding simple returns of a market, or additive rewards of a problem."""
    hindsight: bool
    """Chosen with knowledge of the very bars it is judged on: a bound, never a rival."""
    windows: tuple[Window, ...]
    bars: Series
    """Rows of the windows one after another; of a problem, of some of its instances."""
    portfolio: Series
    """[T] by time, over all windows or instances."""

    def window(self, index: int) -> Series:
        """Return the bars of one window."""
        part = self.windows[index]
        return self.bars.rows(slice(part.start, part.stop))


@dataclass(frozen=True, slots=True)
class Measures:
    """Measures of a track's portfolio; conventions: docs/measures.md."""

    total_return: Estimate
    annual_return: Estimate
    volatility: Estimate
    sharpe: Estimate
    sortino: Estimate
    calmar: Estimate
    max_drawdown: Estimate
    max_drawdown_bars: Estimate
    var_95: Estimate
    cvar_95: Estimate
    var_99: Estimate
    cvar_99: Estimate
    hit_rate: Estimate
    profit_factor: Estimate
    turnover: Estimate
    exposure: Estimate
    costs_paid: Estimate
    time_in_market: Estimate
    n_bars: int
    periods_per_year: float
    """1 for a problem, whose measures are therefore per step."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Agent minus baseline, bar by bar over the same bars."""

    baseline: str
    mean_difference: Estimate
    """Of the net return, per bar."""
    annual_difference: Estimate
    """The same times bars per year."""
    sharpe_difference: Estimate
    p_value: float
    """One-sided: how often chance alone gives as large a mean difference."""
    block_length: float
    """Expected length of the bootstrap's blocks, in bars."""
    confidence: float

    @property
    def is_better(self) -> bool:
        """Whether the interval of the mean difference lies above zero."""
        return self.mean_difference.low is not None and self.mean_difference.low > 0.0

    @property
    def is_worse(self) -> bool:
        """Whether the interval of the mean difference lies below zero."""
        return self.mean_difference.high is not None and self.mean_difference.high < 0.0


@dataclass(frozen=True, slots=True)
class SensitivityPoint:
    """The agent's result when one assumption is changed."""

    factor: float
    """Multiple of the costs, or bars of additional delay."""
    total_return: float
    annual_mean: Estimate
    """Mean net return per bar times bars per year."""
    sharpe: Estimate


@dataclass(frozen=True, slots=True)
class CostCurve:
    """The same policy at several multiples of the costs; 1 is the full cost of the evaluation."""

    points: tuple[SensitivityPoint, ...]
    break_even: float | None
    """Multiple at which the mean net return crosses zero, between two points; None: it does not."""


@dataclass(frozen=True, slots=True)
class DelayCurve:
    """The same policy when its orders fill later than assumed, by whole bars."""

    points: tuple[SensitivityPoint, ...]


@dataclass(frozen=True, slots=True)
class Calibration:
    """The critic's predicted law of the discounted return against what came.

    ``coverage[i]`` is the share of realized returns at or below the predicted quantile of
    ``levels[i]``; a calibrated critic has coverage equal to level.
    """

    levels: tuple[float, ...]
    coverage: tuple[float, ...]
    pit: tuple[float, ...]
    """Shares of the probability integral transform in equal bins of [0, 1]."""
    predicted_quantiles: tuple[float, ...]
    """Mean over starts, at ``levels``."""
    realized_quantiles: tuple[float, ...]
    predicted_mean: float
    realized_mean: float
    predicted_cvar: float
    realized_cvar: float
    cvar_level: float
    n: int
    """Starts, spaced by the horizon so that their returns do not overlap."""
    horizon: int
    """Steps of a realized return; the critic's mean stands for what follows."""
    error: float
    """Mean absolute difference between coverage and level."""


@dataclass(frozen=True, slots=True)
class OptimumFraction:
    """F = (V_agent − V_base)/(V* − V_base) on common random numbers."""

    fraction: Estimate
    agent_value: float
    base: str
    """Name of the policy that scores zero."""
    base_value: float
    optimal_value: float
    """On the same random numbers as the agent."""
    exact_optimum: float
    """By the solver, without chance."""
    n_envs: int
    n_steps: int


@dataclass(frozen=True, slots=True)
class Overfitting:
    """What the number of trials does to the best one's result."""

    n_trials: int
    deflated_sharpe: float
    """Probability that the true Sharpe ratio exceeds what the best of the trials has by luck."""
    expected_maximum_sharpe: float
    """Sharpe ratio per bar that the best of as many trials without skill has on average."""
    probability: float | None
    """Of backtest overfitting (CSCV); None with fewer than two trials on record."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result in one sentence."""

    sentence: str
    level: Level
    evidence: bool
    """Whether there is evidence of skill."""
    numbers: Mapping[str, float]
    """What the sentence rests on, by name."""


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """Everything about one role of one split; :mod:`quantail.evaluation.record_file` saves it."""

    role: Literal["validation", "test"]
    split: str
    """Name of the split; the kind of the problem if there is no market."""
    unit: Unit
    symbols: tuple[str, ...]
    seeds: tuple[int, ...]
    """Seeds of training of the judged agent and of its evaluation."""
    n_trials: int
    """Agents and settings tried before this one was chosen, itself included."""
    confidence: float
    """Level of all two-sided intervals."""
    periods_per_year: float
    main_baseline: str
    """The baseline that the verdict is about."""
    tracks: tuple[Track, ...]
    measures: Mapping[str, Measures]
    """By name of the track."""
    comparisons: tuple[Comparison, ...]
    verdict: Verdict
    cost_curve: CostCurve | None = None
    delay_curve: DelayCurve | None = None
    calibration: Calibration | None = None
    optimum: OptimumFraction | None = None
    overfitting: Overfitting | None = None
    notes: tuple[str, ...] = ()
    """What a reader must know: an account that was ruined, a part that could not be computed."""

    def track(self, name: str) -> Track:
        """Return a track by its name.

        Raises:
            DataError: When there is none of that name.
        """
        for track in self.tracks:
            if track.name == name:
                return track
        known = ", ".join(track.name for track in self.tracks)
        raise DataError(f"track must be one of {known}; was {name!r}.")
