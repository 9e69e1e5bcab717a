"""Random numbers for N environments, one independent stream per environment.

Every environment owns a splitmix64 counter that is seeded from (seed, number of the environment).
What environment i draws depends on nothing else: not on N, not on the others' episodes.
"""

import math
from typing import Final

import numba
import numpy as np
from numpy.typing import NDArray

from quantail.errors import ConfigError, ConfigProblem
from quantail.types import FloatArray, IntArray

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)
_UNIT: Final = 2.0**-53


@numba.njit(cache=True)
def _mix_nb(value):  # type: ignore[no-untyped-def] # numba infers the types
    """Return the splitmix64 output function of one counter value."""
    value = (value ^ (value >> np.uint64(30))) * _MIX_1
    value = (value ^ (value >> np.uint64(27))) * _MIX_2
    return value ^ (value >> np.uint64(31))


@numba.njit(cache=True)
def _seed_nb(seed, first, counters):  # type: ignore[no-untyped-def]
    base = _mix_nb(seed + _STEP)
    for i in range(counters.size):
        number = first + np.uint64(i) + np.uint64(1)
        counters[i] = _mix_nb(base ^ _mix_nb(number * _MIX_2))


@numba.njit(cache=True)
def _uniform_nb(counters, rows, out):  # type: ignore[no-untyped-def]
    for k in range(rows.size):
        counters[rows[k]] += _STEP
        out[k] = (_mix_nb(counters[rows[k]]) >> np.uint64(11)) * _UNIT


@numba.njit(cache=True)
def _normal_nb(counters, rows, out):  # type: ignore[no-untyped-def]
    """Box and Muller's transform; the scalar loop gives the same bits whatever the array length."""
    for k in range(rows.size):
        counters[rows[k]] += _STEP
        radius = ((_mix_nb(counters[rows[k]]) >> np.uint64(11)) + 0.5) * _UNIT
        counters[rows[k]] += _STEP
        angle = (_mix_nb(counters[rows[k]]) >> np.uint64(11)) * _UNIT
        out[k] = math.sqrt(-2.0 * math.log(radius)) * math.cos(2.0 * math.pi * angle)


class NoiseStreams:
    """N seeded streams of uniform and normal numbers.

    Attributes:
        counters: The whole state of the streams. [N]
    """

    def __init__(self, n_envs: int, seed: int, first_env: int = 0) -> None:
        self.counters: NDArray[np.uint64] = np.empty(n_envs, dtype=np.uint64)
        self._rows = np.arange(n_envs)
        self._first_env = first_env
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """Start all streams anew from ``seed``."""
        if not 0 <= seed < 2**63:
            raise ConfigError([ConfigProblem("seed", f"must be in [0, 2**63); was {seed}")])
        _seed_nb(np.uint64(seed), np.uint64(self._first_env), self.counters)

    def uniform(self, rows: IntArray | None = None) -> FloatArray:
        """Draw one number in [0, 1) from the streams in ``rows`` (all by default). [rows]."""
        rows = self._rows if rows is None else rows
        out = np.empty(rows.size)
        _uniform_nb(self.counters, rows, out)
        return out

    def normal(self, rows: IntArray | None = None) -> FloatArray:
        """Draw one standard normal number from the streams in ``rows`` (all by default). [rows]."""
        rows = self._rows if rows is None else rows
        out = np.empty(rows.size)
        _normal_nb(self.counters, rows, out)
        return out
