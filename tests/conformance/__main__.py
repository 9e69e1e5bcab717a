"""Runs the tests that Stable-Baselines3 and sb3-contrib ship, with our agent in place of theirs.

    python -m tests.conformance [--original] [arguments of pytest]

The source distributions are fetched once into ``.conformance/``. ``--original`` runs the same tests
with the agents they were written for, which tells what fails on this machine anyway.
"""

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".conformance"
VERSION = "2.9.2"
AGENTS = {"stable_baselines3": "PPO", "sb3_contrib": "RecurrentPPO"}


def fetched(package: str) -> Path:
    """Return the folder with the unpacked source distribution, fetching it when it is missing."""
    folder = CACHE / f"{package}-{VERSION}"
    if not folder.exists():
        requirement = f"{package.replace('_', '-')}=={VERSION}"
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", ":all:"]
        subprocess.run([*command, "--dest", str(CACHE), requirement], check=True)
        with tarfile.open(CACHE / f"{folder.name}.tar.gz") as archive:
            archive.extractall(CACHE, filter="data")
    return folder


def test_files(folder: Path, agent: str) -> list[Path]:
    """Return the test files that import the agent; others may need packages that we do not."""
    word = re.compile(rf"\b{agent}\b")
    return [
        file
        for file in sorted(folder.glob("tests/test_*.py"))
        if word.search(file.read_text("utf-8"))
    ]


def run(package: str, arguments: list[str]) -> int:
    """Run the tests of one package; return pytest's exit code."""
    folder = fetched(package)
    scratch = CACHE / "scratch" / package
    scratch.mkdir(parents=True, exist_ok=True)
    command = [
        *(sys.executable, "-m", "pytest"),
        *("-p", "tests.conformance.plugin", "-p", "no:cacheprovider"),
        *("-c", str(folder / "pyproject.toml"), "--rootdir", str(folder), "-q", "-rfEs"),
        *arguments,
    ]
    if not any("::" in argument for argument in arguments):
        command += map(str, test_files(folder, AGENTS[package]))
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # One thread per process: two stall each other on small operations.
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": path}
    return subprocess.run(command, cwd=scratch, env=environment, check=False).returncode


if __name__ == "__main__":
    codes = [run(package, sys.argv[1:]) for package in AGENTS]
    sys.exit(max(codes))
