"""The controllers behind the agent's arguments: recorded, saved, refused where they do nothing."""

import json
import warnings
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.wrappers import NormalizeReward
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

from quantail import DistributionalPPO
from quantail.config import ExplainedVariance
from quantail.errors import ConfigError, DataError, QuantailWarning
from quantail.gradient import loss_terms
from quantail.losses.imitation import Cloning
from quantail.optim.entropy_control import EntropyControl, EntropyDecay
from quantail.optim.guard import Guard, NonFiniteError
from quantail.optim.kl_control import KlControl, KlLearningRate, KlStop
from quantail.optim.schedules import Schedules, StepLinear
from quantail.rollout.demonstrations import Demonstrations
from quantail.rollout.sequences import gather
from quantail.sb3.environment import SB3Environment
from quantail.sb3.normalization import WatchedStatistics, check_raw_rewards, raw_rewards
from quantail.targets.compute import compute_targets
from tests.catalogue import catalogue
from tests.learner.agents import NOW

LINE = StepLinear(start=0.01, end=0.001, end_step=100)


class Walk(gym.Env[Any, Any]):
    """A noisy observation with a mean that may shift; bad numbers on request."""

    def __init__(self, shift_at: int = 10**9, bad: str = "") -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.shift_at, self.bad, self.time = shift_at, bad, 0

    def reset(self, **given: Any) -> Any:
        super().reset(**given)
        return self._observe(), {"symbol": "A/B"}

    def step(self, action: Any) -> Any:
        self.time += 1
        reward = np.nan if self.bad == "reward" else 3.0 * float(action) - 1
        seen = self._observe()
        if self.bad == "observation":
            seen[1] = np.inf
        ends = self.time % 7 == 0 and self.bad != "observation"
        return seen, reward, ends, False, {"symbol": "A/B"}

    def _observe(self) -> Any:
        seen = self.np_random.normal(size=2).astype(np.float32)
        return seen + np.float32(self.time >= self.shift_at)


def walks(n_envs: int = 2, **given: Any) -> DummyVecEnv:
    return DummyVecEnv([lambda: Walk(**given)] * n_envs)


def agent(env: Any = None, **given: Any) -> DistributionalPPO:
    settings = {"n_steps": 16, "batch_size": 16, "n_epochs": 2, "seed": 0, "device": "cpu", **given}
    settings.setdefault("policy_kwargs", {"net_arch": [8]})
    return DistributionalPPO("MlpPolicy", env or walks(), **settings)


def recorded(model: DistributionalPPO) -> dict[str, float]:
    return dict(model.logger.name_to_value)


def test_rates_by_steps_survive_a_second_call_and_a_file(tmp_path: Path) -> None:
    model = agent(schedules=Schedules(learning_rate=LINE, critic_learning_rate=LINE))
    model.learn(32)
    model.learn(32)
    now = recorded(model)
    assert now["train/learning_rate"] == pytest.approx(LINE.at(32))
    assert now["train/critic_learning_rate"] == pytest.approx(LINE.at(32))
    model.save(tmp_path / "agent")
    loaded = DistributionalPPO.load(tmp_path / "agent", env=walks(), device="cpu")
    assert loaded.train_state == model.train_state
    assert loaded.train_state.env_steps == 64
    roles = [group["role"] for group in loaded.policy.optimizer.param_groups]
    assert roles == ["actor", "critic"]
    loaded.learn(32)
    assert recorded(loaded)["train/learning_rate"] == pytest.approx(LINE.at(64))
    assert [g["lr"] for g in loaded.policy.optimizer.param_groups] == pytest.approx(
        [LINE.at(64)] * 2
    )


def test_controllers_act_and_are_recorded() -> None:
    model = agent(
        learning_rate=0.05,
        ent_coef=0.1,
        kl_control=KlControl(target=1e-4, learning_rate=KlLearningRate()),
        entropy_control=EntropyControl(decay=EntropyDecay(updates=4)),
        explained_variance=ExplainedVariance(groups="symbol"),
    )
    model.learn(96)
    now = recorded(model)
    assert now["train/ent_coef"] == pytest.approx(0.05)
    assert now["train/kl_early_stop"] == 1
    assert model.train_state.kl.rate_factor < 1
    assert now["train/learning_rate"] < 0.05
    assert "train/ev/group/a_b" in now
    assert now["error/reward_nonfinite"] == 0


def test_target_kl_is_the_plain_early_stop(tmp_path: Path) -> None:
    model = agent(target_kl=0.01)
    assert model.learner_config.kl_control == KlControl(target=0.01)
    model.save(tmp_path / "agent")
    loaded = DistributionalPPO.load(tmp_path / "agent", device="cpu")
    assert (loaded.target_kl, loaded.learner_config.kl_control) == (0.01, KlControl(target=0.01))


def test_demonstrations_are_saved_with_the_agent(tmp_path: Path) -> None:
    demos = Demonstrations.from_policy(
        lambda seen: (seen[:, 0] > 0).astype(np.int64), SB3Environment(walks()), 20
    )
    model = agent(imitation=Cloning(coefficient=1.0, batch_size=8), demonstrations=demos)
    model.learn(32)
    assert recorded(model)["train/policy_loss_bc"] > 0
    model.save(tmp_path / "agent")
    loaded = DistributionalPPO.load(tmp_path / "agent", env=walks(), device="cpu")
    assert loaded.demonstrations is not None
    assert torch.equal(loaded.demonstrations.actions, demos.actions)


@catalogue("F12")
def test_a_decay_without_effect_is_told_once() -> None:
    control = EntropyControl(floor=0.1, decay=EntropyDecay(updates=4))
    model = agent(ent_coef=0.1, entropy_control=control)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.learn(96)
    told = [w for w in caught if "the entropy decay changes nothing" in str(w.message)]
    assert len(told) == 1
    assert told[0].category is QuantailWarning


@pytest.mark.parametrize("place", ["reward", "observation"])
def test_bad_numbers_from_the_environment_stop_with_a_report(tmp_path: Path, place: str) -> None:
    path = tmp_path / "deep" / "report.json"
    model = agent(walks(bad=place), guard=Guard(report_path=str(path)))
    with pytest.raises(NonFiniteError, match=f"20 times in a row.*Place: {place}.*Report: "):
        model.learn(64)
    report = json.loads(path.read_text())
    assert report["place"] == place
    assert report["counts"][place] >= 20
    assert "Repair the environment" in report["sentence"]


def normalized(env: Any, **given: Any) -> VecNormalize:
    return VecNormalize(env, **given)


@catalogue("F44", "F41")
def test_frozen_statistics_hold_during_a_rollout_and_move_after_it() -> None:
    """The wrapper is not the outermost one; at the end it has seen what an unfrozen one sees."""
    results = []
    for freeze in (True, False):
        env = VecFrameStack(normalized(walks()), 2)
        inner = env.venv
        assert isinstance(inner, VecNormalize)
        env.seed(0)
        env.reset()
        probe = np.ones((1, 2), np.float32)
        seen = []
        with WatchedStatistics(env, freeze=freeze) as watched:
            for _ in range(20):
                seen.append(inner.normalize_obs(probe).copy())
                _, _, done, _ = env.step(np.array([0, 1]))
                watched.record(done)
            seen.append(inner.normalize_obs(probe).copy())
        same = all(np.array_equal(seen[0], other) for other in seen)
        assert same == freeze
        assert inner.training
        assert not np.array_equal(inner.normalize_obs(probe), seen[0])
        results.append((inner.obs_rms.mean, inner.obs_rms.count, inner.ret_rms.var))
    for frozen, plain in zip(*results, strict=True):
        np.testing.assert_allclose(frozen, plain, rtol=1e-12)


class Told(KVWriter):
    """Keeps what a logger is told."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def write(self, key_values: dict[str, Any], key_excluded: Any, step: int = 0) -> None:
        self.rows.append(dict(key_values))


@catalogue("F43")
def test_a_shift_of_the_observations_shows_as_drift() -> None:
    """Means learn slowly: a rollout as long as all before moves them by half a deviation."""
    drifts, own = [], []
    for shift_at in (10**9, 32):
        model = agent(
            VecNormalize(walks(shift_at=shift_at)), n_steps=32, batch_size=32,
            freeze_normalizer=True,
        )  # fmt: skip
        told = Told()
        model.set_logger(Logger(None, [told]))
        model.learn(128)
        drifts.append(told.rows[-1]["debug/vecnormalize_mean_drift"])
        own.append(recorded(model)["debug/normalizer_mean_drift"])
    assert drifts[1] > 0.3 > 2 * drifts[0]
    assert own[1] > own[0]


class Ratios(BaseCallback):
    """Keeps the largest log-ratio of each rollout before it is learned from."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[float] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        model, rollout = self.model, self.locals["rollout"]
        assert isinstance(model, DistributionalPPO)
        config, draw = model.learner_config, torch.Generator().manual_seed(0)
        targets = compute_targets(rollout, config.targets, "min", draw)
        every = torch.arange(rollout.rewards.numel())
        batch = gather(rollout, targets, rollout.chunk_states, 1, every)
        with torch.no_grad():
            terms = loss_terms(model.policy.net, batch, config, NOW)
        self.found.append(float(terms.ratio.log_ratio_max_abs))


@catalogue("F41", "X08")
@pytest.mark.parametrize("freeze", [True, False])
def test_ratios_are_one_though_the_observations_shift(freeze: bool) -> None:
    """Training reads the numbers that acting saw, whatever the statistics did in between."""
    model = agent(VecNormalize(walks(shift_at=24)), freeze_normalizer=freeze, learning_rate=0.01)
    ratios = Ratios()
    model.learn(128, ratios)
    assert len(ratios.found) == 4
    assert max(ratios.found) < 1e-5


@catalogue("F40")
def test_raw_rewards_are_told_or_refused() -> None:
    env = VecFrameStack(normalized(walks(), clip_reward=0.5), 2)
    env.reset()
    _, rewards, _, _ = env.step(np.array([0, 1]))
    assert raw_rewards(env, rewards).tolist() == [-1.0, 2.0]
    assert rewards.tolist() != [-1.0, 2.0]
    check_raw_rewards(env, "cvar_limit")
    hidden = DummyVecEnv([lambda: NormalizeReward(Walk())])
    with pytest.raises(ConfigError, match="cvar_limit needs raw rewards.*NormalizeReward"):
        check_raw_rewards(hidden, "cvar_limit")


def test_returns_of_episodes_are_in_raw_rewards() -> None:
    model = agent(VecNormalize(walks()))
    found: list[float] = []

    class Read(BaseCallback):
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            found.extend(self.locals["rollout"].episodes.returns)

    model.learn(32, Read())
    assert found
    assert all(value in {3.0 * n - 7 for n in range(8)} for value in found)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"target_kl": 0.1, "kl_control": KlControl()}, "target_kl has no effect beside"),
        (
            {"schedules": Schedules(learning_rate=LINE), "learning_rate": 1.0},
            "learning_rate has no effect beside schedules.learning_rate",
        ),
        ({"schedules": Schedules(entropy=LINE), "ent_coef": 0.5}, "ent_coef has no effect beside"),
        ({"imitation": Cloning(coefficient=1.0)}, "needs demonstrations"),
        ({"freeze_normalizer": True}, "env has no VecNormalize"),
        (
            {
                "policy_kwargs": {"net_arch": [8], "shared_lstm": True},
                "kl_control": KlControl(stop=KlStop(after="critics")),
                "policy": "MlpLstmPolicy",
            },
            "needs critics that share nothing",
        ),
    ],
)
def test_arguments_without_effect_are_refused(given: dict[str, Any], message: str) -> None:
    policy = given.pop("policy", "MlpPolicy")
    with pytest.raises(ConfigError, match=message):
        DistributionalPPO(policy, walks(), n_steps=16, batch_size=16, device="cpu", **given)


def test_a_group_key_that_is_missing_is_named() -> None:
    model = agent(explained_variance=ExplainedVariance(groups="sector"))
    with pytest.raises(DataError, match="'sector', and environment"):
        model.learn(32)
