"""The examples run as they stand, only shorter."""

import subprocess
import sys

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
