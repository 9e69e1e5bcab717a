"""A limit on a mean cost behind the API of Stable-Baselines3: arguments, infos, files, words."""

import io
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from quantail import DistributionalPPO, MarketVecEnv
from quantail.diagnostics.risk_schema import CostMetrics, RiskMetrics
from quantail.diagnostics.schema import declared
from quantail.errors import ConfigError, DataError, QuantailWarning
from quantail.nets.cost import CostCritic
from quantail.risk.cost import CostDual, CostLimit
from quantail.sb3.environment import step_costs
from quantail.sb3.evaluate import evaluate_episodes
from quantail.sim.config import SimConfig
from quantail.sim.episodes import EpisodeConfig
from quantail.sim.simulator import MarketSim
from tests.learning.costs import CASES, STEPS, Case, games, train
from tests.sim.markets import make_bars, make_features

ROWS = 16 * 2 * STEPS
LIMITED = CASES["limited"]


def agent(policy: str = "MlpPolicy", **given: Any) -> DistributionalPPO:
    settings: dict[str, Any] = {
        "n_steps": 2 * STEPS,
        "batch_size": 64,
        "n_epochs": 1,
        "gamma": 0.9,
        "seed": 0,
        "device": "cpu",
        "cost": CostLimit(limit=3.0),
    }
    return DistributionalPPO(policy, games(LIMITED, 16, 0), **{**settings, **given})


def market(n_envs: int) -> MarketSim:
    bars = make_bars(120)
    config = SimConfig(episodes=EpisodeConfig(length=10))
    return MarketSim(bars, make_features(bars), config=config, n_envs=n_envs)


def weights(model: DistributionalPPO) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.policy.state_dict().items()}


def test_the_critic_is_there_only_with_a_limit() -> None:
    limited, free = agent(), agent(cost=None)
    assert limited.policy.net.config.cost == CostCritic(discount=0.9)
    assert free.policy.net.cost_critic is None
    ours, theirs = weights(limited), weights(free)
    assert [name for name in ours if "cost_critic" not in name] == list(theirs)
    for name, value in theirs.items():
        assert torch.equal(value, ours[name]), name


def test_without_a_limit_no_cost_is_read() -> None:
    """The same agent, bit for bit, whether its environment tells costs or not."""
    ends = []
    for strips in (False, True):
        env = games(LIMITED, 16, 0)
        if strips:
            env.step_wait = super(type(env), env).step_wait  # type: ignore[method-assign]
        model = agent(cost=None)
        model.set_env(env)
        ends.append(weights(model.learn(2 * ROWS)))
    for name, value in ends[0].items():
        assert torch.equal(value, ends[1][name]), name


@pytest.mark.filterwarnings("ignore:the target of tail risk")  # few episodes
@pytest.mark.parametrize("policy", ["MlpPolicy", "MlpLstmPolicy"])
def test_costs_are_measured_and_recorded(policy: str) -> None:
    model = agent(policy, cvar_weight=0.5, cvar_alpha=0.2).learn(3 * ROWS)
    found = model.logger.name_to_value
    known = set(declared(CostMetrics))
    assert {tag for tag in found if tag in known} == known
    assert {tag for tag in found if tag in declared(RiskMetrics)}
    state = model.train_state.cost
    assert state.active
    assert found["cost/mean"] == pytest.approx(np.mean(state.costs))
    assert found["cost/limit_violation"] == pytest.approx(max(0.0, np.mean(state.costs) - 3.0))
    # four bets, drawn around 0 with deviation 1 and held within 1: E[a²] = .52 at first
    discounts = sum(0.9**t for t in range(STEPS))
    assert found["cost/mean"] == pytest.approx(0.52 * discounts, rel=0.15)


@pytest.mark.filterwarnings("ignore:the target of tail risk")  # few episodes
def test_costs_of_explored_targets_are_left_out() -> None:
    """As for CVaR: what counts are episodes from the target that the policy will have."""
    model = agent(cvar_weight=0.5, cvar_alpha=0.2).learn(3 * ROWS)
    plain = agent().learn(3 * ROWS)
    assert len(plain.train_state.cost.costs) == 96
    risk = model.train_state.risk
    assert len(model.train_state.cost.costs) == len(risk.returns) < 90


class Telling(gym.Env[Any, Any]):
    """Says in its info what it is told to say at its fifth step; 0.5 before."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, info: dict[str, Any]) -> None:
        self.info, self.count = info, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        info = self.info if self.count == 5 else {"cost": 0.5}
        return np.zeros(1, np.float32), 1.0, self.count % 10 == 0, False, info


@pytest.mark.parametrize(
    ("info", "message"),
    [
        ({}, r'environment 1 gave no info\["cost"\] at step 4 of the rollout, .* leave the limit'),
        ({"cost": None}, r'environment 1 gave no info\["cost"\] at step 4'),
        ({"cost": "3"}, r"""environment 1 gave info\["cost"\] = '3', no number, at step 4"""),
        ({"cost": [1.0, 2.0]}, r'environment 1 gave info\["cost"\] = \[1.0, 2.0\], no number'),
        ({"cost": np.nan}, r'environment 1 gave info\["cost"\] = nan at step 4 .* must be finite'),
        ({"cost": -np.inf}, r'environment 1 gave info\["cost"\] = -inf at step 4'),
        ({"cost": 1e300}, r'environment 1 gave info\["cost"\] = 1e\+300 at step 4'),
    ],
)
def test_a_missing_or_bad_cost_is_an_error_that_says_where(
    info: dict[str, Any], message: str
) -> None:
    env = DummyVecEnv([lambda: Telling({"cost": 0.5}), lambda: Telling(info)])
    model = DistributionalPPO(
        "MlpPolicy", env, n_steps=8, batch_size=16, device="cpu", cost=CostLimit(limit=1.0)
    )
    with pytest.raises(DataError, match=message):
        model.learn(16)


def test_without_a_limit_a_cost_that_is_no_number_is_not_read() -> None:
    class Priced(Telling):
        def step(self, action: Any) -> Any:
            return *super().step(action)[:4], {"cost": "low"}

    env = DummyVecEnv([lambda: Priced({})])
    model = DistributionalPPO("MlpPolicy", env, n_steps=8, batch_size=8, device="cpu")
    assert evaluate_episodes(model, env, 1).costs is None
    limited = DistributionalPPO(
        "MlpPolicy", env, n_steps=8, batch_size=8, device="cpu", cost=CostLimit(limit=1.0)
    )
    with pytest.raises(DataError, match=r"= 'low', no number"):
        evaluate_episodes(limited, env, 1)


def test_numbers_of_all_kinds_are_costs() -> None:
    infos = [{"cost": cost} for cost in (1, 0.5, True, np.bool_(True), np.float32(2), np.int8(3))]
    np.testing.assert_array_equal(step_costs(infos, 0), [1, 0.5, 1, 1, 2, 3])


def test_normalized_rewards_leave_costs_raw() -> None:
    env = VecNormalize(games(LIMITED, 16, 0))
    model = DistributionalPPO(
        "MlpPolicy",
        env,
        n_steps=8,
        batch_size=64,
        device="cpu",
        cost=CostLimit(limit=3.0),
        seed=0,
        policy_kwargs={"normalize_observations": False},
    ).learn(ROWS)
    assert model.rollout_buffer.rewards.std() > 0
    found = model.train_state.cost.costs
    assert len(found) == 32
    # four bets, drawn around 0 with deviation 1 and held within 1: E[a²] = .52
    assert np.mean(found) == pytest.approx(0.52 * STEPS, rel=0.2)


@pytest.mark.parametrize("policy", ["MlpPolicy", "MlpLstmPolicy"])
def test_a_loaded_agent_goes_on_to_the_bit(policy: str) -> None:
    model = agent(policy).learn(3 * ROWS)
    file = io.BytesIO()
    model.save(file)
    loaded = DistributionalPPO.load(file, env=games(LIMITED, 16, 0), device="cpu")
    assert loaded.train_state == model.train_state
    assert loaded.train_state.cost.dual.multiplier > 0
    assert loaded.learner_config == model.learner_config
    for other in (model, loaded):
        other.set_env(games(LIMITED, 16, 5))
        other._generator.manual_seed(7)
        other.learn(2 * ROWS)
    assert loaded.train_state == model.train_state
    ours, theirs = weights(model), weights(loaded)
    assert any("cost_critic" in name for name in ours)
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name


def test_changes_at_loading(tmp_path: Path) -> None:
    for name, model in (("limited", agent()), ("free", agent(cost=None))):
        model.save(tmp_path / name)
    other = CostLimit(limit=3.0)
    again = DistributionalPPO.load(tmp_path / "limited", device="cpu", cost=other)
    assert again.learner_config.cost == other
    with pytest.raises(ConfigError, match=r"policy_kwargs\['cost'\] must be .*discount=0.5"):
        DistributionalPPO.load(tmp_path / "limited", device="cpu", gamma=0.5)
    with pytest.raises(ConfigError, match="cost critic, which has no effect without a limit"):
        DistributionalPPO.load(tmp_path / "limited", device="cpu", cost=None)
    with pytest.raises(Exception, match=r"network is not built as it was .* cost was None"):
        DistributionalPPO.load(tmp_path / "free", device="cpu", cost=other)


def warned(model: DistributionalPPO, steps: int, words: str) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.learn(steps)
    assert all(issubclass(w.category, QuantailWarning) for w in caught if words in str(w.message))
    return [str(w.message) for w in caught if words in str(w.message)]


@pytest.mark.parametrize(("limit", "times"), [(0.1, 1), (99.0, 0)])
def test_a_limit_that_is_broken_at_the_end_is_said(limit: float, times: int) -> None:
    told = warned(agent(cost=CostLimit(limit=limit)), 4 * ROWS, "ends with cost.limit")
    assert len(told) == times
    assert all(": the mean cost of the last episodes is " in text for text in told)
    assert all("dual.start, or raise cost.limit" in text for text in told)


def test_an_infeasible_limit_is_said_once_and_training_goes_on() -> None:
    dual = CostDual(start=1.0, integral=5.0, cap=1.0, patience=2)
    model = agent(cost=CostLimit(limit=-1.0, dual=dual))
    told = warned(model, 8 * ROWS, "cost.limit = -1.0")
    assert len(told) == 1
    assert "not met in 2 updates at the largest multiplier (1.0); the mean cost is" in told[0]
    assert told[0].endswith("Raise cost.limit, or raise cost.dual.cap")
    assert model.logger.name_to_value["cost/infeasible"] == 1.0
    assert model.train_state.cost.dual.multiplier == 1.0
    assert all(bool(torch.isfinite(value).all()) for value in weights(model).values())


def test_a_limit_that_never_acted_is_said() -> None:
    env = DummyVecEnv([lambda: Telling({"cost": 0.5})])
    model = DistributionalPPO(
        "MlpPolicy", env, n_steps=32, batch_size=16, device="cpu", cost=CostLimit(limit=1.0)
    )
    told = warned(model, 32, "cost.limit = 1.0")
    assert told == [
        "cost.limit = 1.0 had no effect: 3 episode(s) ended in training, and their mean cost is "
        "measured from 10 on. Train longer, or end episodes by a time limit"
    ]


def test_fresh_episodes_tell_their_costs() -> None:
    class Always(DistributionalPPO):
        def predict(self, observation: Any, *rest: Any) -> Any:
            return np.full((len(observation), 1), 0.5, np.float32), None

    model = Always("MlpPolicy", games(LIMITED, 2, 0), device="cpu", gamma=0.5)
    played = evaluate_episodes(model, games(LIMITED, 2, 1), 4)
    assert played.costs is not None
    # four bets of .5: .25 (1 + .5 + .25 + .125)
    np.testing.assert_allclose(played.costs, 0.25 * 1.875, rtol=1e-6)
    silent = DummyVecEnv([lambda: Telling({})])
    free = DistributionalPPO("MlpPolicy", silent, device="cpu")
    silent.envs[0].count = 4  # the first step tells none
    assert evaluate_episodes(free, silent, 1).costs is None


def test_the_market_tells_what_was_paid_and_traded() -> None:
    sims = [market(4) for _ in range(2)]
    envs = [
        MarketVecEnv(sims[0], cost="costs"),
        MarketVecEnv(sims[1], info_keys=("equity",), cost="turnover"),
    ]
    for env in envs:
        env.seed(0)
        env.reset()
    total = 0.0
    for sign in (1.0, -1.0, 0.5):
        actions = np.full((4, 1), sign, np.float32)
        paid, traded = (env.step(actions)[3] for env in envs)
        for n in range(4):
            out = sims[0].out
            assert paid[n]["cost"] == pytest.approx(out.column("cost_fraction")[n])
            notional, equity = (out.column(name)[n] for name in ("traded", "equity_before"))
            assert traded[n]["cost"] == pytest.approx(notional / equity)
            assert set(traded[n]) >= {"equity", "cost"}
            total += traded[n]["cost"]
    assert total > 1.0
    with pytest.raises(ConfigError, match="cost must be costs or turnover, or None; was 'fees'"):
        MarketVecEnv(sims[0], cost="fees")  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:training ends with")
def test_a_limit_in_a_market_lowers_its_turnover() -> None:
    """A few updates are enough to tell the direction."""
    spent = []
    for limit in (0.5, None):
        env = MarketVecEnv(market(32), cost="turnover")
        dual = CostDual(start=7.0)
        cost = None if limit is None else CostLimit(limit=limit, dual=dual)
        model = DistributionalPPO(
            "MlpPolicy", env, n_steps=30, batch_size=480, n_epochs=4, gamma=1.0, device="cpu",
            seed=0, cost=cost, learning_rate=1e-2, twin="off",
        )  # fmt: skip
        model.learn(8 * 32 * 30)
        played = evaluate_episodes(model, env, 64, deterministic=False)
        assert played.costs is not None
        spent.append(float(played.costs.mean()))
    assert spent[0] < 0.7 * spent[1]


@pytest.mark.filterwarnings("ignore:training ends with")
def test_a_case_runs_with_both_limits() -> None:
    both: Case = CASES["both"]
    model = train(both, 0, n_envs=32, n_epochs=1, updates=3)
    assert model.train_state.cost.active
    assert model.train_state.risk.active
