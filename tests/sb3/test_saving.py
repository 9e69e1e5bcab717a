"""Agents saved and loaded: the same to the bit, or refused."""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import CheckpointCallback, EvalCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.utils import LinearSchedule as TheirLinearSchedule

from quantail import DistributionalPPO
from quantail.checkpoint.archive import CheckpointError, read
from quantail.errors import ConfigError, QuantailWarning
from quantail.losses.value_clip import QuantileClip
from quantail.nets.cores import GruConfig, LruConfig
from quantail.nets.critics import CategoricalCritic, QuantileCritic, ScalarCritic
from quantail.optim.schedules import CosineSchedule
from quantail.sb3.saving import arguments
from tests.catalogue import catalogue
from tests.checkpoint.agents import (
    CHOICE,
    IMAGE,
    MIXED,
    SMALL,
    VECTOR,
    agent,
    assert_same_state,
    env_of,
)

KINDS: dict[str, tuple[Any, Any, str, dict[str, Any]]] = {
    "mlp": (VECTOR, CHOICE, "MlpPolicy", {}),
    "lstm": (VECTOR, CHOICE, "MlpLstmPolicy", {}),
    "box": (VECTOR, spaces.Box(-2.0, 2.0, (2,), np.float32), "MlpLstmPolicy", {}),
    "state noise": (
        VECTOR,
        spaces.Box(-2.0, 2.0, (2,), np.float32),
        "MlpPolicy",
        {"use_sde": True, "sde_sample_freq": 4},
    ),
    "multi discrete": (VECTOR, spaces.MultiDiscrete([2, 3]), "MlpPolicy", {}),
    "multi binary": (VECTOR, spaces.MultiBinary(3), "MlpPolicy", {}),
    "image": (IMAGE, CHOICE, "CnnPolicy", {}),
    "image lstm": (IMAGE, CHOICE, "CnnLstmPolicy", {}),
    "dict": (MIXED, CHOICE, "MultiInputPolicy", {}),
    "dict lstm": (MIXED, CHOICE, "MultiInputLstmPolicy", {}),
    "choices observed": (spaces.Discrete(4), CHOICE, "MlpPolicy", {}),
    "categorical": (VECTOR, CHOICE, "MlpPolicy", {"critic": CategoricalCritic(n_atoms=11)}),
    "scalar": (VECTOR, CHOICE, "MlpPolicy", {"critic": ScalarCritic(), "twin": "off"}),
    "gru": (VECTOR, CHOICE, "MlpLstmPolicy", {"policy_kwargs": {"core": GruConfig(hidden_size=8)}}),
    "lru": (VECTOR, CHOICE, "MlpLstmPolicy", {"policy_kwargs": {"core": LruConfig(hidden_size=8)}}),
    "network": (
        VECTOR,
        CHOICE,
        "MlpPolicy",
        {
            "policy_kwargs": {
                "net_arch": {"pi": [8], "vf": [16]},
                "activation_fn": torch.nn.ELU,
                "optimizer_class": torch.optim.AdamW,
                "optimizer_kwargs": {"betas": (0.8, 0.9), "weight_decay": 0.1},
                "features_extractor_class": FlattenExtractor,
                "normalize_observations": False,
            }
        },
    ),
    "settings": (
        VECTOR,
        CHOICE,
        "MlpLstmPolicy",
        {
            "learning_rate": CosineSchedule(start=1e-3),
            "clip_range": TheirLinearSchedule(0.3, 0.1, 0.5),
            "value_clip": QuantileClip(range=0.1),
            "target_kl": 10.0,
            "dual_clip": 3.0,
            "chunk_length": 4,
            "microbatch_size": 8,
            "refresh_states": True,
            "gamma": 0.9,
            "gae_lambda": 0.8,
            "ent_coef": 0.01,
            "vf_coef": 0.7,
            "max_grad_norm": 0.1,
            "stats_window_size": 7,
            "normalize_advantage_per_env": True,
            "critic": QuantileCritic(n_quantiles=16, levels="tail", tail_alpha=0.25),
        },
    ),
    "value clip range": (VECTOR, CHOICE, "MlpPolicy", {"clip_range_vf": 0.3}),
}


@catalogue("X12")
@pytest.mark.parametrize("kind", KINDS)
def test_round_trip_to_the_bit_for_every_kind(kind: str, tmp_path: Path) -> None:
    observation_space, action_space, policy, given = KINDS[kind]
    env = env_of(observation_space, action_space)
    model = agent(env, policy, **given).learn(32)
    model.save(tmp_path / "agent")
    loaded = DistributionalPPO.load(tmp_path / "agent", env=env)
    assert_same_state(model, loaded)
    assert loaded.policy.net.config == model.policy.net.config
    assert loaded.learner_config == model.learner_config
    assert type(loaded.policy) is type(model.policy)
    assert loaded.policy_kwargs == model.policy_kwargs
    for name in ("ent_coef", "vf_coef", "seed", "verbose", "_stats_window_size", "n_envs"):
        assert getattr(loaded, name) == getattr(model, name), name
    for progress in (1.0, 0.7, 0.0):
        assert loaded.lr_schedule(progress) == model.lr_schedule(progress)
        assert loaded.clip_range(progress) == model.clip_range(progress)
    observations: Any = env.reset()
    state = restored = None
    for _ in range(3):
        actions, state = model.predict(observations, state, deterministic=True)
        again, restored = loaded.predict(observations, restored, deterministic=True)
        np.testing.assert_array_equal(actions, again)
    before = {name: value.clone() for name, value in loaded.policy.state_dict().items()}
    loaded.learn(16, reset_num_timesteps=False)
    assert loaded.num_timesteps == model.num_timesteps + 16
    moved = [
        name for name, value in loaded.policy.state_dict().items() if (value != before[name]).any()
    ]
    assert any(name.endswith("weight") for name in moved)


def test_loaded_agent_trains_as_the_saved_one_would(tmp_path: Path) -> None:
    """From equal weights, optimizer and seeds, the next update is equal to the bit."""
    model = agent(policy="MlpLstmPolicy").learn(32)
    model.save(tmp_path / "agent")
    twins = [DistributionalPPO.load(tmp_path / "agent", env=env_of()) for _ in range(2)]
    for twin in twins:
        twin.learn(32)
    assert_same_state(*twins)
    with pytest.raises(AssertionError):
        assert_same_state(model, twins[0])


def test_every_argument_of_the_constructor_is_saved(tmp_path: Path) -> None:
    model = agent()
    model.save(tmp_path / "agent")
    stored = read(tmp_path / "agent").state["settings"]
    assert isinstance(stored, dict)
    assert set(arguments(DistributionalPPO)) <= set(stored)
    assert {"n_steps", "ent_coef", "value_clip", "stats_window_size"} <= set(stored)


def test_agent_saved_twice_is_the_same_file() -> None:
    model = agent().learn(16)
    files = [io.BytesIO(), io.BytesIO()]
    model.save(files[0])
    DistributionalPPO.load(files[0]).save(files[1])
    assert files[0].getvalue() == files[1].getvalue()


def test_subclass_with_arguments_of_its_own(tmp_path: Path) -> None:
    class Named(DistributionalPPO):
        def __init__(self, *args: Any, label: str = "none", **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.label = label

    Named("MlpPolicy", env_of(), label="mine", **SMALL).save(tmp_path / "agent")
    loaded = Named.load(tmp_path / "agent")
    assert (loaded.label, loaded.n_steps) == ("mine", 8)
    with pytest.raises(CheckpointError, match="settings label, which DistributionalPPO does not"):
        DistributionalPPO.load(tmp_path / "agent")


class Extractor(FlattenExtractor):
    """A user's own class."""


@catalogue("X46")
def test_own_classes_need_custom_objects(tmp_path: Path) -> None:
    model = agent(policy_kwargs={"features_extractor_class": Extractor}).learn(16)
    model.save(tmp_path / "agent")
    name = f"{Extractor.__module__}.Extractor"
    place = "policy_kwargs.features_extractor_class names"
    with pytest.raises(CheckpointError, match=f"{place} {name}, and only quantail, stable_base"):
        DistributionalPPO.load(tmp_path / "agent")
    for custom in ({name: Extractor}, {"policy_kwargs": model.policy_kwargs}):
        loaded = DistributionalPPO.load(tmp_path / "agent", custom_objects=custom)
        assert_same_state(model, loaded)


class Recorder(RolloutBuffer):
    """A buffer of the user's own."""


def test_what_is_given_anew_is_not_looked_up(tmp_path: Path) -> None:
    agent(rollout_buffer_class=Recorder).save(tmp_path / "agent")
    with pytest.raises(CheckpointError, match="rollout_buffer_class names .*Recorder, and only"):
        DistributionalPPO.load(tmp_path / "agent")
    loaded = DistributionalPPO.load(tmp_path / "agent", rollout_buffer_class=Recorder)
    assert loaded.rollout_buffer_class is Recorder


# --- what cannot be saved, and what can be changed ------------------------------------------------


def test_a_function_can_be_left_out_and_given_again(tmp_path: Path) -> None:
    def doubled(progress: float) -> float:
        return 2e-4 * progress

    agent(learning_rate=doubled).save(tmp_path / "agent", exclude=["learning_rate"])
    for given in ({"learning_rate": doubled}, {"custom_objects": {"learning_rate": doubled}}):
        loaded = DistributionalPPO.load(tmp_path / "agent", **given)
        assert loaded.learning_rate is doubled
    with pytest.warns(QuantailWarning, match="learning_rate was left out of the file, and is now"):
        DistributionalPPO.load(tmp_path / "agent")


def test_include_and_exclude(tmp_path: Path) -> None:
    model = agent(verbose=2)
    model.save(tmp_path / "agent", exclude=["verbose", "num_timesteps"], include=["verbose"])
    assert DistributionalPPO.load(tmp_path / "agent").verbose == 2
    with pytest.raises(ConfigError, match="include names env, which cannot be saved"):
        model.save(tmp_path / "agent", include=["env"])
    with pytest.raises(ConfigError, match="exclude names action_space, without which"):
        model.save(tmp_path / "agent", exclude=["action_space"])


def test_a_name_to_exclude_that_is_misspelled_is_told(tmp_path: Path) -> None:
    message = "exclude names learnin_rate, which an agent does not have; did you mean learning_rate"
    with pytest.warns(QuantailWarning, match=message) as told:
        agent().save(tmp_path / "agent", exclude=["learnin_rate", "policy", "verbose"])
    assert len(told) == 1
    assert told[0].filename == __file__


def test_changed_arguments_take_effect(tmp_path: Path) -> None:
    agent().save(tmp_path / "agent")
    loaded = DistributionalPPO.load(
        tmp_path / "agent",
        n_epochs=3,
        gamma=0.5,
        clip_range_vf=0.75,
        custom_objects={"learning_rate": 0.25},
    )
    assert loaded.clip_range_vf(1.0) == 0.75
    assert loaded.learner_config.value_clip.kind == "mean_only"
    assert loaded.learner_config.n_epochs == loaded.n_epochs == 3
    assert loaded.learner_config.targets.gamma == 0.5
    assert loaded.lr_schedule(1.0) == loaded.learning_rate == 0.25


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_epoch": 3}, "load.. cannot change n_epoch; did you mean n_epochs?"),
        ({"gamma": 2.0}, "gamma: must be at most 1; was 2.0"),
        ({"policy_kwargs": {"net_arch": [3]}}, "policy_kwargs must equal those of the saved agent"),
        ({"critic": ScalarCritic()}, "critic must equal that of the saved agent"),
        ({"twin": "off"}, "twin must equal that of the saved agent"),
    ],
)
def test_changes_that_cannot_be(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    agent(policy_kwargs={"net_arch": [4]}, critic=QuantileCritic()).save(tmp_path / "agent")
    with pytest.raises(ConfigError, match=message):
        DistributionalPPO.load(tmp_path / "agent", **given)


def test_the_same_arguments_can_be_given_again(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "policy_kwargs": {"net_arch": [4]},
        "critic": QuantileCritic(),
        "twin": "off",
        **SMALL,
    }
    model = agent(**given)
    model.save(tmp_path / "agent")
    loaded = DistributionalPPO.load(tmp_path / "agent", **given)
    assert loaded.policy_kwargs == model.policy_kwargs
    assert loaded.policy_kwargs == {"net_arch": [4], "critic": QuantileCritic(), "twin": "off"}


def test_custom_object_that_replaces_nothing_is_told(tmp_path: Path) -> None:
    agent().save(tmp_path / "agent")
    with pytest.warns(
        QuantailWarning, match=r"custom_objects\['learnin_rate'\] replaces nothing"
    ) as told:
        loaded = DistributionalPPO.load(tmp_path / "agent", custom_objects={"learnin_rate": 1.0})
    assert not hasattr(loaded, "learnin_rate")
    assert told[0].filename == __file__


def test_given_optimizer_settings_come_before_saved_ones(tmp_path: Path) -> None:
    kwargs = {"optimizer_class": torch.optim.AdamW, "optimizer_kwargs": {"weight_decay": 0.5}}
    agent(policy_kwargs=kwargs).learn(16).save(tmp_path / "agent")
    for decay in (0.5, 0.25):
        changed = {**kwargs, "optimizer_kwargs": {"weight_decay": decay}}
        custom = {"policy_kwargs": changed} if decay != 0.5 else {}
        loaded = DistributionalPPO.load(tmp_path / "agent", custom_objects=custom)
        assert loaded.policy.optimizer.param_groups[0]["weight_decay"] == decay
        assert loaded.policy.optimizer.state_dict()["state"]


# --- where it is loaded ---------------------------------------------------------------------------


def test_environment_must_have_the_spaces(tmp_path: Path) -> None:
    agent().save(tmp_path / "agent")
    with pytest.raises(CheckpointError, match="Observation spaces do not match: the agent has Box"):
        DistributionalPPO.load(tmp_path / "agent", env=env_of(spaces.Box(-1.0, 2.0, (3,))))
    with pytest.raises(CheckpointError, match="Action spaces do not match: the agent has Discrete"):
        DistributionalPPO.load(tmp_path / "agent", env=env_of(action_space=spaces.Discrete(2)))


def test_going_on_without_reset_and_with_other_numbers_of_environments(tmp_path: Path) -> None:
    model = agent().learn(16)
    model.save(tmp_path / "agent")
    kept = DistributionalPPO.load(tmp_path / "agent", env=model.get_env(), force_reset=False)
    np.testing.assert_array_equal(kept._last_obs, model._last_obs)
    kept.learn(16, reset_num_timesteps=False)
    assert kept.num_timesteps == 32
    assert DistributionalPPO.load(tmp_path / "agent", env=model.get_env())._last_obs is None
    wider = DistributionalPPO.load(tmp_path / "agent", env=env_of(n=4))
    assert wider.n_envs == 4
    wider.learn(32)
    with pytest.raises(CheckpointError, match="stopped in 2 environments, .* has 4; .*force_reset"):
        DistributionalPPO.load(tmp_path / "agent", env=env_of(n=4), force_reset=False)


# --- callbacks ------------------------------------------------------------------------------------


def test_callbacks_of_stable_baselines3_save_loadable_agents(tmp_path: Path) -> None:
    env = make_vec_env("CartPole-v1", 2, seed=0)
    evaluation = EvalCallback(
        make_vec_env("CartPole-v1", 1, seed=1),
        best_model_save_path=str(tmp_path),
        n_eval_episodes=1,
        eval_freq=8,
        verbose=0,
        warn=False,
    )
    checkpoints = CheckpointCallback(8, str(tmp_path), save_vecnormalize=True)
    model = agent(env, "MlpLstmPolicy").learn(32, [evaluation, checkpoints])
    assert sorted(path.name for path in tmp_path.glob("*.zip")) == [
        "best_model.zip",
        "rl_model_16_steps.zip",
        "rl_model_32_steps.zip",
    ]
    last = DistributionalPPO.load(tmp_path / "rl_model_32_steps", env=env)
    assert last.num_timesteps == 32
    best = DistributionalPPO.load(os.fspath(tmp_path / "best_model.zip"))
    for loaded in (last, best):
        assert set(loaded.policy.state_dict()) == set(model.policy.state_dict())
