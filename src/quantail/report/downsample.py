"""Long series made short enough to draw, without hiding an extreme.

A screen shows about a thousand columns. Of each column's bars the first, the lowest, the highest
and the last are kept: the drawn line covers the same pixels as the full one, and no spike is lost.
"""

import numpy as np

from quantail.types import FloatArray, IntArray


def kept_rows(series: FloatArray, n_columns: int) -> IntArray:
    """Return the rows to draw of one or several series on a common axis.

    Args:
        series: Values [T], or [T, K] for K series that share their times; NaN counts as absent.
        n_columns: Columns of the screen, at least 1. Up to 4 rows per column are kept for one
            series, 2 + 2·K for K.

    Returns:
        Increasing row numbers; all rows when there are no more than ``2 * n_columns``.
    """
    assert n_columns >= 1
    table = series[:, None] if series.ndim == 1 else series
    n_rows = len(table)
    if n_rows <= 2 * n_columns:
        return np.arange(n_rows)
    starts = np.linspace(0, n_rows, n_columns + 1).astype(np.int64)[:-1]
    column = np.repeat(np.arange(n_columns), np.diff(np.append(starts, n_rows)))
    kept = [starts, np.append(starts[1:], n_rows) - 1]
    for values in table.T:
        lows = np.minimum.reduceat(np.where(np.isnan(values), np.inf, values), starts)
        highs = np.maximum.reduceat(np.where(np.isnan(values), -np.inf, values), starts)
        for extreme in (lows, highs):
            hits = np.flatnonzero(values == extreme[column])
            kept.append(hits[np.unique(column[hits], return_index=True)[1]])
    return np.unique(np.concatenate(kept))
