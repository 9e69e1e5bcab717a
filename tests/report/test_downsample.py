import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from quantail.report.downsample import kept_rows


@given(
    arrays.arrays(np.float64, st.integers(1, 400), elements=st.floats(-1e6, 1e6)),
    st.integers(1, 60),
)
def test_every_column_keeps_its_extremes_and_ends(values, n_columns):
    rows = kept_rows(values, n_columns)
    assert (np.diff(rows) > 0).all()
    assert len(rows) <= max(4 * n_columns, 2 * n_columns)
    if len(values) <= 2 * n_columns:
        assert len(rows) == len(values)
        return
    edges = np.linspace(0, len(values), n_columns + 1).astype(int)
    for start, stop in itertools.pairwise(edges):
        kept = values[rows[(rows >= start) & (rows < stop)]]
        assert kept.min() == values[start:stop].min()
        assert kept.max() == values[start:stop].max()
        assert {start, stop - 1} <= set(rows.tolist())


def test_one_spike_of_a_million_bars_is_drawn():
    values = np.zeros(1_000_000)
    values[123_457] = -3.0
    rows = kept_rows(values, 600)
    assert 123_457 in rows
    assert len(rows) <= 4 * 600


def test_series_on_a_common_axis_keep_the_extremes_of_each():
    table = np.zeros((10_000, 2))
    table[5_000, 0], table[7_001, 1] = 1.0, -1.0
    assert {5_000, 7_001} <= set(kept_rows(table, 50).tolist())


def test_absent_values_hide_nothing():
    values = np.full(1000, np.nan)
    values[555] = 2.0
    assert 555 in kept_rows(values, 10)
