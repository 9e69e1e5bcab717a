"""Writes ``docs/learning.md`` from the scores that ``make verify`` left in ``docs/learning/``."""

import json
import statistics

from tests.catalogue import ROOT
from tests.learning.control import PROBLEMS

FOLDER = ROOT / "docs" / "learning"


def write_scores(name: str, scores: list[float]) -> None:
    """Keep the scores of one problem, one per seed."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps([round(value, 3) for value in scores]) + "\n")


def page() -> str:
    """Return the text of the page."""
    lines = [
        "# What the agent learns",
        "",
        "Mean return of fresh episodes, acting deterministically; seeds 0 to 4. Written by",
        "`make verify`; the settings are in `tests/learning/control.py`.",
        "",
        "| problem | steps | seeds 0 to 4 | mean |",
        "|---|---|---|---|",
    ]
    for name, problem in PROBLEMS.items():
        file = FOLDER / f"{name}.json"
        if file.exists():
            scores = json.loads(file.read_text())
            each = ", ".join(f"{value:g}" for value in scores)
            mean = statistics.mean(scores)
            lines.append(f"| {problem.title} | {problem.steps:,} | {each} | {mean:.4g} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    (ROOT / "docs" / "learning.md").write_text(page(), "utf-8")
