"""The examples run as they stand, only shorter."""

import subprocess
import sys
from pathlib import Path

from tests.catalogue import ROOT


def test_train_cartpole() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "train_cartpole.py", "2048"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "over 10 episodes" in done.stdout
    assert "CVaR 5 %" in done.stdout


def test_sb3_callbacks(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "sb3_callbacks.py", "4096", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "train/learning_rate: 0.0005 at 4,096, 0 at 4,096" in done.stdout
    assert "1 checkpoints" in done.stdout
    # The best agent is the only one that was evaluated.
    assert "best evaluation -" in done.stdout
    assert (tmp_path / "best" / "best_model.zip").is_file()
    assert "loaded agent returns" in done.stdout
