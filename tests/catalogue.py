"""The regression catalogue: every known way such a system goes silently wrong, and its tests.

A test names the entries it guards with ``@catalogue("F01", "X08")``. ``docs/catalogue.md`` is
written from those marks by ``make docs``; entries without a test are listed as open.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "catalogue.md"
ENTRIES = dict(
    line.split(" ", 1)
    for line in (Path(__file__).parent / "catalogue_entries.txt").read_text("utf-8").splitlines()
)


def catalogue(*ids: str) -> pytest.MarkDecorator:
    """Mark a test as the guard of catalogue entries; an unknown id is an error at once."""
    unknown = [entry for entry in ids if entry not in ENTRIES]
    if unknown or not ids:
        raise ValueError(
            f"@catalogue names {', '.join(unknown) or 'no entry'}; "
            "known ids are listed in tests/catalogue_entries.txt"
        )
    return pytest.mark.catalogue(*ids)


def guards(tests: Path) -> dict[str, list[str]]:
    """Return catalogue id -> ids of the tests under ``tests`` that guard it."""
    found: dict[str, list[str]] = {}
    for file in sorted(tests.rglob("test_*.py")):
        for name, ids in _marked(ast.parse(file.read_text("utf-8"))):
            for entry in ids:
                test_id = f"{file.relative_to(tests.parent).as_posix()}::{name}"
                found.setdefault(entry, []).append(test_id)
    return found


def _marked(tree: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Yield test name and catalogue ids for every decorated test function, also inside classes."""
    for holder in [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))]:
        prefix = f"{holder.name}::" if isinstance(holder, ast.ClassDef) else ""
        for node in holder.body:
            if isinstance(node, ast.FunctionDef):
                ids = [entry for mark in node.decorator_list for entry in _ids(mark)]
                if ids:
                    yield prefix + node.name, ids


def _ids(decorator: ast.expr) -> list[str]:
    if isinstance(decorator, ast.Call) and getattr(decorator.func, "id", None) == "catalogue":
        return [arg.value for arg in decorator.args if isinstance(arg, ast.Constant)]
    return []


def page(found: dict[str, list[str]]) -> str:
    """Return the text of ``docs/catalogue.md``."""
    covered = sum(entry in found for entry in ENTRIES)
    rows = []
    for entry, sentence in ENTRIES.items():
        tests = "<br>".join(f"`{test}`" for test in found.get(entry, []))
        rows.append(f"| {entry} | {sentence} | {tests or 'open'} |")
    return "\n".join(
        [
            "# The regression catalogue",
            "",
            "Known ways in which such a system goes silently wrong, and the tests that guard them.",
            "Written by `make docs` from the `@catalogue` marks in `tests/`; do not edit by hand.",
            "",
            f"Covered: {covered} of {len(ENTRIES)}. The others are open.",
            "",
            "| id | what must hold | tests |",
            "|---|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page(guards(ROOT / "tests")), "utf-8")
