"""YAML text to plain values, each with the place it came from; and plain values to YAML text.

The dialect is the 1.2 core schema: ``1e-3`` is a number, ``yes`` and ``on`` are words. Anchors
work; merge keys (``<<``), tags and duplicate keys are refused.
"""

import re
from pathlib import Path
from typing import Any, Final, TypeAlias

import yaml

from quantail.errors import ConfigProblem

KeyPath: TypeAlias = tuple[str | int, ...]

_MAX_VALUES: Final = 100_000  # nested aliases can unfold a few lines into billions of values

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


class Given:
    """The values given from outside, where each came from, and what is wrong with their form."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}
        self.sources: dict[KeyPath, str] = {}
        self.problems: list[ConfigProblem] = []
        self._visited = 0

    def read_file(self, path: Path) -> None:
        """Take the values of a YAML file."""
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
        """Take the values of YAML text; ``name`` stands for the file in messages."""
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
        """Lay one assignment ``path.to.key=value`` over the values."""
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
            self._refuse("", f"is not valid YAML: {what}", _place(name, mark))
            return None

    def _plain(self, node: yaml.Node, path: KeyPath, name: str) -> Any:
        """Turn a YAML node into dicts, lists and scalars, noting the line of each."""
        source = _place(name, node.start_mark)
        self.sources.setdefault(path, source)
        self._visited += 1
        if self._visited > _MAX_VALUES or len(path) > 64:
            if self._visited <= _MAX_VALUES + 1 or len(path) == 65:
                self._refuse(dotted(path), "nests or repeats too much; write it out", source)
            return None
        if node.tag not in _TAGS:
            self._refuse(dotted(path), f"has the tag {node.tag!r}; write plain values", source)
            return None
        if isinstance(node, yaml.MappingNode):
            return self._plain_mapping(node, path, name)
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(item, (*path, i), name) for i, item in enumerate(node.value)]
        try:
            value = _Loader("").construct_object(node)
        except (yaml.YAMLError, ValueError, KeyError):
            what = {"int": "a whole number", "bool": "true or false"}.get(node.tag[18:], "a number")
            self._refuse(dotted(path), f"cannot be read as {what}; was {node.value!r}", source)
            return None
        if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
            self._refuse(dotted(path), f"must be text that UTF-8 can hold; was {value!r}", source)
        return value

    def _plain_mapping(self, node: yaml.MappingNode, path: KeyPath, name: str) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value
            source = _place(name, key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode) or not key_node.tag.endswith(":str"):
                self._refuse(dotted(path), f"has a key that is not a word: {key!r}", source)
            elif key == "<<":
                self._refuse(dotted(path), "uses a merge key (<<); write the keys out", source)
            elif key in result:
                self._refuse(dotted((*path, key)), "is given twice; keep one", source)
            else:
                self.sources[*path, key] = source
                result[key] = self._plain(value_node, (*path, key), name)
        return result

    def _refuse(self, path: str, message: str, source: str) -> None:
        self.problems.append(ConfigProblem(path, message, source))


def _place(name: str, mark: Any) -> str:
    """File and line; an override is its own place."""
    return name if mark is None or name.startswith("--set") else f"{name}:{mark.line + 1}"


def to_yaml(plain: object) -> str:
    """Return plain values as YAML text that reads back as the same values."""
    text: str = yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def dotted(path: KeyPath) -> str:
    """Write a key path as the user does: ``data.features[2].window``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
