"""The command line of RL Zoo trains, plays and goes on training our agent; run by ``make verify``.

The package is fetched once, into the folder of ``make conformance``; of its requirements only those
that training imports, because the rest would bring their own torch.
"""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.catalogue import ROOT
from tests.conformance.__main__ import CACHE

VERSION = "2.9.2"
ALONE = [f"rl_zoo3=={VERSION}", "huggingface-sb3==3.0"]
WITH_REQUIREMENTS = ["huggingface_hub==2.4.0", "optuna==5.0.0", "wasabi==1.1.3"]
# The Zoo's own settings for PPO, with half its steps.
SETTINGS = """
CartPole-v1:
  n_envs: 8
  n_timesteps: 50000
  policy: MlpPolicy
  n_steps: 32
  batch_size: 256
  gae_lambda: 0.8
  gamma: 0.98
  n_epochs: 20
  ent_coef: 0.0
  learning_rate: lin_0.001
  clip_range: lin_0.2
"""
COMMON = ["--algo", "distributional_ppo", "--env", "CartPole-v1", "--device", "cpu"]


def packages() -> Path:
    """Return the folder with the package, fetching it when it is missing."""
    folder = CACHE / f"rl_zoo3-{VERSION}"
    if not folder.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", f"{folder}.part"]
        subprocess.run([*pip, *WITH_REQUIREMENTS], check=True)
        subprocess.run([*pip, "--no-deps", *ALONE], check=True)
        Path(f"{folder}.part").rename(folder)
    return folder


def recipe() -> str:
    """Return the lines that the documentation gives, with the fetched packages at hand."""
    text = (ROOT / "docs" / "sb3.md").read_text("utf-8").partition("## RL Zoo")[2]
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert found is not None
    # Last on the path: where a package is there twice, ours is meant.
    return f"import sys\nsys.path.append({str(packages())!r})\n{found[1]}"


def run(folder: Path, script: str, *arguments: str) -> str:
    (folder / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "script.py", *COMMON, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.verify
def test_zoo_trains_plays_and_goes_on_with_its_own_schedules(tmp_path: Path) -> None:
    (tmp_path / "cartpole.yml").write_text(SETTINGS)
    train = recipe()
    settings = ["--conf-file", "cartpole.yml", "--seed", "0"]
    evaluation = ["--eval-freq", "5000", "--eval-episodes", "10", "--save-freq", "20000"]
    run(tmp_path, train, *settings, *evaluation)
    logs = tmp_path / "logs" / "distributional_ppo" / "CartPole-v1_1"
    scores = np.load(logs / "evaluations.npz")["results"].mean(1)
    assert scores.max() >= 450.0, scores
    assert len(list(logs.glob("rl_model_*_steps.zip"))) == 2

    play = train.replace("rl_zoo3.train import train", "rl_zoo3.enjoy import enjoy as train")
    told = run(tmp_path, play, "--no-render", "-f", "logs", "-n", "1000", "--load-best")
    returns = [float(value) for value in re.findall(r"Episode Reward: ([\d.]+)", told)]
    # Few episodes of an agent that is the best by luck as well; chance returns about 22.
    assert np.mean(returns) >= 200.0, told

    more = ["-n", "512", "-i", str(logs / "best_model.zip"), *settings]
    assert "Loading pretrained agent" in run(tmp_path, train, *more)
