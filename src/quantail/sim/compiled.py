"""How kernels are compiled: one thread, exact arithmetic, cached on disk.

``helper`` functions are compiled into the ``kernel`` functions that call them; only kernels and
solvers are called from Python and cached. Compiled names end in ``_nb``. A helper that is called
once per account takes and returns numbers alone, in named tuples; functions that take arrays loop
over accounts.
"""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import numba

_F = TypeVar("_F", bound=Callable[..., Any])
_njit: Any = numba.njit  # its dispatcher types hide the function's own signature
_EXACT: Final = {"error_model": "numpy", "fastmath": False}
# What allocates nothing need not count references either: passing an array from function to
# function would else cost two atomic operations, which in a small step added up to a third.
_LEAN: Final = _EXACT | {"_nrt": False}


def helper(function: _F) -> _F:
    """Compile ``function`` as a part of the kernels that call it."""
    compiled: _F = _njit(**_LEAN, forceinline=True)(function)
    return compiled


def loop(function: _F) -> _F:
    """Compile a part of a kernel that loops over accounts or is called rarely."""
    compiled: _F = _njit(**_LEAN)(function)
    return compiled


def kernel(function: _F) -> _F:
    """Compile ``function``, which allocates no array, for calls from Python; cache it on disk."""
    return _cached(function, _LEAN)


def solver(function: _F) -> _F:
    """Compile ``function``, which may allocate arrays, for calls from Python; cache it on disk."""
    return _cached(function, _EXACT)


def _cached(function: _F, options: dict[str, object]) -> _F:
    """Compile ``function`` and keep the machine code on disk.

    Numba's cache watches the file of the kernel alone, but helpers of other files are compiled into
    it; so the stamp of a cache entry is widened to all sources of the simulator. Without this an
    edited helper would leave the old machine code in use.
    """
    dispatcher = _njit(**options, cache=True)(function)
    entry = dispatcher._cache._cache_file
    entry._source_stamp = (entry._source_stamp, _sources_digest())
    compiled: _F = dispatcher
    return compiled


@cache
def _sources_digest() -> str:
    folder = Path(__file__).parent
    files = sorted([*folder.glob("*.py"), *folder.glob("rewards/*.py")])
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
