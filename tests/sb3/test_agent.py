"""The agent behind the Stable-Baselines3 API: real training, real environments."""

import inspect
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import configure
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnvWrapper, VecNormalize

from quantail import DistributionalPPO
from quantail.diagnostics.schema import ControlMetrics, SkinMetrics, UpdateMetrics, declared
from quantail.errors import ConfigError
from quantail.losses.value_clip import MeanClip, QuantileClip
from quantail.nets.cores import LruConfig, LstmConfig
from quantail.nets.critics import CategoricalCritic, ScalarCritic
from tests.catalogue import catalogue

SMALL: dict[str, Any] = {"n_steps": 16, "batch_size": 32, "n_epochs": 2, "seed": 0}


def agent(policy: str = "MlpLstmPolicy", env: str = "CartPole-v1", **given: Any) -> Any:
    return DistributionalPPO(policy, make_vec_env(env, 4, seed=0), **{**SMALL, **given})


def test_signature_begins_like_ppo() -> None:
    theirs = list(inspect.signature(PPO.__init__).parameters.values())
    ours = list(inspect.signature(DistributionalPPO.__init__).parameters.values())
    for expected, given in zip(theirs, ours, strict=False):
        assert (given.name, given.default) == (expected.name, expected.default)
    assert all(extra.kind is extra.KEYWORD_ONLY for extra in ours[len(theirs) :])


@pytest.mark.parametrize("policy", ["MlpPolicy", "MlpLstmPolicy"])
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_learns_and_predicts(policy: str, env: str) -> None:
    model = agent(policy, env)
    before = [parameter.clone() for parameter in model.policy.parameters()]
    model.learn(128)
    assert model.num_timesteps == 128
    assert any(
        not torch.equal(a, b) for a, b in zip(before, model.policy.parameters(), strict=True)
    )
    observation = model.env.reset()
    action, state = model.predict(observation, deterministic=True)
    assert model.action_space.contains(action[0])
    assert (state is None) == (policy == "MlpPolicy")


def test_predict_carries_memory_and_resets_it() -> None:
    model = agent()
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(3, 4, 4)).astype(np.float32)
    _, first = model.predict(observations[0])
    _, carried = model.predict(observations[1], first, np.zeros(4, bool))
    _, restarted = model.predict(observations[1], first, np.array([True, False, False, False]))
    _, fresh = model.predict(observations[1])
    for kept, mixed, new in zip(carried, restarted, fresh, strict=True):
        np.testing.assert_allclose(mixed[:, 0], new[:, 0], atol=1e-6)
        np.testing.assert_allclose(mixed[:, 1:], kept[:, 1:], atol=1e-6)
        assert not np.allclose(kept, new)
    with pytest.raises(ConfigError, match="state must have the shapes"):
        model.predict(observations[0][:2], first)


def test_single_observation_gives_a_single_action() -> None:
    model = agent("MlpPolicy")
    action, _ = model.predict(np.zeros(4, np.float32))
    assert action.shape == ()


@pytest.mark.parametrize(
    "given",
    [
        {"critic": CategoricalCritic(n_atoms=11)},
        {"critic": ScalarCritic(), "twin": "off"},
        {"twin": "mean"},
        {"policy_kwargs": {"core": LruConfig(hidden_size=8)}},
        {"policy_kwargs": {"shared_lstm": True, "lstm_hidden_size": 16, "n_lstm_layers": 2}},
        {"microbatch_size": 16},
        {"refresh_states": True},
        {"burn_in": 4},
        {"dual_clip": 3.0},
        {"clip_range_vf": 0.2},
        {"value_clip": QuantileClip(range=0.1)},
        {"learning_rate": lambda progress: 1e-3 * progress, "clip_range": lambda _: 0.1},
        {"normalize_advantage_per_env": True},
        {"target_kl": 0.01},
    ],
    ids=",".join,
)
def test_every_option_trains(given: dict[str, Any]) -> None:
    model = agent(**given)
    model.learn(64)
    assert model.logger.name_to_value["train/critic1_grad_norm"] > 0


@catalogue("X03")
def test_value_clip_range_given_is_the_one_used() -> None:
    settings = agent(clip_range_vf=0.7)
    assert settings.learner_config.value_clip.kind == "mean_only"
    assert settings.clip_range_vf(1.0) == 0.7
    assert agent(value_clip=MeanClip(range=0.3)).learner_config.value_clip.range == 0.3
    losses = []
    for value in (None, 1e-6):
        model = agent(clip_range_vf=value, n_epochs=4, learning_rate=0.01)
        model.learn(64)
        losses.append(model.logger.name_to_value["train/value_loss"])
    assert losses[1] > losses[0] + 1e-3


@catalogue("F63")
def test_recorded_metrics_are_the_declared_ones() -> None:
    model = agent()
    model.learn(64)
    recorded = set(model.logger.name_to_value)
    assert set(declared(UpdateMetrics)) <= recorded
    known = set(declared(UpdateMetrics, ControlMetrics, SkinMetrics))
    assert {tag for tag in recorded if tag.startswith("train/")} <= known


@pytest.mark.parametrize("given", [{}, {"clip_range_vf": lambda p: 0.3}, {"use_sde": True}])
def test_every_name_that_ppo_records_is_recorded_with_its_meaning(given: dict[str, Any]) -> None:
    settings = {"n_steps": 16, "batch_size": 16, "n_epochs": 2, "device": "cpu", **given}
    theirs, ours = (
        kind("MlpPolicy", "Pendulum-v1", **settings) for kind in (PPO, DistributionalPPO)
    )
    for model in (theirs, ours):
        model.set_logger(configure(None, []))
        model.learn(32)
    expected, found = theirs.logger.name_to_value, ours.logger.name_to_value
    assert set(expected) <= set(found)
    for name in ("train/n_updates", "train/clip_range", "train/learning_rate"):
        assert found[name] == expected[name], name
    assert found.get("train/clip_range_vf") == expected.get("train/clip_range_vf")
    # One deviation at the start, moved a little by 4 steps of Adam at 3e-4.
    assert found["train/std"] == pytest.approx(expected["train/std"], rel=5e-3)
    assert found["train/std"] != 1.0


@catalogue("F51")
def test_logged_learning_rate_is_the_one_in_the_optimizer() -> None:
    model = agent(learning_rate=lambda progress: 0.01 * progress)
    model.learn(128)
    rates = {group["lr"] for group in model.policy.optimizer.param_groups}
    assert rates == {model.logger.name_to_value["train/learning_rate"]}


def test_schedule_objects_of_sb3_are_followed() -> None:
    schedule = LinearSchedule(start=0.01, end=0.001, end_fraction=0.5)
    model = agent(learning_rate=schedule, clip_range=LinearSchedule(0.4, 0.2, 1.0))
    model.learn(128)
    assert model.logger.name_to_value["train/learning_rate"] == pytest.approx(0.001)
    assert model.logger.name_to_value["train/clip_range"] == pytest.approx(0.2)


@pytest.mark.parametrize("given", [None, "mine"])
def test_logs_are_named_after_the_class(given: str | None, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    names = {} if given is None else {"tb_log_name": given}
    agent(tensorboard_log=str(tmp_path)).learn(64, **names)
    assert [folder.name for folder in tmp_path.iterdir()] == [f"{given or 'DistributionalPPO'}_1"]


def test_an_environment_may_give_no_infos() -> None:
    class Silent(VecEnvWrapper):
        def reset(self) -> Any:
            return self.venv.reset()

        def step_wait(self) -> Any:
            observations, rewards, dones, infos = self.venv.step_wait()
            return observations, rewards, dones, infos if dones.any() else []

    env = Silent(make_vec_env("CartPole-v1", 4, seed=0))
    model = DistributionalPPO("MlpPolicy", env, **SMALL).learn(128)
    assert len(model.ep_info_buffer) > 0


def test_same_seed_gives_the_same_weights_to_the_bit() -> None:
    first, second = agent().learn(128), agent().learn(128)
    for a, b in zip(first.policy.parameters(), second.policy.parameters(), strict=True):
        assert torch.equal(a, b)


def test_learning_goes_on_where_it_stopped() -> None:
    model = agent().learn(64)
    carry = model._carry
    model.learn(64, reset_num_timesteps=False)
    assert model.num_timesteps == 128
    assert carry is not None


def test_callback_sees_steps_and_can_stop() -> None:
    class Stop(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.dones = 0

        def _on_step(self) -> bool:
            self.dones += int(self.locals["dones"].sum())
            assert len(self.locals["infos"]) == 4
            return self.n_calls < 40

    callback = Stop()
    model = agent().learn(100_000, callback)
    assert model.num_timesteps == 160
    assert callback.dones > 0
    assert len(model.ep_info_buffer) > 0


@catalogue("X08")
def test_ratio_is_one_with_vec_normalize() -> None:
    env = VecNormalize(make_vec_env("CartPole-v1", 4, seed=0), norm_reward=False)
    model = DistributionalPPO("MlpLstmPolicy", env, n_steps=32, batch_size=128, n_epochs=1, seed=0)
    model.learn(512)
    assert model.logger.name_to_value["train/log_ratio_max_abs"] < 1e-5


class Masked(gym.Env[Any, Any]):
    """Allows one action at a time; any other ends the test."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = spaces.Discrete(4)

    def __init__(self) -> None:
        self.allowed = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def action_masks(self) -> Any:
        return np.arange(4) == self.allowed

    def step(self, action: Any) -> Any:
        assert action == self.allowed
        self.allowed = int(self.np_random.integers(4))
        return np.zeros(2, np.float32), 1.0, bool(self.np_random.random() < 0.1), False, {}


@pytest.mark.parametrize("policy", ["MlpPolicy", "MlpLstmPolicy"])
def test_action_masks_are_obeyed(policy: str) -> None:
    model = DistributionalPPO(policy, make_vec_env(Masked, 4), **SMALL).learn(256)
    # The environment raises on any action but the allowed one, so every step obeyed.
    assert model.num_timesteps == 256


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sde_sample_freq": 4}, "sde_sample_freq has no effect without use_sde"),
        ({"n_quantiles": 3}, "n_quantiles"),
        ({"clip_range_vf": 0.1, "value_clip": MeanClip()}, "clip_range_vf has no effect beside"),
        ({"critic": ScalarCritic(), "policy_kwargs": {"critic": ScalarCritic()}}, "given twice"),
        ({"chunk_length": 5}, "chunk_length must divide n_steps"),
        ({"microbatch_size": 5}, r"microbatch_size must divide batch_size \(32\); was 5"),
        ({"refresh_states": True, "burn_in": 2}, "burn_in has no effect with refresh_states"),
        ({"gamma": 1.5}, "gamma: must be at most 1; was 1.5"),
        ({"n_epochs": 0}, "n_epochs: must be at least 1; was 0"),
        ({"policy_kwargs": {"activation_fn": torch.nn.Hardtanh}}, "activation_fn must be one of"),
        (
            {"policy_kwargs": {"core": LstmConfig(), "lstm_hidden_size": 8}},
            "lstm_hidden_size and n_lstm_layers have no effect beside core",
        ),
        (
            {"critic": CategoricalCritic(), "value_clip": QuantileClip()},
            'value_clip.kind = "per_quantile" works with',
        ),
        ({"critic": ScalarCritic(), "critic_target": "sr_lambda"}, "sr_lambda' needs a critic"),
    ],
)
def test_contradictions_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises((ConfigError, TypeError), match=message):
        agent(**given).learn(64)


@catalogue("F40")
def test_an_environment_set_later_is_refused_like_the_first_one() -> None:
    scaled = VecNormalize(make_vec_env("CartPole-v1", 4))
    model = agent("MlpPolicy", cvar_limit=-1.0)
    model.set_env(scaled)
    with pytest.raises(ConfigError, match="tail risk is measured on raw rewards.*norm_reward=Fa"):
        model.learn(16)
    model = DistributionalPPO("MlpPolicy", scaled, freeze_normalizer=True, **SMALL)
    model.set_env(make_vec_env("CartPole-v1", 4))
    with pytest.raises(ConfigError, match="freeze_normalizer has no effect: env has no VecNorm"):
        model.learn(16)


def test_memory_settings_need_a_recurrent_policy() -> None:
    with pytest.raises(ConfigError, match="need a recurrent policy, such as MlpLstmPolicy"):
        agent("MlpPolicy", policy_kwargs={"lstm_hidden_size": 8})
    with pytest.raises(ConfigError, match="chunk_length has no effect without a recurrent core"):
        agent("MlpPolicy", chunk_length=4)


@catalogue("F46")
def test_foreign_weights_reset_every_recurrent_state() -> None:
    model, other = agent().learn(64), agent(seed=1)
    assert any(float(part.abs().max()) > 0 for core in model._carry.state for part in core)
    model.set_parameters(other.get_parameters())
    initial = model.policy.net.initial_state(4)
    for core, fresh in zip(model._carry.state, initial, strict=True):
        for part, expected in zip(core, fresh, strict=True):
            assert torch.equal(part, expected)


class OneBuffer(DummyVecEnv):
    """Hands out the same array for every observation, as a compiled environment may."""

    def step_wait(self) -> Any:
        observation, *rest = super().step_wait()
        self.shared[...] = observation
        return (self.shared, *rest)

    def reset(self) -> Any:
        observation = super().reset()
        if not hasattr(self, "shared"):
            self.shared = observation.copy()
        self.shared[...] = observation
        return self.shared


def test_an_environment_may_reuse_its_observation_buffer() -> None:
    plain, reusing = (
        DistributionalPPO(
            "MlpLstmPolicy", kind([lambda: gym.make("CartPole-v1")] * 4), **SMALL
        ).learn(128)
        for kind in (DummyVecEnv, OneBuffer)
    )
    for a, b in zip(plain.policy.parameters(), reusing.policy.parameters(), strict=True):
        assert torch.equal(a, b)


class StartWatch(BaseCallback):
    """Notes whether the first rollout starts new episodes everywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.fresh: list[bool] = []

    def _on_rollout_start(self) -> None:
        self.fresh.append(bool(self.model._carry.episode_starts.all()))  # type: ignore[attr-defined]

    def _on_step(self) -> bool:
        return True


@pytest.mark.parametrize("kind", [DummyVecEnv, OneBuffer])
def test_training_anew_starts_new_episodes_and_going_on_does_not(kind: Any) -> None:
    env = kind([lambda: gym.make("CartPole-v1")] * 4)
    model = DistributionalPPO("MlpLstmPolicy", env, **SMALL).learn(128)
    anew, going_on = StartWatch(), StartWatch()
    model.learn(64, going_on, reset_num_timesteps=False)
    model.learn(64, anew)
    assert anew.fresh[0]
    assert not going_on.fresh[0]
