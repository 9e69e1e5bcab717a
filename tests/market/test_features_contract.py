"""Every member of the union keeps the contract; a new member is tested by being in the union."""

import dataclasses
from typing import get_args

import numpy as np
import pytest

from quantail.config_class import config as config_class
from quantail.config_file import parse_config, write_config
from quantail.market.features import CustomFeature, FeatureConfig, QuotedSpread, build_features
from quantail.testing import check_features
from tests.market.feature_bars import random_bars, random_columns

MEMBERS = [member for member in get_args(get_args(FeatureConfig)[0]) if member != CustomFeature]


@config_class
class OneFeature:
    feature: FeatureConfig


def test_the_union_has_what_users_expect():
    kinds = {member().kind for member in MEMBERS}
    assert kinds >= {
        "log_return", "realized_volatility", "parkinson_volatility", "yang_zhang_volatility",
        "rsi", "macd", "atr", "bollinger_position", "obv", "volume_z_score", "spread",
        "time_of_day", "time_of_week", "time_since_gap",
    }  # fmt: skip


@pytest.mark.parametrize("member", MEMBERS)
def test_no_member_looks_ahead(member):
    report = check_features(member(), random_bars(400, symbols=2))
    assert report.leaks == ()
    assert report.columns == member().build().names


@pytest.mark.parametrize("member", MEMBERS)
def test_inputs_are_left_alone(member):
    columns = random_columns(150)
    before = columns.to_frame()
    member().build()(columns)
    assert columns.to_frame().equals(before)


@pytest.mark.parametrize("member", MEMBERS)
def test_values_do_not_depend_on_the_price_level(member):
    """Defaults compare across symbols: the same market in cents gives the same features."""
    columns = random_columns(200)
    scaled = {name: getattr(columns, name) * 100.0 for name in ("open", "high", "low", "close")}
    volume = columns.volume * 8.0
    feature = member().build()
    other = feature(dataclasses.replace(columns, **scaled, volume=volume))
    np.testing.assert_allclose(other, feature(columns), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("member", MEMBERS)
def test_configurations_survive_the_file(member):
    given = OneFeature(feature=member())
    assert parse_config(OneFeature, write_config(given)) == given


def test_names_tell_every_setting_apart():
    variants = [
        dataclasses.replace(member(), window=9)
        for member in MEMBERS
        if "window" in {field.name for field in dataclasses.fields(member)}
    ]
    built = build_features([*(member() for member in MEMBERS), *variants])
    assert len(built) == len(MEMBERS) + len(variants)


def test_the_quoted_spread_is_the_column_itself():
    columns = random_columns(20)
    np.testing.assert_array_equal(QuotedSpread().build()(columns)[:, 0], columns.spread)
