"""Parts of an agent put back: statistics of VecNormalize, weights, optimizer state."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecCheckNan, VecFrameStack, VecNormalize

from quantail import DistributionalPPO
from quantail.checkpoint.archive import CheckpointError
from quantail.errors import QuantailWarning
from tests.catalogue import catalogue
from tests.checkpoint.agents import MIXED, agent, assert_same_state, env_of


def normalized(order: str, **given: Any) -> Any:
    env: Any = make_vec_env("CartPole-v1", 2, seed=0)
    wrappers: dict[str, Callable[[Any], Any]] = {
        "n": lambda inner: VecNormalize(inner, **given),
        "s": lambda inner: VecFrameStack(inner, 2),
        "m": VecCheckNan,
    }
    for letter in order:
        env = wrappers[letter](env)
    return env


def normalizers(env: Any) -> list[VecNormalize]:
    found = []
    while hasattr(env, "venv"):
        found += [env] if isinstance(env, VecNormalize) else []
        env = env.venv
    return found


@pytest.mark.parametrize("order", ["n", "nsm", "snm", "smn", "nsn"])
def test_vec_normalize_is_saved_and_restored_anywhere(order: str, tmp_path: Path) -> None:
    model = agent(normalized(order, clip_obs=3.0)).learn(64)
    model.save(tmp_path / "agent")
    env = normalized(order, training=False, norm_reward=False)
    loaded = DistributionalPPO.load(tmp_path / "agent", env=env)
    pairs = list(zip(normalizers(model.get_env()), normalizers(env), strict=True))
    assert len(pairs) == order.count("n")
    for old, new in pairs:
        for name in ("obs_rms", "ret_rms"):
            before, after = getattr(old, name), getattr(new, name)
            np.testing.assert_array_equal(before.mean, after.mean)
            np.testing.assert_array_equal(before.var, after.var)
            assert before.count == after.count > 50
        assert (new.clip_obs, new.training, new.norm_reward) == (3.0, False, False)
    assert loaded.get_vec_normalize_env() is normalizers(env)[0]
    env.training = True
    loaded.learn(16)


def test_vec_normalize_over_dict_observations(tmp_path: Path) -> None:
    def make() -> VecNormalize:
        return VecNormalize(env_of(MIXED), norm_obs_keys=["vector"])

    model = agent(make(), "MultiInputPolicy").learn(16)
    model.save(tmp_path / "agent")
    env = make()
    DistributionalPPO.load(tmp_path / "agent", env=env)
    saved: Any = model.get_vec_normalize_env().obs_rms
    restored: Any = env.obs_rms
    assert list(restored) == ["vector"]
    np.testing.assert_array_equal(restored["vector"].mean, saved["vector"].mean)


def test_vec_normalize_must_be_there(tmp_path: Path) -> None:
    agent(normalized("n")).learn(16).save(tmp_path / "agent")
    agent(normalized("")).learn(16).save(tmp_path / "plain")
    load = DistributionalPPO.load
    message = (
        r"trained with 1 VecNormalize wrapper\(s\), and env has 0; pass env=VecNormalize\(env\)"
    )
    with pytest.raises(CheckpointError, match=message):
        load(tmp_path / "agent", env=normalized(""))
    with pytest.raises(CheckpointError, match=r"VecNormalize\(norm_obs=True\), and env has norm_o"):
        load(tmp_path / "agent", env=normalized("n", norm_obs=False))
    with pytest.warns(QuantailWarning, match="without env its statistics are not restored") as told:
        load(tmp_path / "agent")
    assert told[0].filename == __file__
    with pytest.warns(QuantailWarning, match="the agent was trained without one"):
        load(tmp_path / "plain", env=normalized("n"))
    load(tmp_path / "agent", env=normalized(""), custom_objects={"vec_normalize": None})


# --- parameters alone -----------------------------------------------------------------------------


@catalogue("X12")
def test_parameters_from_a_file_and_from_a_dict(tmp_path: Path) -> None:
    source, first, second = agent().learn(32), agent(seed=1), agent(seed=2)
    source.save(tmp_path / "agent")
    first.set_parameters(tmp_path / "agent")
    second.set_parameters(source.get_parameters())
    for model in (first, second):
        model.num_timesteps, model._total_timesteps = source.num_timesteps, source._total_timesteps
        model._n_updates, model.ep_info_buffer = source._n_updates, source.ep_info_buffer
        model._current_progress_remaining = source._current_progress_remaining
        assert_same_state(source, model)


@catalogue("X12")
@pytest.mark.parametrize("exact", [True, False])
def test_parameters_under_other_keys_change_nothing_silently(exact: bool) -> None:
    """The keys of another program (policy_state) are refused, not skipped."""
    source, model = agent().learn(16), agent(seed=1)
    before = {name: value.clone() for name, value in model.policy.state_dict().items()}
    weights, optimizer = source.get_parameters().values()
    first = next(iter(weights))
    for wrong, message in (
        ({"policy_state": weights, "policy.optimizer": optimizer}, "the agent has no policy_state"),
        (
            {"policy": {f"module.{name}": t for name, t in weights.items()}},
            "the parameters lack policy.optimizer" if exact else f"unknown module.{first}",
        ),
        (
            {"policy": {**weights, first: torch.zeros(99)}, "policy.optimizer": optimizer},
            rf"{first} is float32 \[99\] where",
        ),
        (
            {"policy": weights, "policy.optimizer": {**optimizer, "param_groups": []}},
            r"groups of \[\] parameters",
        ),
        ({"policy": weights, "policy.optimizer": {"state": {}}}, "must have state and param_gr"),
    ):
        with pytest.raises(CheckpointError, match=message):
            model.set_parameters(wrong, exact_match=exact)
    for name, value in model.policy.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert not model.policy.optimizer.state_dict()["state"]


def test_part_of_the_parameters() -> None:
    source, model = agent(), agent(seed=1)
    name, tensor = next(iter(source.policy.state_dict().items()))
    others = {key: value.clone() for key, value in model.policy.state_dict().items() if key != name}
    model.set_parameters({"policy": {name: tensor}}, exact_match=False)
    assert torch.equal(model.policy.state_dict()[name], tensor)
    for key, value in others.items():
        assert torch.equal(model.policy.state_dict()[key], value)
    with pytest.raises(CheckpointError, match="the parameters lack policy.optimizer"):
        model.set_parameters({"policy": {name: tensor}})


def test_optimizer_state_of_other_shapes_is_refused() -> None:
    source, model = agent().learn(16), agent(seed=1)
    optimizer = source.get_parameters()["policy.optimizer"]
    rows, columns = optimizer["state"][0]["exp_avg"].shape
    for shape in ((1, rows, columns), (rows, columns + 1), (rows + 1,)):
        optimizer["state"][0]["exp_avg"] = torch.zeros(shape)
        with pytest.raises(CheckpointError, match=r"exp_avg of parameter 0 has shape \["):
            model.set_parameters({"policy.optimizer": optimizer}, exact_match=False)
    optimizer["state"] = {999: {}}
    with pytest.raises(CheckpointError, match=r"a state of unknown parameters \[999\]"):
        model.set_parameters({"policy.optimizer": optimizer}, exact_match=False)
