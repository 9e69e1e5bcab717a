"""A starter configuration: every key with its default, each with the sentence that explains it."""

import ast
import dataclasses
import inspect
import itertools
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from quantail.config_file import write_config
from quantail.experiment.config import RunConfig

_WIDTH: Final = 96
_HEADER: Final = (
    "A run of Quantail: `quantail train THIS_FILE`. Every key is listed with its value; a key that "
    "is left out keeps its default, an unknown one is refused. Single keys can be overridden on "
    "the command line: --set budget.steps=1000000"
)


def starter_text(config: RunConfig) -> str:
    """Return a configuration as commented YAML; reading it gives an equal one."""
    lines = [*_comment(_HEADER, ""), ""]
    lines += _lines(config, "")
    return "\n".join(lines) + "\n"


def _lines(part: Any, indent: str) -> Iterator[str]:
    """Yield the lines of one configuration, depth first."""
    sentences = field_sentences(type(part))
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        yield from _comment(sentences.get(field.name, ""), indent)
        if dataclasses.is_dataclass(value):
            yield f"{indent}{field.name}:"
            yield from _lines(value, indent + "  ")
        else:
            yield from (f"{indent}{line}" for line in _plain_lines(part, field.name))


def _plain_lines(part: Any, name: str) -> list[str]:
    """Return the YAML of one field that is no configuration itself."""
    text = write_config(part).splitlines()
    start = next(number for number, line in enumerate(text) if line.startswith(f"{name}:"))
    stop = start + 1
    while stop < len(text) and text[stop].startswith((" ", "-")):
        stop += 1
    return text[start:stop]


def _comment(sentence: str, indent: str) -> list[str]:
    words = " ".join(sentence.split())
    return textwrap.wrap(
        words, _WIDTH - len(indent), initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# "
    )


def field_sentences(part: type) -> Mapping[str, str]:
    """Return what stands as a docstring under each field of a configuration class."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(part)))
    body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
    found = {}
    for field, below in itertools.pairwise(body):
        if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            found[field.target.id] = str(below.value.value)
    return found
