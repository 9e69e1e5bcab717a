"""The walls of the package, and that each of them really stops what it should stop."""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.catalogue import ROOT, catalogue
from tests.foundation.metric_names import stray_metric_names

PACKAGE = ROOT / "src" / "quantail"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of the package and of its contracts, to plant faults in."""
    shutil.copytree(PACKAGE, tmp_path / "src" / "quantail")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def contracts(folder: Path) -> tuple[int, str]:
    command = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [command, "--no-cache"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("package", "line", "sentence"),
    [
        ("market", "import torch", "quantail.market.planted -> torch (l.1)"),
        ("sim", "import stable_baselines3", "quantail.sim.planted -> stable_baselines3 (l.1)"),
        ("losses", "import quantail.market", "quantail.losses.planted -> quantail.market (l.1)"),
        ("nets", "import quantail.sb3", "quantail.nets.planted -> quantail.sb3 (l.1)"),
        ("risk", "import quantail.targets", "quantail.risk.planted -> quantail.targets (l.1)"),
        ("optim", "from pydantic import Field", "quantail.optim.planted -> pydantic (l.1)"),
        ("sb3", "import matplotlib", "quantail.sb3.planted -> matplotlib (l.1)"),
    ],
)
def test_planted_import_breaks_a_contract(
    copied: Path, package: str, line: str, sentence: str
) -> None:
    (copied / "src" / "quantail" / package / "planted.py").write_text(f"{line}\n")
    code, output = contracts(copied)
    assert code == 1
    assert sentence in " ".join(output.split())


def test_metric_names_stand_in_the_schema_only() -> None:
    assert stray_metric_names(PACKAGE) == []


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('NAME = "train/approx_kl"', "'train/approx_kl'"),
        ('logger.record("charts/x", 1.0)', "'charts/x'"),
        ('logger.record(f"train/{name}", 1.0)', "f'train/{name}'"),
    ],
)
def test_planted_metric_name_is_found(copied: Path, line: str, name: str) -> None:
    package = copied / "src" / "quantail"
    (package / "losses" / "planted.py").write_text(f"\n\n{line}\n")
    assert stray_metric_names(package) == [
        f"losses/planted.py:3: metric {name} is not declared; "
        "declare it in diagnostics/schema.py and record the declared field"
    ]


@catalogue("F68")
def test_no_module_and_no_function_is_too_large() -> None:
    large = []
    for file in sorted(PACKAGE.rglob("*.py")):
        text = file.read_text("utf-8")
        if text.count("\n") > 600:
            large.append(f"{file.relative_to(PACKAGE)} has {text.count(chr(10))} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and node.end_lineno is not None:
                # The body: a long list of documented arguments is no harder to hold.
                lines = node.end_lineno - node.body[0].lineno + 1
                if lines > 80:
                    large.append(f"{file.relative_to(PACKAGE)}:{node.name} has {lines} lines")
    assert large == []


@catalogue("X35")
def test_product_contains_no_hooks_for_tests() -> None:
    traces = ("pytest", "PYTEST", "unittest", "hypothesis")
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        names = [n.id for n in ast.walk(tree) if isinstance(n, ast.Name)]
        names += [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
        names += [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        names += [
            n.value
            for n in ast.walk(tree)
            if isinstance(n, ast.Constant) and isinstance(n.value, str) and " " not in n.value
        ]
        found += [f"{file}: {name}" for name in names if any(trace in name for trace in traces)]
    assert found == []


@catalogue("F73")
def test_ci_runs_the_readme_test_command_and_nothing_else() -> None:
    lines = (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        "set -euo pipefail",
        "make test",
    ]
    assert "make test" in (ROOT / "README.md").read_text("utf-8")


def test_import_is_light() -> None:
    code = (
        "import sys, quantail; "
        "heavy = {'ray', 'plotly', 'matplotlib', 'numba', 'torch', 'stable_baselines3', 'pandas'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
