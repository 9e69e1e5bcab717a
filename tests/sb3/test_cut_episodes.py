"""Tail risk over episodes that are cut: said once, and not where they end."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from stable_baselines3.common.vec_env import VecEnv

from quantail import DistributionalPPO
from quantail.errors import QuantailWarning
from quantail.risk.control import RiskState
from quantail.sb3.problem_vec_env import ProblemVecEnv
from quantail.sb3.vec_env import MarketVecEnv
from quantail.sim.config import SimConfig
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.problems import GambleChain, ProportionalCost
from quantail.sim.simulator import MarketSim
from quantail.state import TrainState
from quantail.tail_control import told_cut
from tests.sim.markets import make_bars

BARS = make_bars(200)
LENGTH = 5


def market(end: str) -> MarketVecEnv:
    config = SimConfig(episodes=EpisodeConfig(length=LENGTH, end=end))
    return MarketVecEnv(MarketSim(BARS, config=config, n_envs=8))


def agent(env: VecEnv, **given: Any) -> DistributionalPPO:
    settings: dict[str, Any] = {"cvar_alpha": 0.2, "cvar_weight": 0.5, "n_epochs": 1, "seed": 0}
    sizes: dict[str, Any] = {"n_steps": 10, "batch_size": 10 * env.num_envs, "device": "cpu"}
    return DistributionalPPO("MlpPolicy", env, **{**settings, **sizes, **given})


@contextmanager
def told() -> Iterator[list[str]]:
    """Collect what is said of episodes that are cut."""
    found: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield found
    said = [warning for warning in caught if "were cut" in str(warning.message)]
    assert all(issubclass(warning.category, QuantailWarning) for warning in said)
    found += [str(warning.message) for warning in said]


def test_cut_episodes_are_said_once_also_after_loading(tmp_path: Path) -> None:
    model = agent(market("cut"))
    with told() as said:
        model.learn(6 * 80)
        model.learn(80, reset_num_timesteps=False)
        model.save(tmp_path / "agent")
        again = DistributionalPPO.load(tmp_path / "agent", env=market("cut"), device="cpu")
        again.learn(80)
    assert len(said) == 1
    # 16 episodes in the first rollout are enough for a tail.
    assert said[0].startswith("16 of 16 episodes were cut (truncated) and did not end: CVaR is ")
    assert again.train_state.risk.warned_cut
    assert again.train_state.risk.cut == again.train_state.risk.ended == 8 * 16


@pytest.mark.filterwarnings("ignore:the target of tail risk")  # few episodes
def test_the_sentence_says_what_happens_and_what_to_do() -> None:
    message = (
        "measured over their returns up to the cut, while the critics also value what would follow"
        r".*Let episodes end \(terminated\) at their horizon, in the market simulator by "
        r"episodes\.end 'final'; ignore this if an episode is only a window on a task without end"
    )
    with pytest.warns(QuantailWarning, match=message) as caught:
        agent(ProblemVecEnv(ProportionalCost(episode_length=LENGTH).build(8, 0))).learn(80)
    # Where learn() called train(), as for the other sentences about tail risk.
    assert caught[0].filename.endswith("on_policy_algorithm.py")


@pytest.mark.parametrize(
    "env", [lambda: market("final"), lambda: ProblemVecEnv(GambleChain().build(8, 0))],
    ids=["market", "chain"],
)  # fmt: skip
def test_nothing_is_said_of_episodes_that_end(env: Any) -> None:
    model = agent(env())
    with told() as said:
        model.learn(6 * 80)
    assert not said
    assert model.train_state.risk.active
    assert model.train_state.risk.ended == 6 * 16
    assert model.train_state.risk.cut == 0


def test_nothing_is_said_without_tail_risk() -> None:
    with told() as said:
        agent(market("cut"), cvar_alpha=None, cvar_weight=None).learn(160)
    assert not said


@pytest.mark.parametrize(
    ("cut", "active", "says"), [(51, True, True), (50, True, False), (100, False, False)]
)
def test_most_episodes_must_have_been_cut(cut: int, active: bool, says: bool) -> None:
    state = TrainState(risk=RiskState(active=active, ended=100, cut=cut))
    after, sentence = told_cut(state)
    assert (sentence is not None) == after.risk.warned_cut == says
    assert replace(after, risk=replace(after.risk, warned_cut=False)) == state
    assert told_cut(after)[1] is None
