"""The border: YAML plus overrides in, a typed configuration out, and back.

``read_config`` is the only way from text to a configuration. It refuses unknown keys (naming the
nearest right one), wrong types and values out of range, all at once, each with its full path, what
is allowed, what was given and where it was given. ``write_config`` writes the resolved
configuration; reading it again gives an equal object.
"""

import dataclasses
import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, get_args
from typing import get_type_hints as _hints

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from quantail.errors import ConfigError, ConfigProblem
from quantail.yaml_values import Given, KeyPath, dotted, to_yaml

ConfigT = TypeVar("ConfigT")


def read_config(
    kind: type[ConfigT], source: Path | str | None = None, overrides: Iterable[str] = ()
) -> ConfigT:
    """Read a configuration of type ``kind``.

    Args:
        kind: The configuration's class.
        source: Path of a YAML file; None takes the defaults alone.
        overrides: Assignments ``path.to.key=value``, applied in order after the file; a value is
            read as YAML, so ``1e-3`` is a number and ``[1, 2]`` a list.

    Raises:
        ConfigError: With every problem found, never only the first.
    """
    given = Given()
    if source is not None:
        given.read_file(Path(source))
    for override in overrides:
        given.apply_override(override)
    if given.problems:
        raise ConfigError(given.problems)
    return _validated(kind, given)


def parse_config(kind: type[ConfigT], text: str, name: str = "text") -> ConfigT:
    """Read a configuration from YAML text; ``name`` stands for the file in messages."""
    given = Given()
    given.read_text(text, name)
    if given.problems:
        raise ConfigError(given.problems)
    return _validated(kind, given)


def write_config(config: object) -> str:
    """Return ``config`` as YAML with every key and its value, defaults included."""
    plain = TypeAdapter(type(config)).dump_python(config, mode="json")
    return to_yaml(plain)


# --- from plain values to a typed configuration ---------------------------------------------------


def _validated(kind: type[ConfigT], given: Given) -> ConfigT:
    merged = _over_defaults(kind, given.data)
    try:
        # JSON strict mode: lists may be tuples and text may be a date, but '3' is no integer and
        # true is no number.
        return TypeAdapter(kind).validate_json(json.dumps(merged), strict=True)
    except ValidationError as error:
        found = [e for e in error.errors() if not _is_echo(e)]
        problems = [p for e in found for p in _problems(kind, merged, given.sources, e)]
        raise ConfigError(sorted(problems, key=lambda problem: problem.path)) from None


def _over_defaults(base: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    """Lay ``data`` over the defaults of ``base``, a configuration class or a default instance.

    A part given without its ``kind`` keeps the default's kind and the default's other values; a
    part given with another kind starts from that kind's own defaults.
    """
    merged: dict[str, Any] = {}
    is_instance = not isinstance(base, type)
    hints = _hints(base if not is_instance else type(base))
    for field in dataclasses.fields(base):
        default = getattr(base, field.name) if is_instance else _default(field)
        if field.name not in data:
            if default is not dataclasses.MISSING and (is_instance or field.name == "kind"):
                merged[field.name] = _plain_default(default)
            continue
        value = data[field.name]
        if isinstance(value, Mapping):
            start = _start_of(default, hints[field.name], value)
            merged[field.name] = value if start is None else _over_defaults(start, value)
        else:
            merged[field.name] = value
    merged.update((key, value) for key, value in data.items() if key not in merged)
    return merged


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _plain_default(default: Any) -> Any:
    return TypeAdapter(type(default)).dump_python(default, mode="json")


def _start_of(default: Any, hint: Any, value: Mapping[str, Any]) -> Any:
    """What a given mapping starts from: the default instance, its own class, or nothing."""
    if dataclasses.is_dataclass(default):
        own_kind = getattr(default, "kind", None)
        if value.get("kind", own_kind) == own_kind:
            return default
    for member in (hint, *get_args(hint)):
        if dataclasses.is_dataclass(member) and value.get("kind") in (None, *_kinds(member)):
            return member
    return None


def _kinds(member: Any) -> tuple[Any, ...]:
    return get_args(_hints(member).get("kind"))


# --- one sentence for each of pydantic's findings -------------------------------------------------

_WORDS: Final[dict[str, str]] = {
    "missing": "is required",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must hold keys and values",
    "dataclass_type": "must hold keys and values",
    "dataclass_exact_type": "must hold keys and values",
    "model_attributes_type": "must hold keys and values",
    "date_type": "must be a date, as in 2024-12-31",
    "date_parsing": "must be a date, as in 2024-12-31",
    "date_from_datetime_parsing": "must be a date, as in 2024-12-31",
    "date_from_datetime_inexact": "must be a date without time, as in 2024-12-31",
    "datetime_type": "must be a date and time, as in 2024-12-31T16:00:00Z",
    "datetime_parsing": "must be a date and time, as in 2024-12-31T16:00:00Z",
    "datetime_from_date_parsing": "must be a date and time, as in 2024-12-31T16:00:00Z",
    "none_required": "must be null",
    "finite_number": "must be finite",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be greater than {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be less than {lt}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "too_short": "must have at least {min_length} item(s)",
    "string_too_short": "must have at least {min_length} character(s)",
    "too_long": "must have at most {max_length} item(s)",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "union_tag_invalid": "must be one of {expected_tags}",
    "union_tag_not_found": "is required, to tell the kinds apart",
}


def _is_echo(error: ErrorDetails) -> bool:
    """Whether a list is called too short only because pydantic left its refused items out."""
    given = error["input"]
    is_short = error["type"] == "too_short" and isinstance(given, Sequence)
    return is_short and len(given) >= error["ctx"]["min_length"]


def _problems(
    kind: type, data: Mapping[str, Any], sources: Mapping[KeyPath, str], error: ErrorDetails
) -> list[ConfigProblem]:
    """Translate one finding of pydantic into problems under the paths that the user wrote."""
    path, owner = _user_path(kind, data, error["loc"])
    found = error["type"]
    if found.startswith("union_tag"):
        path = (*path, "kind")
    if found == "unexpected_keyword_argument":
        return [ConfigProblem(dotted(path), _unknown(path, owner), _source(path, sources))]
    if found in ("value_error", "assertion_error"):
        cause = error.get("ctx", {}).get("error")
        if not isinstance(cause, ConfigError):
            return [ConfigProblem(dotted(path), str(cause), _source(path, sources))]
        inner = [(_below(path, problem.path), problem.message) for problem in cause.problems]
        return [ConfigProblem(dotted(at), text, _source(at, sources)) for at, text in inner]
    rule = _WORDS.get(found)
    limits = {
        name: f"{limit:g}" if isinstance(limit, float) else limit
        for name, limit in error.get("ctx", {}).items()
    }
    sentence = rule.format(**limits) if rule else error["msg"]
    if found not in ("missing", "union_tag_not_found"):
        given = error["input"] if found != "union_tag_invalid" else error["input"].get("kind")
        sentence += f"; was {given!r}"
    return [ConfigProblem(dotted(path), sentence, _source(path, sources))]


def _below(path: KeyPath, inner: str) -> KeyPath:
    """Return the path of a problem that a part's own check named from where the part stands."""
    return (*path, *inner.split(".")) if inner else path


def _user_path(kind: Any, data: Any, location: Sequence[str | int]) -> tuple[KeyPath, Any]:
    """Drop the union tags that pydantic puts into a location; also return the class at its end."""
    path: list[str | int] = []
    owner: Any = kind
    value: Any = data
    hint: Any = kind
    for step in location:
        members = [m for m in (hint, *get_args(hint)) if dataclasses.is_dataclass(m)]
        # Only a union puts a tag into the location; a field may have the name of its owner's kind.
        tagged = [] if hint in members else [m for m in members if step in _kinds(m)]
        if tagged and isinstance(value, Mapping) and value.get("kind") == step:
            hint = tagged[0]
            continue
        owner = members[0] if members else None
        path.append(step)
        hint = _hint_below(hint, owner, step)
        value = _value_below(value, step)
    return tuple(path), owner


def _hint_below(hint: Any, owner: Any, step: str | int) -> Any:
    if owner is not None:
        return _hints(owner).get(str(step))
    inside = [a for a in get_args(hint) if a is not Ellipsis and a is not type(None)]
    return inside[-1] if inside else None


def _value_below(value: Any, step: str | int) -> Any:
    if isinstance(value, Mapping):
        return value.get(step)
    if isinstance(value, Sequence) and isinstance(step, int) and step < len(value):
        return value[step]
    return None


def _unknown(path: KeyPath, owner: Any) -> str:
    known = [field.name for field in dataclasses.fields(owner)] if owner is not None else []
    near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.6)
    if near:
        return f"is not a known key; did you mean {dotted((*path[:-1], near[0]))!r}?"
    return f"is not a known key; allowed here: {', '.join(sorted(known))}"


def _source(path: KeyPath, sources: Mapping[KeyPath, str]) -> str:
    """Where the value at ``path``, or the nearest enclosing one, was given."""
    for length in range(len(path), 0, -1):
        if path[:length] in sources:
            return sources[path[:length]]
    return sources.get((), "default")
