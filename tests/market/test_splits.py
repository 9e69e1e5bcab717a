"""Splits: index for index as skfolio's, never a bar on two sides, and what is refused."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from skfolio.model_selection import CombinatorialPurgedCV
from skfolio.model_selection import WalkForward as SkfolioWalkForward

from quantail.config_class import config
from quantail.config_file import parse_config, write_config
from quantail.errors import ConfigError, DataError
from quantail.market.segments import (
    Segment,
    TimeWindow,
    combinatorial_purged,
    row_windows,
    time_axis,
    time_windows,
    walk_forward,
)
from quantail.market.splits import (
    CombinatorialPurged,
    DateWindow,
    FixedWindows,
    Fractions,
    SplitConfig,
    WalkForward,
)
from tests.market.feature_bars import HOUR, START, as_bars, random_columns

AXIS = START + np.arange(1000) * HOUR


def indices(segments: tuple[Segment, ...]) -> np.ndarray:
    parts = [segment.indices for segment in segments]
    return np.concatenate(parts) if parts else np.empty(0, dtype=int)


@given(
    n=st.integers(10, 120),
    train=st.integers(1, 40),
    test=st.integers(1, 25),
    purge=st.integers(0, 8),
    embargo=st.integers(0, 4),
    anchored=st.booleans(),
    short=st.booleans(),
)
def test_walk_forward_equals_skfolio(*, n, train, test, purge, embargo, anchored, short):
    gap = purge + embargo
    theirs = SkfolioWalkForward(
        test_size=test,
        train_size=train,
        purged_size=gap,
        expand_train=anchored,
        reduce_test=short,
    )
    setting = WalkForward(
        train_size=train,
        test_size=test,
        purge=purge,
        embargo=embargo,
        anchored=anchored,
        keep_short_test=short,
    )
    needed = train + gap + (1 if short else test)
    if n < needed:
        with pytest.raises(DataError, match="walk-forward needs at least"):
            setting.split(AXIS[:n])
        return
    ours = setting.split(AXIS[:n])
    expected = list(theirs.split(np.zeros((n, 1))))
    assert len(ours) == len(expected)
    for split, (train_rows, test_rows) in zip(ours, expected, strict=True):
        np.testing.assert_array_equal(indices(split.train), train_rows)
        np.testing.assert_array_equal(indices(split.test), test_rows)
        assert split.validation == ()


@given(
    n=st.integers(60, 200),
    folds=st.integers(3, 7),
    tested=st.integers(2, 6),
    purge=st.integers(0, 4),
    embargo=st.integers(0, 3),
)
def test_combinatorial_purged_equals_skfolio(n, folds, tested, purge, embargo):
    tested = min(tested, folds - 1)
    theirs = CombinatorialPurgedCV(
        n_folds=folds, n_test_folds=tested, purged_size=purge, embargo_size=embargo
    )
    if purge + embargo >= n // folds - 1:  # skfolio refuses these
        return
    sizes = {"n_folds": folds, "n_test_folds": tested, "purge": purge, "embargo": embargo}
    expected = list(theirs.split(np.zeros((n, 1))))
    if not all(len(train_rows) for train_rows, _ in expected):
        with pytest.raises(DataError, match="leave no training bar"):
            combinatorial_purged(n, **sizes)
        return
    ours = combinatorial_purged(n, **sizes)
    assert len(ours) == len(expected) == theirs.n_splits
    for split, (train_rows, test_folds) in zip(ours, expected, strict=True):
        np.testing.assert_array_equal(indices(split.train), train_rows)
        rows = np.sort(np.concatenate(test_folds))
        np.testing.assert_array_equal(indices(split.test), rows)


@given(
    n=st.integers(40, 200),
    train=st.integers(1, 30),
    validation=st.integers(1, 10),
    test=st.integers(1, 10),
    gap=st.integers(0, 6),
    anchored=st.booleans(),
)
def test_walk_forward_with_validation_keeps_order_and_gaps(
    *, n, train, validation, test, gap, anchored
):
    if n < train + validation + test + 2 * gap:
        return
    splits = walk_forward(
        n,
        train_size=train,
        validation_size=validation,
        test_size=test,
        gap=gap,
        anchored=anchored,
    )
    for k, split in enumerate(splits):
        (a,), (b,), (c,) = split.train, split.validation, split.test
        assert a.start == (0 if anchored else k * test)
        assert b.start - a.stop == c.start - b.stop == gap
        assert b.stop - b.start == validation
        assert c.stop - c.start == test
    tests = indices(tuple(split.test[0] for split in splits))
    np.testing.assert_array_equal(tests, np.arange(tests[0], tests[0] + len(tests)))


@pytest.mark.parametrize(
    "setting",
    [
        Fractions(purge=5, embargo=3),
        Fractions(train=0.5, validation=0.0),
        WalkForward(train_size=200, validation_size=50, test_size=60, purge=5, embargo=3),
        WalkForward(train_size=200, test_size=60, anchored=True),
        CombinatorialPurged(n_folds=5, n_test_folds=1, purge=5, embargo=3),
        CombinatorialPurged(n_folds=5, n_test_folds=3),
        FixedWindows(
            train=DateWindow(start="2024-01-01", stop="2024-01-20"),
            test=DateWindow(start="2024-01-20", stop="2024-02-01"),
        ),
    ],
)
def test_no_bar_is_on_two_sides(setting):
    for split in setting.split(AXIS):
        sides = [set(indices(part)) for part in split.roles.values()]
        for one, other in itertools.combinations(sides, 2):
            assert not one & other
        assert sides[0]
        assert sides[2]
        assert max(itertools.chain(*sides)) < len(AXIS)


def test_fractions_leave_out_purge_before_and_embargo_after_a_border():
    (split,) = Fractions(train=0.5, validation=0.3, purge=7, embargo=2).split(AXIS[:100])
    assert split.train == (Segment(0, 43),)
    assert split.validation == (Segment(52, 73),)
    assert split.test == (Segment(82, 100),)


def test_fixed_windows_read_zones_and_take_utc_without_one():
    setting = FixedWindows(
        train=DateWindow(start="2024-01-01T02:00+02:00", stop="2024-01-02T00:00:00Z"),
        validation=DateWindow(start="2024-01-02", stop="2024-01-03"),
        test=DateWindow(start="2024-01-04", stop="2030-01-01"),
    )
    (split,) = setting.split(AXIS)
    assert split.train == (Segment(0, 24),)
    assert split.validation == (Segment(24, 48),)
    assert split.test == (Segment(72, 1000),)


@config
class Holder:
    splits: SplitConfig


def test_splits_from_a_file():
    text = """
    splits:
      kind: fixed
      train: {start: 2024-01-01, stop: 2024-01-10}
      test: {start: 2024-01-10T06:00:00Z, stop: 2024-02-01}
    """
    held = parse_config(Holder, text)
    assert held.splits.split(AXIS)[0].test[0].start == 9 * 24 + 6
    assert parse_config(Holder, write_config(held)) == held


def test_rows_of_ragged_symbols():
    early, late = random_columns(50, 0, "AAA"), random_columns(80, 1, "BBB").rows(30, 80)
    bars = as_bars(early, late)
    axis = time_axis(bars.time)
    assert len(axis) == 80
    windows = time_windows((Segment(0, 40), Segment(60, 80)), axis)
    # AAA has times 0..49 in rows 0..49, BBB has times 30..79 in rows 50..99.
    assert row_windows(bars, windows).tolist() == [[0, 40], [50, 60], [80, 100]]
    # A warm-up of 10 takes BBB's times 30..39 away altogether.
    assert row_windows(bars, windows, warmup=10).tolist() == [[10, 40], [80, 100]]
    assert row_windows(bars, (), warmup=10).shape == (0, 2)
    covered = windows[1].covers(bars.time)
    assert np.flatnonzero(covered).tolist() == list(range(80, 100))


def test_windows_print_readably():
    window = TimeWindow(np.datetime64("2024-01-01"), np.datetime64("2024-01-02T06:00"))
    assert str(window) == "2024-01-01T00:00:00+00:00 to 2024-01-02T06:00:00+00:00"


def day(number: int) -> str:
    return f"2024-01-{number:02}"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: DateWindow(start=day(2), stop=day(2)),
            r"stop: must be after start \(2024-01-02",
        ),
        (lambda: DateWindow(start="31/01/2024", stop=day(2)), "start: must be a date or an inst"),
        (
            lambda: FixedWindows(
                train=DateWindow(start=day(1), stop=day(10)),
                test=DateWindow(start=day(9), stop=day(20)),
            ),
            r"test.start: must not be before the end of train \(2024-01-10.*was 2024-01-09",
        ),
        (
            lambda: FixedWindows(
                train=DateWindow(start=day(1), stop=day(5)),
                validation=DateWindow(start=day(10), stop=day(15)),
                test=DateWindow(start=day(6), stop=day(9)),
            ),
            "test.start: must not be before the end of validation",
        ),
        (lambda: Fractions(train=0.8, validation=0.2), "train: plus validation must be less than"),
        (lambda: CombinatorialPurged(n_folds=4, n_test_folds=4), r"less than n_folds \(4\)"),
        (lambda: CombinatorialPurged(n_folds=40, n_test_folds=20), "at most 10000 splits"),
        (lambda: WalkForward(train_size=0, test_size=1), "train_size: must be at least 1"),
    ],
)
def test_refused_settings(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (Fractions(purge=600), "runs from bar 0 to bar 0 of 1000 and is empty"),
        (
            CombinatorialPurged(n_folds=10, purge=60, embargo=40),
            r"longer than purge \+ embargo \(100 bars\)",
        ),
        (
            FixedWindows(
                train=DateWindow(start=day(1), stop=day(2)),
                test=DateWindow(start="2031-01-01", stop="2032-01-01"),
            ),
            r"splits.test holds no bar between 2031.*data runs from 2024-01-01T00:00:00\+00:00",
        ),
        (
            WalkForward(train_size=990, test_size=20, validation_size=5, purge=2),
            r"at least 1019 bars \(train 990.*has 1000 distinct",
        ),
    ],
)
def test_data_that_does_not_suffice(setting, message):
    with pytest.raises(DataError, match=message):
        setting.split(AXIS)


def test_a_purge_that_leaves_no_training_is_refused():
    # Folds 0 and 2 are tested; purge 6 on both sides empties the 10 bars of fold 1.
    with pytest.raises(DataError, match=r"leave no training bar when folds \[0, 2\]"):
        combinatorial_purged(30, n_folds=3, n_test_folds=2, purge=6)


@pytest.mark.parametrize(
    ("start", "stop", "key"),
    [
        ("1439-07-01", "2024-01-01", "start"),
        ("0001-01-01T00:00+05:00", "2024-01-01", "start"),
        ("2024-01-01", "9999-12-31", "stop"),
        ("now", "2025-01-01", "start"),
    ],
)
def test_dates_that_do_not_fit_are_refused_by_name(start: str, stop: str, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"{key}: must be a date .*between 1678 and 2261; was"):
        DateWindow(start=start, stop=stop)
