"""From a configuration to folds: checks run by themselves, folds keep to their windows."""

from textwrap import dedent

import numpy as np
import pytest

from quantail.config_file import parse_config, write_config
from quantail.errors import ConfigError, DataError
from quantail.market.dataset import DataConfig, prepare
from quantail.market.features import CustomFeature, LogReturn, Rsi, TimeSinceGap, VolumeZScore
from quantail.market.leakage import LeakCheck
from quantail.market.pipeline import PipelineConfig
from quantail.market.segments import Segment, Split
from quantail.market.sources import SyntheticSource
from quantail.market.splits import CombinatorialPurged, Fractions, WalkForward

SOURCE = SyntheticSource(bars=600, symbols=2, steps_per_bar=2)
SPLITS = (
    Fractions(purge=10, embargo=5),
    WalkForward(train_size=200, validation_size=40, test_size=50, purge=10),
    WalkForward(train_size=200, test_size=90, anchored=True),
    CombinatorialPurged(n_folds=5, n_test_folds=2, purge=10, embargo=5),
)


@pytest.fixture
def oracle(tmp_path):
    path = tmp_path / "oracle.py"
    path.write_text(
        dedent("""
        from quantail.market.features import feature

        @feature(name="oracle", warmup=0)
        def oracle(bars):
            return bars["close"].shift(-1).fillna(bars["close"]) / bars["close"] - 1.0
        """)
    )
    return CustomFeature(function=f"{path}:oracle")


@pytest.mark.parametrize("splits", SPLITS, ids=lambda splits: splits.kind)
def test_folds_see_their_own_windows_and_no_others(splits):
    features = (LogReturn(), Rsi(), VolumeZScore(window=30))
    dataset = prepare(DataConfig(source=SOURCE, features=features, splits=splits))
    time = dataset.bars.time
    for index, split in enumerate(dataset.splits):
        fold = dataset.fold(index)
        used = np.zeros(dataset.bars.n_bars, dtype=int)
        moments = {}
        for role, windows in (
            ("train", fold.train),
            ("validation", fold.validation),
            ("test", fold.test),
        ):
            rows = np.concatenate([np.arange(a, b) for a, b in windows] or [np.empty(0, int)])
            used[rows] += 1
            moments[role] = set(time[rows])
            assert len(moments[role]) <= sum(s.stop - s.start for s in split.roles[role])
        assert used.max() == 1
        assert not moments["train"] & (moments["validation"] | moments["test"])
        assert np.isfinite(fold.features.values[used == 1]).all()
        assert np.isnan(fold.features.values[used == 0]).all()
        # Warm-up rows of both symbols are in no window.
        assert not used[:29].any()
        assert not used[600:629].any()
        assert fold.pipeline.n_rows == sum(b - a for a, b in fold.train)
        if splits.kind != "combinatorial_purged":
            assert max(moments["train"]) < min(moments["test"])


def test_statistics_differ_from_fold_to_fold():
    dataset = prepare(DataConfig(source=SOURCE, features=(LogReturn(),), splits=SPLITS[1]))
    centers = {dataset.fold(k).pipeline.center[0] for k in range(len(dataset.splits))}
    assert len(centers) == len(dataset.splits) > 2
    with pytest.raises(DataError, match=r"fold must be between 0 and \d+; was 99"):
        dataset.fold(99)


def test_a_leaking_feature_is_refused_before_anything_else(oracle):
    with pytest.raises(DataError, match=r"'oracle' fails the truncation test, first at bar 0"):
        prepare(DataConfig(source=SOURCE, features=(Rsi(), oracle)))


def test_an_override_is_spelled_out(oracle):
    allowed = DataConfig(
        source=SOURCE, features=(Rsi(), oracle), leak_check=LeakCheck(allow=("oracle",))
    )
    dataset = prepare(allowed)
    assert dataset.table.names == ("rsi_14", "oracle")
    assert [leak.column for leak in dataset.leaks.leaks] == ["oracle"]
    idle = DataConfig(source=SOURCE, features=(Rsi(),), leak_check=LeakCheck(allow=("rsi_14",)))
    with pytest.raises(ConfigError, match="leak_check.allow: must name columns that leak"):
        prepare(idle)


def test_no_features():
    dataset = prepare(DataConfig(source=SOURCE, features=()))
    assert dataset.fold().features.values.shape == (1200, 0)
    assert dataset.leaks.columns == ()
    for part in ({"pipeline": PipelineConfig(scale="none")}, {"leak_check": LeakCheck(seed=1)}):
        with pytest.raises(ConfigError, match=f"{next(iter(part))}: has no effect without"):
            DataConfig(source=SOURCE, features=(), **part)


class OverlappingSplits(Fractions):
    """A split of the user's own making, one bar too long."""

    def split(self, axis):
        return (Split("mine", (Segment(0, 301),), (), (Segment(300, len(axis)),)),)


def test_a_split_whose_sides_share_a_moment_is_refused():
    with pytest.raises(DataError, match="train and test share 1 bar time"):
        prepare(DataConfig(source=SOURCE, features=(LogReturn(),), splits=OverlappingSplits()))


def test_a_window_inside_the_warmup_is_refused():
    slow = DataConfig(
        source=SOURCE,
        features=(VolumeZScore(window=300),),
        splits=WalkForward(train_size=100, test_size=50),
    )
    dataset = prepare(slow)
    with pytest.raises(DataError, match="train window of split walk_forward_0 has no bar after a"):
        dataset.fold(0)


def test_a_constant_feature_is_refused_when_it_is_scaled():
    """Synthetic bars have no pauses, so the time since one never changes."""
    dataset = prepare(DataConfig(source=SOURCE, features=(TimeSinceGap(limit=20),)))
    with pytest.raises(DataError, match="'time_since_gap_20' is constant"):
        dataset.fold()


def test_the_configuration_survives_the_file(oracle):
    given = DataConfig(source=SOURCE, features=(Rsi(window=9), oracle), splits=SPLITS[3])
    assert parse_config(DataConfig, write_config(given)) == given


def test_a_wrong_key_is_named_with_its_place():
    text = "source: {kind: synthetic}\nfeatures:\n  - kind: rsi\n    windw: 3\n"
    with pytest.raises(ConfigError, match=r"features\[0\].windw.*did you mean.*window"):
        parse_config(DataConfig, text)
    with pytest.raises(ConfigError, match=r"features\[0\].kind: must be one of .*'rsi'"):
        parse_config(DataConfig, "source: {kind: synthetic}\nfeatures:\n  - kind: rsy\n")
