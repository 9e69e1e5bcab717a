"""Finds metric tags that are written outside the schema."""

import ast
import re
from pathlib import Path

GROUPS = "train|rollout|risk|health|market|population|warn|error|info|debug|diag|time|eval|lstm|vgs"
TAG = re.compile(rf"(?:{GROUPS})/[a-z0-9_/]+")
SCHEMA = Path("diagnostics") / "schema.py"


def stray_metric_names(package: Path) -> list[str]:
    """Return ``file:line: sentence`` for each string that reads like a metric tag."""
    found = []
    for file in sorted(package.rglob("*.py")):
        place = file.relative_to(package)
        if place == SCHEMA:
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            is_tag = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if is_tag and TAG.fullmatch(node.value):
                found.append(
                    f"{place}:{node.lineno}: metric {node.value!r} is not declared; "
                    "declare it in diagnostics/schema.py and record the declared field"
                )
    return found
