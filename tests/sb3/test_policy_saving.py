"""A policy by itself in a file."""

import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.torch_layers import FlattenExtractor

from quantail import DistributionalPPO
from quantail.checkpoint.archive import CheckpointError, read, write
from quantail.sb3.policy import MlpLstmPolicy
from quantail.sb3.policy_saving import load_policy, save_policy
from tests.catalogue import catalogue
from tests.checkpoint.agents import agent, env_of
from tests.sb3.test_saving import KINDS


class Extractor(FlattenExtractor):
    """A user's own class."""


@pytest.mark.parametrize("kind", ["lstm", "image", "dict", "box", "network", "categorical"])
def test_policy_by_itself(kind: str, tmp_path: Path) -> None:
    observation_space, action_space, policy, given = KINDS[kind]
    env = env_of(observation_space, action_space)
    model = agent(env, policy, **given).learn(16)
    save_policy(model.policy, tmp_path / "policy")
    loaded = load_policy(type(model.policy), tmp_path / "policy", device="cpu")
    for name, tensor in model.policy.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name
    observations: Any = env.reset()
    for expected, found in zip(
        model.policy.predict(observations, deterministic=True),
        loaded.predict(observations, deterministic=True),
        strict=True,
    ):
        np.testing.assert_equal(expected, found)


@catalogue("X46")
def test_policy_file_that_is_wrong_is_refused(tmp_path: Path) -> None:
    model = agent(policy_kwargs={"features_extractor_class": Extractor})
    model.save(tmp_path / "agent")
    save_policy(model.policy, tmp_path / "policy")
    kind, name = type(model.policy), f"{Extractor.__module__}.Extractor"
    with pytest.raises(CheckpointError, match=f"features_extractor_class names {name}, and only"):
        load_policy(kind, tmp_path / "policy")
    load_policy(kind, tmp_path / "policy", custom_objects={name: Extractor})
    with pytest.raises(CheckpointError, match="agent.zip does not hold a policy by itself"):
        load_policy(kind, tmp_path / "agent")
    with pytest.raises(CheckpointError, match="does not hold an agent"):
        DistributionalPPO.load(tmp_path / "policy")
    with pytest.raises(CheckpointError, match="holds a .*MlpPolicy; load it with that class, not"):
        load_policy(MlpLstmPolicy, tmp_path / "policy")
    stored = read(tmp_path / "policy")
    weights = dict(stored.tensors["policy"])
    weights.popitem()
    write(tmp_path / "policy", replace(stored, tensors={**stored.tensors, "policy": weights}))
    with pytest.raises(CheckpointError, match="policy: the tensors do not fit: missing"):
        load_policy(kind, tmp_path / "policy", custom_objects={name: Extractor})


@catalogue("X46")
def test_a_policy_by_itself_is_saved_by_its_own_method_without_pickle(tmp_path: Path) -> None:
    model = DistributionalPPO("MlpLstmPolicy", make_vec_env("CartPole-v1", 2, seed=0), seed=0)
    model.policy.save(tmp_path / "policy")
    with zipfile.ZipFile(tmp_path / "policy.zip") as archive:
        assert {Path(name).suffix for name in archive.namelist()} == {".json", ".safetensors"}
    loaded = type(model.policy).load(tmp_path / "policy")
    for name, value in model.policy.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name])
