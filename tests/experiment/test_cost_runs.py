"""A limit on a mean cost from a run's configuration."""

from pathlib import Path

import pytest

from quantail.config_file import parse_config, write_config
from quantail.errors import ConfigError
from quantail.experiment.agent import build_agent
from quantail.experiment.config import RunConfig
from quantail.experiment.run import prepare_tasks
from quantail.risk.cost import CostDual, CostLimit
from tests.experiment.small_runs import MARKET, PROBLEM, small

LIMITED = ("agent.cost.limit=90", "environment.cost=turnover", "agent.cost.dual.integral=0.1")


@pytest.mark.parametrize(
    ("overrides", "of", "message"),
    [
        (LIMITED[:1], PROBLEM, "agent.cost: needs an environment of kind 'market'; a problem"),
        (LIMITED[:1], MARKET, "agent.cost: needs environment.cost, one of costs, turnover"),
        (LIMITED[1:2], MARKET, "environment.cost: has no effect without agent.cost"),
        (("agent.cost.limit=1", "environment.cost=fees"), MARKET, "environment.cost: must be"),
        (("agent.cost.limt=1",), MARKET, "agent.cost.limt"),
    ],
)
def test_a_limit_without_effect_is_refused(
    overrides: tuple[str, ...], of: tuple[str, ...], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        small(*overrides, of=of)


def test_a_market_run_limits_its_turnover(tmp_path: Path) -> None:
    config = small(*LIMITED, of=MARKET)
    assert parse_config(RunConfig, write_config(config)) == config
    task = prepare_tasks(config, tmp_path)[1][0]
    env = task.training_environment(config.budget.n_envs).env
    agent = build_agent(config.agent, env, config.seed)
    assert agent.learner_config.cost == CostLimit(limit=90.0, dual=CostDual(integral=0.1))
    agent.learn(6 * 8 * 16)
    state = agent.train_state.cost
    assert state.active
    # 32 steps, in each of which a careless agent turns over about its equity
    assert 5 < sum(state.costs) / len(state.costs) < 60
