"""Splits in time: which bars train, which choose, which judge.

``purge`` leaves out training bars whose outcome reaches past the training window (set it to the
reward's or label's horizon); ``embargo`` leaves out the bars that follow a border, which still
resemble the other side (slow features, volatility clusters).
"""

import itertools
import math
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Final, Literal, TypeAlias

import numpy as np
from annotated_types import Ge, Gt, Lt

from quantail.config_class import BY_KIND, config
from quantail.errors import ConfigError, ConfigProblem, DataError
from quantail.market.instants import YEARS
from quantail.market.segments import (
    Segment,
    Split,
    TimeWindow,
    combinatorial_purged,
    iso,
    walk_forward,
)
from quantail.types import TimeArray

_MOST_COMBINATIONS: Final = 10_000


@config
class DateWindow:
    """A stretch of time, half-open."""

    start: str
    """First instant inside, ISO 8601: 2024-01-31 or 2024-01-31T22:00Z; UTC where no zone is
    given."""
    stop: str
    """First instant after it."""

    def check(self) -> None:
        """Refuse what is no instant, and an empty window."""
        if self.window().start >= self.window().stop:
            raise ConfigError(
                [ConfigProblem("stop", f"must be after start ({self.start}); was {self.stop}")]
            )

    def window(self) -> TimeWindow:
        """The same stretch in UTC."""
        return TimeWindow(_instant(self.start, "start"), _instant(self.stop, "stop"))


@config
class FixedWindows:
    """Train, validate and test in windows given by date."""

    kind: Literal["fixed"] = "fixed"
    train: DateWindow
    validation: DateWindow | None = None
    test: DateWindow

    def check(self) -> None:
        """Refuse windows that overlap or are out of order."""
        given = [("train", self.train), ("validation", self.validation), ("test", self.test)]
        windows = [(name, part.window()) for name, part in given if part is not None]
        for (before, first), (after, second) in itertools.pairwise(windows):
            if second.start < first.stop:
                raise ConfigError(
                    [
                        ConfigProblem(
                            f"{after}.start",
                            f"must not be before the end of {before} ({iso(first.stop)}); was "
                            f"{iso(second.start)}. The order is train, validation, test",
                        )
                    ]
                )

    def split(self, axis: TimeArray) -> tuple[Split, ...]:
        """The one split of the axis [T]."""
        train = _between(axis, self.train, "train")
        test = _between(axis, self.test, "test")
        validation: tuple[Segment, ...] = ()
        if self.validation is not None:
            validation = (_between(axis, self.validation, "validation"),)
        return (Split("fixed", (train,), validation, (test,)),)


@config
class Fractions:
    """Train, validate and test on consecutive shares of the bars; the test has what remains."""

    kind: Literal["fractions"] = "fractions"
    train: Annotated[float, Gt(0), Lt(1)] = 0.6
    """Share of the bars for training."""
    validation: Annotated[float, Ge(0), Lt(1)] = 0.2
    """Share of the bars for validation; 0 for none."""
    purge: Annotated[int, Ge(0)] = 0
    """Bars left out at the end of training and of validation."""
    embargo: Annotated[int, Ge(0)] = 0
    """Bars left out at the start of validation and of the test."""

    def check(self) -> None:
        """Refuse shares that leave nothing for the test."""
        if self.train + self.validation >= 1.0 - 1e-9:
            raise ConfigError(
                [
                    ConfigProblem(
                        "train",
                        f"plus validation must be less than 1, to leave a test; was {self.train} + "
                        f"{self.validation}",
                    )
                ]
            )

    def split(self, axis: TimeArray) -> tuple[Split, ...]:
        """The one split of the axis [T]."""
        n = len(axis)
        first = round(self.train * n)
        second = round((self.train + self.validation) * n)
        train = _segment(0, first - self.purge, n)
        test = _segment(second + self.embargo, n, n)
        validation: tuple[Segment, ...] = ()
        if self.validation > 0.0:
            validation = (_segment(first + self.embargo, second - self.purge, n),)
        return (Split("fractions", (train,), validation, (test,)),)


@config
class WalkForward:
    """Train on a window, test on what follows, move on: the way a strategy would have lived."""

    kind: Literal["walk_forward"] = "walk_forward"
    train_size: Annotated[int, Ge(1)]
    """Bars of training; with ``anchored`` those of the first split."""
    validation_size: Annotated[int, Ge(0)] = 0
    """Bars of validation between training and test; 0 for none."""
    test_size: Annotated[int, Ge(1)]
    """Bars of each test; the windows move on by as many, so tests follow without overlap."""
    anchored: bool = False
    """True: training always starts at the first bar and grows; false: its window slides."""
    keep_short_test: bool = False
    """Keep a last test with fewer bars than ``test_size``."""
    purge: Annotated[int, Ge(0)] = 0
    """Bars between a window and the next one, for outcomes that reach forward."""
    embargo: Annotated[int, Ge(0)] = 0
    """Further bars between a window and the next one, for features that reach back."""

    def split(self, axis: TimeArray) -> tuple[Split, ...]:
        """Every split of the axis [T], oldest first."""
        return walk_forward(
            len(axis),
            train_size=self.train_size,
            validation_size=self.validation_size,
            test_size=self.test_size,
            gap=self.purge + self.embargo,
            anchored=self.anchored,
            keep_short_test=self.keep_short_test,
        )


@config
class CombinatorialPurged:
    """Test on every combination of folds, train on the others with purge and embargo.

    Training bars lie on both sides of a test, so this judges a method, not a life in the market.
    """

    kind: Literal["combinatorial_purged"] = "combinatorial_purged"
    n_folds: Annotated[int, Ge(3)] = 6
    """Folds of equal size; the last one takes the remainder."""
    n_test_folds: Annotated[int, Ge(1)] = 2
    """Folds tested at a time."""
    purge: Annotated[int, Ge(0)] = 0
    """Training bars left out on both sides of a test."""
    embargo: Annotated[int, Ge(0)] = 0
    """Further training bars left out after a test."""

    def check(self) -> None:
        """Refuse settings that leave no training, or that nobody can compute."""
        if self.n_test_folds >= self.n_folds:
            raise ConfigError(
                [
                    ConfigProblem(
                        "n_test_folds",
                        f"must be less than n_folds ({self.n_folds}); was {self.n_test_folds}",
                    )
                ]
            )
        combinations = math.comb(self.n_folds, self.n_test_folds)
        if combinations > _MOST_COMBINATIONS:
            raise ConfigError(
                [
                    ConfigProblem(
                        "n_folds",
                        f"over n_test_folds must give at most {_MOST_COMBINATIONS} splits, each a "
                        f"training of its own; {self.n_folds} over {self.n_test_folds} gives "
                        f"{combinations}. Use fewer folds",
                    )
                ]
            )

    def split(self, axis: TimeArray) -> tuple[Split, ...]:
        """Every split of the axis [T], in the order of the combinations."""
        return combinatorial_purged(
            len(axis),
            n_folds=self.n_folds,
            n_test_folds=self.n_test_folds,
            purge=self.purge,
            embargo=self.embargo,
        )


SplitConfig: TypeAlias = Annotated[
    FixedWindows | Fractions | WalkForward | CombinatorialPurged, BY_KIND
]


def _segment(start: int, stop: int, n: int) -> Segment:
    if start >= stop:
        raise DataError(
            f"splits: a window runs from bar {start} to bar {stop} of {n} and is empty. Use larger "
            "fractions, a smaller purge and embargo, or more data."
        )
    return Segment(start, stop)


def _between(axis: TimeArray, part: DateWindow, name: str) -> Segment:
    window = part.window()
    start, stop = (int(i) for i in np.searchsorted(axis, np.array([window.start, window.stop])))
    if start >= stop:
        raise DataError(
            f"splits.{name} holds no bar between {window}; the data runs from {iso(axis[0])} "
            f"to {iso(axis[-1])}. Choose dates inside."
        )
    return Segment(start, stop)


def _instant(text: str, name: str) -> np.datetime64:
    moment: datetime | None = None
    with suppress(ValueError):
        moment = datetime.fromisoformat(text)
    # A day inside of what nanoseconds hold, so that no offset of a zone can leave it.
    if moment is None or not YEARS[0] <= moment.year <= YEARS[1]:
        raise ConfigError(
            [
                ConfigProblem(
                    name,
                    "must be a date or an instant such as 2024-01-31 or 2024-01-31T22:00Z, "
                    f"between {YEARS[0]} and {YEARS[1]}; was {text!r}",
                )
            ]
        )
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return np.datetime64(moment, "ns")
