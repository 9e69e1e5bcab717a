"""Values to JSON and tensors, and back.

Numbers, text, lists and dicts with text keys are written as themselves. Everything else is an
object with the key ``$`` that says what it is::

    {"$": "tuple", "items": [64, 64]}
    {"$": "class", "module": "torch.nn.modules.activation", "name": "Tanh"}
    {"$": "tensor", "name": "optimizer.state.0.exp_avg"}

Nothing is guessed: a value of an unknown kind is refused when it is saved, an unknown ``$`` when it
is loaded.
"""

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from quantail.checkpoint.archive import CheckpointError, Json
from quantail.checkpoint.classes import Vocabulary
from quantail.checkpoint.spaces import describe_space, make_space
from quantail.errors import ConfigError

_TAG: Final = "$"


class Packer:
    """Turns values into JSON; ``tensors`` collects the tensors and arrays among them."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._vocabulary = vocabulary

    def pack(self, value: Any, place: str) -> Json:
        """Return ``value`` as JSON; ``place`` names it in messages and among the tensors."""
        kind = type(value)
        if value is None or kind in (bool, int, str):
            plain: Json = value
            return plain
        if isinstance(value, np.bool_ | np.integer):
            return bool(value) if isinstance(value, np.bool_) else int(value)
        if kind is float or isinstance(value, np.floating):
            number = float(value)
            return number if math.isfinite(number) else {_TAG: "float", "value": str(number)}
        if kind in (list, tuple):
            items: Json = [self.pack(item, f"{place}.{i}") for i, item in enumerate(value)]
            return items if kind is list else {_TAG: "tuple", "items": items}
        if kind in (dict, OrderedDict):
            return self._mapping(value, place)
        return self._object(value, place)

    def _mapping(self, value: Mapping[Any, Any], place: str) -> Json:
        if all(type(key) is str for key in value) and _TAG not in value:
            return {key: self.pack(item, f"{place}.{key}") for key, item in value.items()}
        pairs: Json = [
            [self.pack(key, place), self.pack(item, f"{place}.{key}")]
            for key, item in value.items()
        ]
        return {_TAG: "dict", "items": pairs}

    def _object(self, value: Any, place: str) -> Json:
        if isinstance(value, Tensor):
            return {_TAG: "tensor", "name": self._store(value, place)}
        if isinstance(value, np.ndarray):
            if value.dtype.kind not in "biuf":
                raise CheckpointError(f"{place} is an array of {value.dtype}, not of numbers")
            array = torch.from_numpy(np.ascontiguousarray(value)).reshape(value.shape)
            return {_TAG: "array", "name": self._store(array, place)}
        if isinstance(value, type) and self._vocabulary.may_name(value):
            return {_TAG: "class", **_name(value)}
        if isinstance(value, spaces.Space):
            return {_TAG: "space", "space": self.pack(describe_space(value, place), place)}
        fields = self._vocabulary.fields(type(value))
        if fields is not None:
            parts = {name: self.pack(getattr(value, name), f"{place}.{name}") for name in fields}
            return {_TAG: "object", **_name(type(value)), "fields": parts}
        what = getattr(value, "__qualname__", None) or f"a {type(value).__qualname__}"
        raise CheckpointError(
            f"{place} cannot be saved: it is {what}, and only numbers, text, tensors, spaces, "
            "configurations, schedules and classes of networks and optimizers can, and lists and "
            "dicts of them. Leave it out with exclude= and give it again when you load"
        )

    def _store(self, tensor: Tensor, place: str) -> str:
        name = place
        while name in self.tensors:
            name += "'"
        self.tensors[name] = tensor
        return name


class Unpacker:
    """Turns JSON into values again, with the tensors that belong to it."""

    def __init__(self, vocabulary: Vocabulary, tensors: Mapping[str, Tensor]) -> None:
        self._vocabulary = vocabulary
        self._tensors = tensors

    def unpack(self, node: Json, place: str) -> Any:
        """Return the value that was packed as ``node``; ``place`` names it in messages."""
        if isinstance(node, list):
            return [self.unpack(item, f"{place}.{i}") for i, item in enumerate(node)]
        if not isinstance(node, dict):
            return node
        if _TAG not in node:
            return {key: self.unpack(item, f"{place}.{key}") for key, item in node.items()}
        match node:
            case {"$": "float", "value": "nan" | "inf" | "-inf" as text, **rest} if not rest:
                return float(text)
            case {"$": "tuple", "items": list(items), **rest} if not rest:
                return tuple(self.unpack(items, place))
            case {"$": "dict", "items": list(pairs), **rest} if not rest:
                return self._dict(pairs, place)
            case {"$": "tensor", "name": str(name), **rest} if not rest:
                return self._tensor(name, place)
            case {"$": "array", "name": str(name), **rest} if not rest:
                return self._tensor(name, place).numpy()
            case {"$": "class", "module": str(module), "name": str(name), **rest} if not rest:
                return self._class(module, name, place)
            case {"$": "space", "space": dict(space), **rest} if not rest:
                return make_space(self.unpack(space, place), place)
            case {"$": "object", "module": str(module), "name": str(name), "fields": dict(fields)}:
                return self._object(module, name, fields, place)
        raise CheckpointError(f"{place} is of an unknown kind, {str(node)[:100]}")

    def _dict(self, pairs: list[Json], place: str) -> dict[Any, Any]:
        result = {}
        for pair in pairs:
            if not isinstance(pair, list) or len(pair) != 2 or isinstance(pair[0], dict | list):
                raise CheckpointError(f"{place} must list pairs of key and value; had {pair!r}")
            result[pair[0]] = self.unpack(pair[1], f"{place}.{pair[0]}")
        return result

    def _tensor(self, name: str, place: str) -> Tensor:
        if name not in self._tensors:
            raise CheckpointError(f"{place} needs the tensor {name!r}, which is missing")
        return self._tensors[name]

    def _class(self, module: str, name: str, place: str) -> type:
        found = self._vocabulary.find(module, name, place)
        if not self._vocabulary.may_name(found):
            raise CheckpointError(
                f"{place} names {module}.{name}, which is neither a network nor an optimizer"
            )
        return found

    def _object(self, module: str, name: str, fields: dict[str, Json], place: str) -> Any:
        kind = self._vocabulary.find(module, name, place)
        expected = self._vocabulary.fields(kind)
        if expected is None:
            raise CheckpointError(
                f"{place} asks for an object of {module}.{name}, which files cannot build"
            )
        if set(fields) != set(expected):
            raise CheckpointError(
                f"{place}: {name} has the fields {', '.join(expected)}; the file gives "
                f"{', '.join(fields)}. It was saved by another version"
            )
        parts = {field: self.unpack(part, f"{place}.{field}") for field, part in fields.items()}
        try:
            return kind(**parts)
        except ConfigError as error:
            raise CheckpointError(f"{place}: {error}") from error


def check_references(node: Json, tensors: Mapping[str, Tensor], member: str) -> None:
    """Refuse tensors that ``node`` names and that are missing, and those that it does not name."""
    named = set(_references(node))
    problems = [f"missing {name}" for name in sorted(named - set(tensors))]
    problems += [f"unknown {name}" for name in sorted(set(tensors) - named)]
    if problems:
        raise CheckpointError(f"{member}: the tensors are not those expected: {_some(problems)}")


def check_tensors(
    expected: Mapping[str, Tensor], given: Mapping[str, Any], owner: str, *, exact: bool = True
) -> None:
    """Refuse tensors that do not fit: unknown, of another shape or dtype, or, if exact, missing."""
    problems = [f"missing {name}" for name in expected if exact and name not in given]
    for name, tensor in given.items():
        if name not in expected:
            problems.append(f"unknown {name}")
        elif not isinstance(tensor, Tensor):
            problems.append(f"{name} is a {type(tensor).__name__}, not a tensor")
        elif (tensor.shape, tensor.dtype) != (expected[name].shape, expected[name].dtype):
            wanted = f"{_kind(expected[name])} is needed"
            problems.append(f"{name} is {_kind(tensor)} where {wanted}")
    if problems:
        raise CheckpointError(
            f"{owner}: the tensors do not fit: {_some(problems)}. They belong to an agent with "
            "other settings or spaces"
        )


def _references(node: Json) -> Iterator[str]:
    if isinstance(node, list):
        for item in node:
            yield from _references(item)
    elif isinstance(node, dict):
        if node.get(_TAG) in ("tensor", "array"):
            yield str(node.get("name"))
        else:
            yield from _references(list(node.values()))


def _some(problems: list[str], limit: int = 8) -> str:
    more = f" and {len(problems) - limit} more" if len(problems) > limit else ""
    return "; ".join(problems[:limit]) + more


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"


def _name(kind: type) -> dict[str, Json]:
    return {"module": kind.__module__, "name": kind.__qualname__}
