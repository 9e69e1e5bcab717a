"""Random numbers for N environments, one independent stream per environment.

What environment i draws depends on the seed and on its number alone: not on N, not on the others'
episodes. Streams of different seeds share nothing, so an agent may be judged on another seed than
it was trained on.
"""

import math

import numpy as np
from numpy.typing import NDArray

from quantail.errors import ConfigError, ConfigProblem
from quantail.sim.compiled import kernel
from quantail.sim.random import uniform_nb
from quantail.types import FloatArray, IntArray


@kernel
def _uniforms_nb(streams: NDArray[np.uint64], rows: IntArray, out: FloatArray) -> None:
    for k in range(rows.size):
        streams[rows[k]], out[k] = uniform_nb(streams[rows[k]])


@kernel
def _normals_nb(streams: NDArray[np.uint64], rows: IntArray, out: FloatArray) -> None:
    """Box and Muller's transform; a scalar loop gives the same bits whatever the array length."""
    for k in range(rows.size):
        stream, radius = uniform_nb(streams[rows[k]])
        streams[rows[k]], angle = uniform_nb(stream)
        out[k] = math.sqrt(-2.0 * math.log(1.0 - radius)) * math.cos(2.0 * math.pi * angle)


class NoiseStreams:
    """N seeded streams of uniform and normal numbers.

    Attributes:
        streams: The whole state of the streams. [N]
    """

    def __init__(self, n_envs: int, seed: int, first_env: int = 0) -> None:
        self.streams: NDArray[np.uint64] = np.empty(n_envs, dtype=np.uint64)
        self._rows = np.arange(n_envs)
        self._first_env = first_env
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        """Start all streams anew from ``seed``."""
        if seed < 0:
            raise ConfigError([ConfigProblem("seed", f"must be at least 0; was {seed}")])
        for row in range(self.streams.size):
            mixed = np.random.SeedSequence((seed, self._first_env + row))
            self.streams[row] = mixed.generate_state(1, np.uint64)[0]

    def uniform(self, rows: IntArray | None = None) -> FloatArray:
        """Draw one number in [0, 1) from the streams in ``rows`` (all by default). [rows]."""
        rows = self._rows if rows is None else rows
        out = np.empty(rows.size)
        _uniforms_nb(self.streams, rows, out)
        return out

    def normal(self, rows: IntArray | None = None) -> FloatArray:
        """Draw one standard normal number from the streams in ``rows`` (all by default). [rows]."""
        rows = self._rows if rows is None else rows
        out = np.empty(rows.size)
        _normals_nb(self.streams, rows, out)
        return out
