"""The border: YAML plus overrides in, a typed configuration out, and back.

``read_config`` is the only way from text to a configuration. It refuses unknown keys (naming the
nearest right one), wrong types and values out of range, all at once, each with its full path, what
is allowed, what was given and where it was given. ``write_config`` writes the resolved
configuration; reading it again gives an equal object.

The YAML dialect is the 1.2 core schema: ``1e-3`` is a number, ``yes`` and ``on`` are words. Anchors
work, merge keys (``<<``) and duplicate keys are refused.
"""

import dataclasses
import difflib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, get_args
from typing import get_type_hints as _hints

import yaml
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from quantail.errors import ConfigError, ConfigProblem

ConfigT = TypeVar("ConfigT")
KeyPath: TypeAlias = tuple[str | int, ...]

_MAX_VALUES: Final = 100_000  # nested aliases can unfold a few lines into billions of values


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
    given = _Given()
    if source is not None:
        given.read_file(Path(source))
    for override in overrides:
        given.apply_override(override)
    if given.problems:
        raise ConfigError(given.problems)
    return _validated(kind, given)


def parse_config(kind: type[ConfigT], text: str, name: str = "text") -> ConfigT:
    """Read a configuration from YAML text; ``name`` stands for the file in messages."""
    given = _Given()
    given.read_text(text, name)
    if given.problems:
        raise ConfigError(given.problems)
    return _validated(kind, given)


def write_config(config: object) -> str:
    """Return ``config`` as YAML with every key and its value, defaults included."""
    plain = TypeAdapter(type(config)).dump_python(config, mode="json")
    return yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True)


# --- YAML 1.2 ------------------------------------------------------------------------------------

_SCALARS: Final = (
    ("tag:yaml.org,2002:null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("tag:yaml.org,2002:bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("tag:yaml.org,2002:int", r"^[-+]?[0-9]+$", list("-+0123456789")),
    (
        "tag:yaml.org,2002:float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        list("-+0123456789."),
    ),
)
_TAGS: Final = frozenset(
    [tag for tag, _, _ in _SCALARS]
    + [f"tag:yaml.org,2002:{name}" for name in ("str", "map", "seq")]
)


class _Loader(yaml.SafeLoader):
    """Safe loader with the scalars of YAML 1.2."""

    def construct_int(self, node: yaml.ScalarNode) -> int:
        """Decimal only: YAML 1.1 would read a leading zero as octal."""
        return int(self.construct_scalar(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_int)


class _Dumper(yaml.SafeDumper):
    """Quotes exactly those strings that the loader would read as something else."""

    def ignore_aliases(self, data: object) -> bool:
        return True


_Loader.yaml_implicit_resolvers = {}
_Dumper.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in _SCALARS:
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), _first)
    _Dumper.add_implicit_resolver(_tag, re.compile(_pattern), _first)


class _Given:
    """The values given from outside, where each came from, and what is wrong with their form."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self.sources: dict[KeyPath, str] = {}
        self.problems: list[ConfigProblem] = []
        self._visited = 0

    def read_file(self, path: Path) -> None:
        try:
            text = path.read_bytes().decode("utf-8")
        except UnicodeDecodeError as error:
            where = f"byte {error.start} is 0x{error.object[error.start]:02x}"
            self._refuse("", f"must be UTF-8 text; {where}. Save the file as UTF-8", str(path))
        except OSError as error:
            self._refuse("", f"cannot be read: {error.strerror}", str(path))
        else:
            self.read_text(text, str(path))

    def read_text(self, text: str, name: str) -> None:
        node = self._compose(text, name)
        if self.problems:
            return
        if node is None:
            self._refuse("", "is empty; write at least one key", name)
        elif not isinstance(node, yaml.MappingNode):
            self._refuse("", "must hold keys and values at the top level", name)
        else:
            self.data = self._plain(node, (), name)

    def apply_override(self, override: str) -> None:
        name = f"--set {override}"
        path_text, equals, value_text = override.partition("=")
        keys = path_text.strip().split(".")
        if not equals or not all(keys):
            self._refuse("", "an override must read path.to.key=value", name)
            return
        node = self._compose(value_text, name)
        if self.problems:
            return
        parent = self.data
        for depth, key in enumerate(keys[:-1]):
            child = parent.setdefault(key, {})
            if not isinstance(child, dict):
                what = (
                    "a list, which is replaced as a whole" if isinstance(child, list) else "a value"
                )
                self._refuse(".".join(keys[: depth + 1]), f"has no keys: it is {what}", name)
                return
            parent = child
        path = tuple(keys)
        self.sources = {
            known: where for known, where in self.sources.items() if known[: len(path)] != path
        }
        self.sources[path] = name
        parent[keys[-1]] = None if node is None else self._plain(node, path, name)

    def _compose(self, text: str, name: str) -> yaml.Node | None:
        try:
            node: yaml.Node | None = yaml.compose(text, Loader=_Loader)
            return node
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
            where = f"{name}:{mark.line + 1}" if mark and not name.startswith("--set") else name
            self._refuse("", f"is not valid YAML: {what}", where)
            return None

    def _plain(self, node: yaml.Node, path: KeyPath, name: str) -> Any:
        """Turn a YAML node into dicts, lists and scalars, noting the line of each."""
        is_line = not name.startswith("--set")
        source = f"{name}:{node.start_mark.line + 1}" if is_line else name
        self.sources.setdefault(path, source)
        self._visited += 1
        if self._visited > _MAX_VALUES or len(path) > 64:
            if self._visited <= _MAX_VALUES + 1 or len(path) == 65:
                self._refuse(_dotted(path), "nests or repeats too much; write it out", source)
            return None
        if node.tag not in _TAGS:
            self._refuse(_dotted(path), f"has the tag {node.tag!r}; write plain values", source)
            return None
        if isinstance(node, yaml.MappingNode):
            return self._plain_mapping(node, path, name)
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(item, (*path, i), name) for i, item in enumerate(node.value)]
        try:
            return _Loader("").construct_object(node)
        except (yaml.YAMLError, ValueError, KeyError):
            what = {"int": "a whole number", "bool": "true or false"}.get(node.tag[18:], "a number")
            self._refuse(_dotted(path), f"cannot be read as {what}; was {node.value!r}", source)
            return None

    def _plain_mapping(self, node: yaml.MappingNode, path: KeyPath, name: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            source = f"{name}:{key_node.start_mark.line + 1}"
            if not isinstance(key_node, yaml.ScalarNode) or not key_node.tag.endswith(":str"):
                self._refuse(_dotted(path), f"has a key that is not a word: {key!r}", source)
            elif key == "<<":
                self._refuse(_dotted(path), "uses a merge key (<<); write the keys out", source)
            elif key in result:
                self._refuse(_dotted((*path, key)), "is given twice; keep one", source)
            else:
                self.sources[*path, key] = source
                result[key] = self._plain(value_node, (*path, key), name)
        return result

    def _refuse(self, path: str, message: str, source: str) -> None:
        self.problems.append(ConfigProblem(path, message, source))


# --- from plain values to a typed configuration ---------------------------------------------------


def _validated(kind: type[ConfigT], given: _Given) -> ConfigT:
    merged = _over_defaults(kind, given.data)
    try:
        # JSON strict mode: lists may be tuples and text may be a date, but '3' is no integer and
        # true is no number.
        return TypeAdapter(kind).validate_json(json.dumps(merged), strict=True)
    except ValidationError as error:
        found = [e for e in error.errors() if not _is_echo(e)]
        problems = [_problem(kind, merged, given.sources, e) for e in found]
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


def _problem(
    kind: type, data: Mapping[str, Any], sources: Mapping[KeyPath, str], error: ErrorDetails
) -> ConfigProblem:
    """Translate one finding of pydantic into a problem under the path that the user wrote."""
    path, owner = _user_path(kind, data, error["loc"])
    found = error["type"]
    if found.startswith("union_tag"):
        path = (*path, "kind")
    if found == "unexpected_keyword_argument":
        return ConfigProblem(_dotted(path), _unknown(path, owner), _source(path, sources))
    if found in ("value_error", "assertion_error"):
        cause = error.get("ctx", {}).get("error")
        if isinstance(cause, ConfigError) and len(cause.problems) == 1:
            inner = cause.problems[0]
            path = (*path, *inner.path.split(".")) if inner.path else path
            return ConfigProblem(_dotted(path), inner.message, _source(path, sources))
        return ConfigProblem(_dotted(path), str(cause), _source(path, sources))
    rule = _WORDS.get(found)
    limits = {
        name: f"{limit:g}" if isinstance(limit, float) else limit
        for name, limit in error.get("ctx", {}).items()
    }
    sentence = rule.format(**limits) if rule else error["msg"]
    if found not in ("missing", "union_tag_not_found"):
        given = error["input"] if found != "union_tag_invalid" else error["input"].get("kind")
        sentence += f"; was {given!r}"
    return ConfigProblem(_dotted(path), sentence, _source(path, sources))


def _user_path(kind: Any, data: Any, location: Sequence[str | int]) -> tuple[KeyPath, Any]:
    """Drop the union tags that pydantic puts into a location; also return the class at its end."""
    path: list[str | int] = []
    owner: Any = kind
    value: Any = data
    hint: Any = kind
    for step in location:
        members = [m for m in (hint, *get_args(hint)) if dataclasses.is_dataclass(m)]
        tagged = [m for m in members if step in _kinds(m)]
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
        return f"is not a known key; did you mean {_dotted((*path[:-1], near[0]))!r}?"
    return f"is not a known key; allowed here: {', '.join(sorted(known))}"


def _source(path: KeyPath, sources: Mapping[KeyPath, str]) -> str:
    """Where the value at ``path``, or the nearest enclosing one, was given."""
    for length in range(len(path), 0, -1):
        if path[:length] in sources:
            return sources[path[:length]]
    return sources.get((), "default")


def _dotted(path: KeyPath) -> str:
    """Write a key path as the user does: ``data.features[2].window``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
