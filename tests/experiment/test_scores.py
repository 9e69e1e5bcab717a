"""Agents can be ranked by every measure that has a better side."""

from typing import get_args

import numpy as np
import pytest

from quantail.evaluation.bootstrap import BootstrapConfig
from quantail.evaluation.measures import MEASURES
from quantail.evaluation.record import SERIES_NUMBERS, Series
from quantail.evaluation.tables import measure_series
from quantail.experiment.config import MarketMetric
from quantail.experiment.market_task import score


def series(returns) -> Series:
    returns = np.asarray(returns, float)
    rng = np.random.default_rng(1)
    numbers = {name: rng.uniform(0.0, 0.1, len(returns)) for name in SERIES_NUMBERS}
    return Series(time=np.arange(len(returns)), **(numbers | {"net_return": returns}))


NOISE = series(np.random.default_rng(0).normal(0.001, 0.01, 300))


def test_every_measure_with_a_better_side_is_a_metric():
    assert set(get_args(MarketMetric)) == {
        name for name, info in MEASURES.items() if info.better != "neither"
    }


@pytest.mark.parametrize("metric", get_args(MarketMetric))
def test_a_score_is_the_measure_with_its_better_side_up(metric):
    found = score(NOISE, metric, 252.0)
    value = getattr(measure_series(NOISE, 252.0, BootstrapConfig(samples=100)), metric).value
    assert abs(found) == pytest.approx(abs(value), rel=1e-12)
    assert np.sign(found) == np.sign(value) * (-1 if MEASURES[metric].better == "lower" else 1)


@pytest.mark.parametrize("metric", ["sharpe", "sortino", "calmar", "profit_factor", "hit_rate"])
def test_a_steady_gain_beats_no_trade_and_no_trade_beats_a_steady_loss(metric):
    gain, idle, loss = (score(series(np.full(50, r)), metric, 252.0) for r in (0.01, 0.0, -0.01))
    assert gain > idle > loss
