"""Finds metric tags that are written outside the schema."""

import ast
import re
from pathlib import Path

GROUPS = (
    "train|rollout|risk|cost|health|market|population|warn|error|info|debug|diag|time|eval|lstm|vgs"
)
TAG = re.compile(rf"(?:{GROUPS})/[a-z0-9_/]+")
SCHEMAS = tuple(
    Path("diagnostics") / name for name in ("schema.py", "control_schema.py", "risk_schema.py")
)


def stray_metric_names(package: Path) -> list[str]:
    """Return ``file:line: sentence`` for each string that reads like a metric tag."""
    found = []
    for file in sorted(package.rglob("*.py")):
        place = file.relative_to(package)
        if place in SCHEMAS:
            continue
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            name = _literal(node) or _recorded(node)
            if name is not None:
                found.append(
                    f"{place}:{node.lineno}: metric {name} is not declared; "  # type: ignore[attr-defined]
                    "declare it in diagnostics/schema.py and record the declared field"
                )
    return found


def _literal(node: ast.AST) -> str | None:
    """A string that reads like a tag of a known group."""
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return repr(node.value) if is_text and TAG.fullmatch(node.value) else None


def _recorded(node: ast.AST) -> str | None:
    """Any text, also a formatted one, given to a logger's ``record`` as a name."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
        return None
    name = node.args[0]
    is_text = isinstance(name, ast.JoinedStr) or (
        isinstance(name, ast.Constant) and isinstance(name.value, str)
    )
    return ast.unparse(name) if node.func.attr == "record" and is_text else None
