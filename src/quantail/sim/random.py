"""One random stream per account, so that an account's path does not depend on its neighbors."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from quantail.errors import ConfigError
from quantail.sim.compiled import helper

SeedArray = NDArray[np.uint64]

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_MIX_1: Final = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2: Final = np.uint64(0x94D049BB133111EB)
_SHIFT_30: Final = np.uint64(30)
_SHIFT_27: Final = np.uint64(27)
_SHIFT_31: Final = np.uint64(31)
_SHIFT_11: Final = np.uint64(11)
_TO_UNIT: Final = 2.0**-53


@helper
def uniform_nb(stream: np.uint64) -> tuple[np.uint64, float]:
    """Return the advanced stream and a draw from [0, 1): SplitMix64, one add and one mix per draw.

    References:
        Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    advanced = stream + _STEP
    z = (advanced ^ (advanced >> _SHIFT_30)) * _MIX_1
    z = (z ^ (z >> _SHIFT_27)) * _MIX_2
    z = z ^ (z >> _SHIFT_31)
    return advanced, np.float64(z >> _SHIFT_11) * _TO_UNIT


def env_seeds(seed: int, n_envs: int) -> list[int]:
    """Return one seed for each env: env 0 has ``seed`` itself, env i a hash of ``seed`` and i.

    They do not depend on ``n_envs``. ``seed + i``, as vector environments often have it, would let
    runs with neighboring seeds share all but one of their envs.
    """
    mixed = [np.random.SeedSequence((seed, i)).generate_state(1, np.uint64) for i in range(n_envs)]
    return [seed, *(int(state[0]) >> 1 for state in mixed[1:])]


def seed_streams(seed: int | Sequence[int], n_envs: int) -> SeedArray:
    """Return the first states of ``n_envs`` streams, [N].

    Args:
        seed: A whole number, which :func:`env_seeds` makes one for each env of; or these numbers.
        n_envs: Number of streams.
    """
    given = (seed,) if isinstance(seed, int | np.integer) else seed
    if any(value < 0 for value in given):
        raise ConfigError(
            f"seed must be at least 0; was {min(given)}. Give whole numbers from 0 on."
        )
    seeds = env_seeds(int(seed), n_envs) if isinstance(seed, int | np.integer) else list(given)
    if len(seeds) != n_envs:
        raise ConfigError(
            f"seed must be one number or {n_envs} numbers, one for each env; "
            f"{len(seeds)} were given. Give as many seeds as envs."
        )
    # SeedSequence spreads neighboring seeds over the whole range, so that streams do not overlap.
    return np.array(
        [np.random.SeedSequence(value).generate_state(1, np.uint64)[0] for value in seeds]
    )
