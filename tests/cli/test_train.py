"""``quantail train`` as a user meets it: real processes, signals and exit codes."""

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from quantail.config_file import read_config
from quantail.evaluation.record_file import load_evaluation
from quantail.experiment.config import RunConfig
from quantail.experiment.folder import METRICS, RunFolder
from quantail.report import write_report
from quantail.sb3.agent import DistributionalPPO
from tests.experiment.small_runs import PROBLEM

COMMAND = str(Path(sys.executable).with_name("quantail"))
SETTINGS = [part for given in PROBLEM for part in ("--set", given)]
LONG = ["--set", "budget.steps=100000000"]


def quantail(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False)


def started(folder: Path, n_lines: int) -> subprocess.Popen[str]:
    """Start a long run and wait until it has written some lines of metrics."""
    run = subprocess.Popen(
        [COMMAND, "train", *SETTINGS, *LONG, "--out", str(folder)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(3000):
        if len(RunFolder(folder).read_lines(METRICS)) >= n_lines:
            return run
        assert run.poll() is None, run.stderr.read() if run.stderr else ""
        time.sleep(0.1)
    run.kill()
    raise AssertionError("the run did not come under way in five minutes")


def test_machines_get_one_json_object(tmp_path: Path) -> None:
    done = quantail("train", *SETTINGS, "--out", str(tmp_path / "run"), "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["run"] == str(tmp_path / "run")
    assert Path(said["report"]).is_file()
    assert said["level"] in ("skill", "no_evidence", "worse")
    assert said["n_trials"] == 3
    assert said["messages"] == []
    assert done.stderr == ""


def test_the_first_ctrl_c_saves_and_ends(tmp_path: Path) -> None:
    run = started(tmp_path / "run", n_lines=3)
    run.send_signal(signal.SIGINT)
    out, error = run.communicate(timeout=300)
    assert run.returncode == 130, error
    assert "Stopping after this step and saving" in error
    assert "Stopped before the test" in out
    folder = RunFolder.open(tmp_path / "run")
    assert folder.read_json("status.json")["state"] == "interrupted"
    (saved,) = (tmp_path / "run").rglob("stopped-*.zip")
    assert DistributionalPPO.load(saved).num_timesteps > 0
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.verify
def test_the_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    run = started(tmp_path / "run", n_lines=3)
    os.kill(run.pid, signal.SIGSTOP)  # so that both are waiting when it goes on
    run.send_signal(signal.SIGINT)
    os.kill(run.pid, signal.SIGCONT)
    time.sleep(0.02)
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=300)
    assert run.returncode == 130


@pytest.mark.verify
@pytest.mark.parametrize("n_lines", [0, 1, 5, 30])
def test_a_killed_run_can_be_reported(tmp_path: Path, n_lines: int) -> None:
    run = started(tmp_path / "run", n_lines)
    while not (tmp_path / "run" / "config.yaml").exists():
        time.sleep(0.01)
    run.kill()
    run.communicate(timeout=300)
    done = quantail("report", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert (
        "The run had not ended when this report was written"
        in (tmp_path / "run" / "report.html").read_text()
        or n_lines == 0
    )
    RunFolder(tmp_path / "run").read_lines(METRICS)
    for file in (tmp_path / "run").rglob("*.zip"):
        DistributionalPPO.load(file)


def is_whole(run: Path) -> None:
    """Read every file of a run that is not a passing one, beside its place."""
    for path in (file for file in run.rglob("*") if file.is_file()):
        if any(part.endswith(".tmp") for part in path.relative_to(run).parts):
            continue
        match path.suffix:
            case ".json":
                json.loads(path.read_text())
            case ".jsonl":
                RunFolder(run).read_lines(str(path.relative_to(run)))
            case ".zip":
                DistributionalPPO.load(path)
            case ".yaml":
                read_config(RunConfig, path)
            case ".parquet":
                load_evaluation(path.parent)  # checks the checksum of every file
            case ".html":
                assert path.read_text().endswith("</html>\n")
            case other:
                raise AssertionError(f"{path}: what is a file of kind {other!r}?")


@pytest.mark.verify
def test_a_kill_at_any_moment_leaves_whole_files(tmp_path: Path) -> None:
    """Ten kills at random moments of a short run, which trains, validates, tests and reports."""
    rng = np.random.default_rng(0)
    states = []
    for number in range(10):
        folder = tmp_path / f"run{number}"
        run = subprocess.Popen(
            [COMMAND, "train", *SETTINGS, "--set", "budget.steps=16384", "--out", str(folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not (folder / "config.yaml").exists():
            assert run.poll() is None
            time.sleep(0.01)
        delay = rng.uniform(0.0, 12.0)
        killed = f"run {number}, killed {delay:.3f} s after its configuration was written"
        logging.getLogger(__name__).warning(killed)  # shown whichever file turns out broken
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(delay)
        run.kill()
        run.wait()
        is_whole(folder)
        assert write_report(folder).stat().st_size > 5_000, killed
        is_whole(folder)
        status = folder / "status.json"
        state = json.loads(status.read_text())["state"] if status.exists() else "none"
        states.append((state, delay))
    assert "running" in [state for state, _ in states], states
