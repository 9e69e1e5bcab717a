"""The controls pass on this build and name the fault on a broken one."""

import json
import subprocess
import sys
from typing import Any

import pytest

from quantail.experiment.agent import build_agent
from quantail.experiment.config import AgentConfig
from quantail.experiment.controls import first_row_spread, leaks
from quantail.experiment.practice import _Hooks
from quantail.market.features import returns
from quantail.nets.cores import LstmConfig, lstm
from quantail.sb3.hooks import train
from quantail.sb3.problem_vec_env import ProblemVecEnv
from quantail.sim.problems import TMaze
from tests.catalogue import ROOT
from tests.experiment import faults


def spread_of_a_short_training() -> float:
    env = ProblemVecEnv(TMaze(length=2).build(8, 0))
    config = AgentConfig(core=LstmConfig(hidden_size=8), n_steps=32, batch_size=64)
    agent = build_agent(config, env, 0)
    hooks = _Hooks(256, lambda _scale: None, lambda _share: None)
    train(agent, env, 256, hooks)
    assert hooks.rollout is not None
    return first_row_spread(hooks.rollout)


def test_first_answers_depend_on_nothing_before() -> None:
    assert spread_of_a_short_training() < 1e-6


def test_a_memory_that_is_never_reset_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lstm, "keep_mask", lstm.keep_mask)  # put back after the test
    faults.never_reset_the_memory()
    assert spread_of_a_short_training() > 1e-4


def test_the_leak_control_passes() -> None:
    finding = leaks(lambda _share: None)
    assert finding.passed
    assert not finding.fault


def test_a_built_in_feature_that_knows_the_future_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(returns, "_log_returns", returns._log_returns)
    faults.leak_the_next_return()
    finding = leaks(lambda _share: None)
    assert not finding.passed
    assert "A built-in feature knows the future" in finding.fault
    assert "log_return_1" in finding.fault


def doctor(*arguments: str) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.verify
def test_this_build_is_healthy() -> None:
    code, said = doctor(
        "-c",
        "import sys; from quantail.cli import main; sys.argv[1:] = ['doctor', '--json']; main()",
    )
    assert code == 0, said
    assert said["healthy"]
    assert len(said["controls"]) == 6
    assert said["seconds"] < 360


@pytest.mark.verify
@pytest.mark.parametrize("name", list(faults.FAULTS))
def test_a_broken_build_is_told_by_its_control(name: str) -> None:
    _, control = faults.FAULTS[name]
    code, said = doctor("-m", "tests.experiment.faults", name, control)
    assert code == 1
    assert [row["control"] for row in said["controls"] if not row["passed"]] == [control]
    assert said["controls"][0]["fault"]
