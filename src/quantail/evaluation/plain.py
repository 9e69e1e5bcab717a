"""Frozen dataclasses as JSON values and back, by their annotations.

NaN, which JSON lacks, is written as null where a plain ``float`` is declared.
"""

import dataclasses
import math
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

_T = TypeVar("_T")


def to_plain(value: Any, skip: type | None = None) -> Any:
    """Return ``value`` as dicts, lists, strings and numbers.

    Args:
        value: A dataclass, mapping, tuple or plain value; numbers are finite or NaN.
        skip: Fields that hold a value of this class are left out.
    """
    if dataclasses.is_dataclass(value):
        pairs = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {
            name: to_plain(item, skip)
            for name, item in pairs
            if skip is None or not isinstance(item, skip)
        }
    if isinstance(value, Mapping):
        return {key: to_plain(item, skip) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_plain(item, skip) for item in value]
    if isinstance(value, float):
        return None if math.isnan(value) else float(value)
    return value


def from_plain(kind: type[_T], plain: Any) -> _T:
    """Build a ``kind`` from what :func:`to_plain` returned.

    Raises:
        TypeError: When a value is not of the declared type or a field is unknown.
        ValueError: When a choice is none of those declared.
        KeyError: When a field is missing.
    """
    value: _T = _read(kind, plain, kind.__name__)
    return value


def _read(kind: Any, plain: Any, place: str) -> Any:
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _read_fields(kind, plain, place)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        if plain not in arguments:
            raise ValueError(f"{place} must be one of {arguments}; was {plain!r}")
        return plain
    if origin is UnionType:
        if plain is None:
            return None
        return _read(next(part for part in arguments if part is not NoneType), plain, place)
    if origin is tuple:
        return tuple(_read(arguments[0], item, place) for item in _typed(plain, list, place))
    if origin is not None and issubclass(origin, Mapping):
        items = _typed(plain, dict, place).items()
        return {key: _read(arguments[1], item, f"{place}.{key}") for key, item in items}
    if kind is float:
        return math.nan if plain is None else float(_typed(plain, (int, float), place))
    return _typed(plain, kind, place)


def _read_fields(kind: Any, plain: Any, place: str) -> Any:
    if isinstance(plain, kind):
        return plain
    hints = get_type_hints(kind)
    given = _typed(plain, dict, place)
    unknown = set(given) - set(hints)
    if unknown:
        raise TypeError(f"{place} has an unknown field {min(unknown)}")
    names = [field.name for field in dataclasses.fields(kind)]
    return kind(**{name: _read(hints[name], given[name], f"{place}.{name}") for name in names})


def _typed(value: Any, kind: Any, place: str) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{place} must be of type {kind}; was {value!r}")
    return value
