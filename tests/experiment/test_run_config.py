"""What a run's configuration accepts, refuses, and does."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from quantail.config_file import parse_config, read_config, write_config
from quantail.errors import ConfigError
from quantail.experiment.agent import build_agent
from quantail.experiment.config import AgentConfig, RunConfig
from quantail.experiment.starter import starter_text
from quantail.losses.value_clip import MeanClip
from quantail.nets.cores import GruConfig
from quantail.nets.critics import ScalarCritic
from quantail.optim.entropy_control import EntropyControl
from quantail.optim.kl_control import KlControl
from quantail.optim.schedules import ConstantSchedule
from quantail.risk.config import RiskConfig
from quantail.risk.cost import CostLimit
from quantail.sb3.agent import DistributionalPPO
from quantail.sb3.problem_vec_env import ProblemVecEnv
from quantail.sim.problems import HiddenRegime
from tests.catalogue import ROOT, catalogue

SMALL = AgentConfig(n_steps=16, batch_size=64)


def test_written_configuration_reads_back() -> None:
    config = RunConfig(seed=3)
    assert parse_config(RunConfig, write_config(config)) == config


def test_starter_reads_back_and_explains_its_keys() -> None:
    text = starter_text(RunConfig())
    assert parse_config(RunConfig, text) == RunConfig()
    assert "# Share of training over which trading costs rise" in text
    n_keys = sum(":" in line and not line.strip().startswith("#") for line in text.splitlines())
    assert n_keys > 60


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["agent.batch_size=1000"], r"agent.batch_size: must divide budget.n_envs times"),
        (["budget.steps=1000"], r"budget.steps: must be at least 196608, one rollout"),
        (["selection.keep=9"], r"keep: must be at most selection.validations \(6\)"),
        (["selection.metric=sharpe"], r"selection.metric: must be one of mean_reward"),
        (["selection.metric=sharp"], r"selection.metric: must be 'mean_reward', 'total_return'"),
        (
            ["environment.problem.kind=t_maze", "budget.cost_ramp=0.5"],
            "budget.cost_ramp: has no effect in an environment without trading costs",
        ),
        (["environment.problem.kind=betting_game"], "trades mean for less risk"),
        (["agent.core.kind=none", "agent.chunk_length=4"], "chunk_length has no effect without"),
        (["agent.core.kind=none", "agent.shared_core=true"], "shared_core: has no effect without"),
        (
            ["agent.critic.kind=scalar", "agent.risk.weight=0.5"],
            "agent.critic.kind: must predict a law of returns for agent.risk",
        ),
        (
            ["agent.kl_control.target=0.1", "agent.target_kl=0.1"],
            "agent.target_kl: has no effect beside agent.kl_control",
        ),
        (["agent.risk.alpha=0.1"], "exactly one of cvar_weight"),
        (["agent.chunk_length=7"], r"chunk_length must divide n_steps \(128\)"),
        (
            ["agent.critic.kind=scalar", "agent.value_clip.kind=mean_and_variance"],
            "value_clip.kind",
        ),
    ],
)
@catalogue("X45")
def test_contradictions_and_idle_settings_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config(RunConfig, None, overrides)


def test_costs_are_ramped_only_where_there_are_some() -> None:
    assert RunConfig().cost_ramp == 0.5
    assert read_config(RunConfig, None, ["environment.problem.kind=t_maze"]).cost_ramp == 0.0
    assert read_config(RunConfig, None, ["budget.cost_ramp=0"]).cost_ramp == 0.0


def fresh(config: AgentConfig) -> DistributionalPPO:
    return build_agent(config, ProblemVecEnv(HiddenRegime().build(8, 0)), seed=0)


def observed(agent: DistributionalPPO) -> dict[str, Any]:
    """Everything about an agent that a setting could change."""
    policy = agent.policy
    return {
        "learner": agent.learner_config,
        "network": policy.net.config,
        "schedule": [agent.lr_schedule(x) for x in (1.0, 0.5, 0.0)],
        "clip": agent.clip_range(1.0),
        "entropy": agent.ent_coef,
        "value": agent.vf_coef,
    }


OTHERS: dict[str, Any] = {
    "core": GruConfig(hidden_size=16),
    "actor_layers": (8,),
    "critic_layers": (8,),
    "shared_core": True,
    "critic": ScalarCritic(),
    "twin": "off",
    "normalize_observations": False,
    "learning_rate": ConstantSchedule(value=1e-4),
    "n_steps": 32,
    "batch_size": 128,
    "n_epochs": 3,
    "gamma": 0.5,
    "gae_lambda": 0.5,
    "clip_range": 0.1,
    "ent_coef": 0.5,
    "vf_coef": 0.1,
    "max_grad_norm": 9.0,
    "target_kl": 0.1,
    "kl_control": KlControl(),
    "entropy_control": EntropyControl(floor=0.1),
    "risk": RiskConfig(weight=0.5),
    "cost": CostLimit(limit=1.0),
    "value_clip": MeanClip(),
    "critic_target": "scalar",
    "chunk_length": 4,
}


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(AgentConfig)])
@catalogue("X45")
def test_every_setting_of_the_agent_reaches_it(name: str) -> None:
    usual, changed = fresh(SMALL), fresh(dataclasses.replace(SMALL, **{name: OTHERS[name]}))
    assert observed(usual) != observed(changed)


RUNS = sorted(set((ROOT / "configs").glob("*.yaml")) - {ROOT / "configs" / "data_check.yaml"})
"""All but the one that the data verb reads, whose own tests start it."""


@pytest.mark.parametrize("file", RUNS, ids=lambda path: path.stem)
@catalogue("X28")
def test_every_shipped_configuration_is_accepted_and_builds_its_agent(file: Path) -> None:
    config = read_config(RunConfig, file)
    env = ProblemVecEnv(HiddenRegime().build(config.budget.n_envs, 0))
    assert build_agent(config.agent, env, 0).n_steps == config.agent.n_steps
