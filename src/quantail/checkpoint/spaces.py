"""Gymnasium spaces as plain values: numbers, text and arrays."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from quantail.checkpoint.archive import CheckpointError

_KINDS: Final = "Box, Discrete, MultiDiscrete, MultiBinary and Dict"


def describe_space(space: "spaces.Space[Any]", place: str) -> dict[str, Any]:
    """Return what :func:`make_space` makes an equal space from."""
    match space:
        case spaces.Box():
            return {
                "kind": "Box",
                "dtype": _dtype(space),
                "shape": list(space.shape),
                "low": _bound(space.low),
                "high": _bound(space.high),
            }
        case spaces.Discrete():
            return {
                "kind": "Discrete",
                "dtype": _dtype(space),
                "n": int(space.n),
                "start": int(space.start),
            }
        case spaces.MultiDiscrete():
            return {
                "kind": "MultiDiscrete",
                "dtype": _dtype(space),
                "nvec": space.nvec,
                "start": space.start,
            }
        case spaces.MultiBinary():
            n = space.n
            return {"kind": "MultiBinary", "n": list(n) if isinstance(n, tuple) else int(n)}
        case spaces.Dict():
            parts = [[key, describe_space(part, f"{place}.{key}")] for key, part in space.items()]
            return {"kind": "Dict", "parts": parts}
    raise CheckpointError(f"{place} is a {type(space).__name__}; {_KINDS} can be saved")


def make_space(plain: Mapping[str, Any], place: str) -> "spaces.Space[Any]":
    """Return the space that :func:`describe_space` described."""
    given = dict(plain)
    make = _MAKERS.get(given.pop("kind", None))
    if make is None:
        raise CheckpointError(f"{place} is a space of an unknown kind; {_KINDS} are known")
    try:
        return make(**given)
    except (TypeError, ValueError, AssertionError) as error:
        raise CheckpointError(f"{place} does not describe a space: {error}") from error


def _make_box(dtype: str, shape: list[int], low: Any, high: Any) -> spaces.Box:
    kind = np.dtype(dtype)
    bounds = [np.broadcast_to(np.asarray(bound, kind), shape).copy() for bound in (low, high)]
    return spaces.Box(bounds[0], bounds[1], tuple(shape), kind.type)


def _make_discrete(dtype: str, n: int, start: int) -> "spaces.Discrete[Any]":
    # Older versions of gymnasium know int64 alone, and have no argument for it.
    if dtype == "int64":
        return spaces.Discrete(n, start=start)
    return spaces.Discrete(n, start=start, dtype=np.dtype(dtype).type)


def _make_multi_discrete(
    dtype: str, nvec: NDArray[Any], start: NDArray[Any]
) -> spaces.MultiDiscrete:
    return spaces.MultiDiscrete(nvec, dtype=np.dtype(dtype).type, start=start)


def _make_dict(parts: list[tuple[str, Mapping[str, Any]]]) -> spaces.Dict:
    # Ordered: a plain dict would be sorted by its keys.
    return spaces.Dict(OrderedDict((key, make_space(part, key)) for key, part in parts))


_MAKERS: Final[dict[Any, Callable[..., "spaces.Space[Any]"]]] = {
    "Box": _make_box,
    "Discrete": _make_discrete,
    "MultiDiscrete": _make_multi_discrete,
    "MultiBinary": spaces.MultiBinary,
    "Dict": _make_dict,
}


def _dtype(space: "spaces.Space[Any]") -> str:
    return np.dtype(space.dtype).name


def _bound(values: NDArray[Any]) -> Any:
    """One number where all are equal, so that the bounds of images do not fill the file."""
    first = values.flat[0] if values.size else 0.0
    return first if np.all(values == first) else values
