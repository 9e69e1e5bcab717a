"""Whole runs that must come out as promised: the default market, no drift, the demos."""

from pathlib import Path

import pytest

from quantail.config_file import read_config
from quantail.evaluation.record import Evaluation
from quantail.experiment.config import RunConfig
from quantail.experiment.run import run
from tests.catalogue import ROOT
from tests.experiment.small_runs import Watcher

SEEDS = 20
MOST_FALSE = 2
"""Of 20 seeds; at a level of 2.5 % more than 2 have a probability of 1.3 %."""


def judged(config: RunConfig, folder: Path) -> Evaluation:
    result = run(config, Watcher(), folder)
    assert result.test is not None
    assert result.test.verdict.sentence.split(":")[0] in result.report.read_text()
    return result.test


@pytest.mark.verify
@pytest.mark.parametrize("seed", range(5))
def test_the_default_run_reaches_nine_tenths_of_the_optimum(seed: int, tmp_path: Path) -> None:
    test = judged(RunConfig(seed=seed), tmp_path / "run")
    assert test.optimum is not None
    assert test.optimum.fraction.value >= 0.9
    against = {comparison.baseline: comparison for comparison in test.comparisons}
    assert against["memoryless"].is_better
    assert test.verdict.level == "skill"


SMALL = (
    "agent.core.kind=none", "agent.n_steps=32", "agent.batch_size=512", "budget.n_envs=64",
    "budget.steps=40000", "selection.validations=2", "selection.keep=1",
)  # fmt: skip
"""A short training: the test of skill must not be fooled however little an agent has learned."""
PROBLEM = (
    "environment.problem.kind=negative_control", "environment.problem.cost=0",
    "environment.validation_envs=32", "environment.validation_steps=100",
    "environment.test_envs=200", "environment.test_steps=300",
    "environment.evaluation.cost_factors=[]",
)  # fmt: skip
MARKET = (
    "environment.kind=market", "environment.data.source.kind=synthetic",
    "environment.data.source.bars=3000",
    "environment.data.features=[{kind: log_return, horizons: [1, 5, 20]}]",
    "environment.data.splits.kind=fractions",
    "environment.data.splits.train=0.4", "environment.data.splits.validation=0.2",
    "environment.simulator.costs.fee.bps=0", "environment.simulator.costs.spread.half_bps=0",
    "environment.simulator.costs.slippage.kind=none",
    "environment.simulator.episodes.length=64", "environment.evaluation.sampled=false",
    "environment.evaluation.cost_factors=[]", "environment.evaluation.delays=[]",
)  # fmt: skip


@pytest.mark.verify
@pytest.mark.parametrize("settings", [PROBLEM, MARKET], ids=["problem", "market"])
def test_no_skill_is_found_in_prices_without_drift(
    settings: tuple[str, ...], tmp_path: Path
) -> None:
    """Without costs, so that the truth is zero and not a loss, which no test could mistake."""
    found = []
    for seed in range(SEEDS):
        seeds = [f"seed={seed}"]
        if settings is MARKET:
            seeds.append(f"environment.data.source.seed={seed}")
        config = read_config(RunConfig, None, [*settings, *SMALL, *seeds])
        found.append(judged(config, tmp_path / str(seed)))
    assert sum(test.verdict.evidence for test in found) <= MOST_FALSE
    sentences = [test.verdict.sentence for test in found if not test.verdict.evidence]
    assert all(sentence.startswith("No evidence of skill") for sentence in sentences)
    turnover = [test.measures["agent"].turnover.value for test in found]
    assert sum(value > 0.0 for value in turnover) > SEEDS // 2  # they did try


@pytest.mark.verify
@pytest.mark.parametrize("name", ["eurusd", "stocks"])
def test_the_demos_say_honestly_what_they_found(name: str, tmp_path: Path) -> None:
    test = judged(read_config(RunConfig, ROOT / "configs" / f"{name}.yaml"), tmp_path / "run")
    assert {"agent", "flat", "buy_and_hold", "momentum"} <= set(test.measures)
    assert test.split == "3 splits"
    assert test.verdict.sentence.startswith(("Evidence of skill", "No evidence of skill"))
