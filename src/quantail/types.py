"""Shape letters and array aliases, defined once.

Shapes are written in brackets in docstrings and comments, with these letters:

======  =====================================================================
letter  meaning
======  =====================================================================
``T``   time: bars of a series, or steps of a rollout
``N``   environments (accounts) stepped together
``L``   steps of one chunk, the length of truncated backpropagation
``B``   rows of a minibatch: chunks times ``L``
``O``   size of an observation
``A``   action dimensions
``F``   features of one bar
``S``   symbols
``Q``   quantiles of a value distribution
``K``   atoms of a categorical value distribution
``H``   units of a recurrent state
======  =====================================================================
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]
"""Prices, returns and everything an account books: float64, so that identities hold to 1e-9."""

Float32Array: TypeAlias = NDArray[np.float32]
"""What a network reads: observations and features."""

IntArray: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]

TimeArray: TypeAlias = NDArray[np.datetime64]
"""Instants in UTC, ``datetime64[ns]``."""
