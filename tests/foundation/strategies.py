"""Hypothesis strategies for configurations, read off their declarations."""

import dataclasses
import datetime
from collections.abc import Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt, MinLen
from hypothesis import strategies as st

from quantail.config_class import bounds
from quantail.errors import ConfigError

ConfigT = TypeVar("ConfigT")

# Anything YAML can hold: no surrogates, no control characters beyond tab and newline.
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12)


def configs(cls: type[ConfigT]) -> st.SearchStrategy[ConfigT]:
    """Return a strategy for valid configurations of class ``cls``; every field varies."""
    hints = get_type_hints(cls, include_extras=True)
    names = [field.name for field in dataclasses.fields(cls)]  # type: ignore[arg-type]
    values = st.fixed_dictionaries({name: of_type(hints[name]) for name in names})
    return values.map(lambda given: _built(cls, given)).filter(lambda built: built is not None)


def _built(cls: type[ConfigT], given: dict[str, Any]) -> ConfigT | None:
    """Build, or None where the fields contradict each other."""
    try:
        return cls(**given)
    except ConfigError:
        return None


def of_type(hint: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for values of an annotation."""
    rules = list(bounds(hint))
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return of_type(arguments[0]) if _is_union(arguments[0]) else _bounded(arguments[0], rules)
    if origin is Literal:
        return st.sampled_from(arguments)
    if _is_union(hint):
        return st.one_of([of_type(argument) for argument in arguments])
    if hint is NoneType:
        return st.none()
    if dataclasses.is_dataclass(hint):
        return configs(hint)  # type: ignore[arg-type]
    return _bounded(hint, rules)


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType)


def _bounded(hint: Any, rules: list[object]) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is bool:
        return st.booleans()
    if hint is int:
        return st.integers(**_integer_limits(rules))
    if hint is float:
        return st.floats(allow_nan=False, allow_infinity=False, **_float_limits(rules))
    if hint is str:
        shortest = max((r.min_length for r in rules if isinstance(r, MinLen)), default=0)
        return TEXT.filter(lambda text: len(text) >= shortest)
    if hint is Path:
        return st.sampled_from([Path("runs"), Path("data/bars.csv"), Path("true"), Path("1e3")])
    if hint is datetime.date:
        return st.dates()
    if hint is datetime.datetime:
        return st.datetimes(timezones=st.just(datetime.UTC))
    if origin is tuple and arguments[-1] is Ellipsis:
        shortest = max((r.min_length for r in rules if isinstance(r, MinLen)), default=0)
        return st.lists(of_type(arguments[0]), min_size=shortest, max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(of_type, arguments))
    if origin in (dict, Mapping):
        return st.dictionaries(of_type(arguments[0]), of_type(arguments[1]), max_size=3)
    raise TypeError(f"no strategy for {hint!r}; add one to tests/foundation/strategies.py")


def _integer_limits(rules: list[object]) -> dict[str, int]:
    low = [r.ge for r in rules if isinstance(r, Ge)] + [
        r.gt + 1 for r in rules if isinstance(r, Gt)
    ]
    high = [r.le for r in rules if isinstance(r, Le)] + [
        r.lt - 1 for r in rules if isinstance(r, Lt)
    ]
    return {"min_value": max(low, default=-(2**53)), "max_value": min(high, default=2**53)}


def _float_limits(rules: list[object]) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for rule in rules:
        match rule:
            case Ge(ge=low):
                limits["min_value"] = low
            case Gt(gt=low):
                limits |= {"min_value": low, "exclude_min": True}
            case Le(le=high):
                limits["max_value"] = high
            case Lt(lt=high):
                limits |= {"max_value": high, "exclude_max": True}
    return limits
