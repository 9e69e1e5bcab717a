"""Files of agents that are hostile, damaged, or do not fit: each is one clear error."""

import io
import json
import random
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.utils import LinearSchedule
from stable_baselines3.common.vec_env import VecNormalize

from quantail import DistributionalPPO
from quantail.checkpoint.archive import Checkpoint, CheckpointError, from_bytes, to_bytes, write
from quantail.errors import QuantailError
from tests.catalogue import catalogue
from tests.checkpoint.agents import agent, env_of


@pytest.fixture(scope="module")
def saved() -> bytes:
    file = io.BytesIO()
    agent(policy="MlpLstmPolicy").learn(16).save(file)
    return file.getvalue()


def forged(saved: bytes, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> io.BytesIO:
    """A file with another content and a manifest that fits it, as whoever forges one can make."""
    checkpoint = from_bytes(saved)
    state: Any = checkpoint.state
    tensors = {group: dict(part) for group, part in checkpoint.tensors.items()}
    change(state, tensors)
    return io.BytesIO(to_bytes(Checkpoint(state, tensors)))


@catalogue("X46")
@pytest.mark.parametrize(
    "full",
    ["os.system", "builtins.eval", "subprocess.Popen", "posix.system", "tests.evil.Payload"],
)
@pytest.mark.parametrize("place", ["policy_class", "policy_kwargs", "learning_rate", "optimizer"])
@pytest.mark.parametrize("kind", ["class", "object"])
def test_hostile_file_is_refused_by_name_and_runs_nothing(
    full: str, place: str, kind: str, saved: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "boom"
    for target in ("os.system", "builtins.eval", "subprocess.Popen", "posix.system"):
        monkeypatch.setattr(target, lambda *_, **__: marker.touch())
    module, _, name = full.rpartition(".")
    node: dict[str, Any] = {"$": kind, "module": module, "name": name}
    if kind == "object":
        node["fields"] = {"command": f"touch {marker}"}

    def plant(state: dict[str, Any], _: dict[str, Any]) -> None:
        if place == "optimizer":
            state["optimizer"]["param_groups"][0]["lr"] = node
        elif place == "policy_kwargs":
            state["settings"]["policy_kwargs"]["activation_fn"] = node
        else:
            state["settings"][place] = node

    with pytest.raises(CheckpointError, match=f"names {full}, and only quantail, stable_base"):
        DistributionalPPO.load(forged(saved, plant))
    assert not marker.exists()


def test_zip_of_stable_baselines3_is_not_unpickled(tmp_path: Path) -> None:
    PPO("MlpPolicy", env_of(), n_steps=8, batch_size=16).save(tmp_path / "theirs")
    with pytest.raises(CheckpointError, match="was saved by Stable-Baselines3, as pickles"):
        DistributionalPPO.load(tmp_path / "theirs")
    with pytest.raises(CheckpointError, match="was saved by Stable-Baselines3, as pickles"):
        agent().set_parameters(tmp_path / "theirs")


def _drop_weight(_: Any, tensors: Any) -> None:
    tensors["policy"].popitem()


def _add_weight(_: Any, tensors: Any) -> None:
    tensors["policy"]["extra"] = torch.zeros(1)


def _reshape_weight(_: Any, tensors: Any) -> None:
    tensors["policy"] = {name: tensor[None] for name, tensor in tensors["policy"].items()}


def _retype_weight(_: Any, tensors: Any) -> None:
    tensors["policy"] = {name: tensor.half() for name, tensor in tensors["policy"].items()}


def _drop_moment(_: Any, tensors: Any) -> None:
    tensors["optimizer"].popitem()


def _add_moment(_: Any, tensors: Any) -> None:
    tensors["optimizer"]["extra"] = torch.zeros(1)


def _add_array(_: Any, tensors: Any) -> None:
    tensors["arrays"]["extra"] = torch.zeros(1)


def _drop_group(_: Any, tensors: Any) -> None:
    del tensors["optimizer"]


def _drop_section(state: Any, _: Any) -> None:
    del state["network"]


def _drop_setting(state: Any, _: Any) -> None:
    del state["settings"]["policy_class"]


def _add_setting(state: Any, _: Any) -> None:
    state["settings"]["learn"] = 3


def _drop_progress(state: Any, _: Any) -> None:
    del state["progress"]["num_timesteps"]


def _other_policy(state: Any, _: Any) -> None:
    state["settings"]["policy_class"] = {
        "$": "class",
        "module": "stable_baselines3.common.policies",
        "name": "ActorCriticPolicy",
    }


def _no_space(state: Any, _: Any) -> None:
    state["settings"]["action_space"] = 3


def _other_network(state: Any, _: Any) -> None:
    state["network"]["fields"]["critic"]["fields"]["kappa"] = 0.5


@catalogue("F74")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_drop_weight, "policy: the tensors do not fit: missing net"),
        (_add_weight, "policy: the tensors do not fit: unknown extra"),
        (_reshape_weight, r"policy: the tensors do not fit: .* is float\d+ \[1.* where"),
        (_retype_weight, "policy: the tensors do not fit: .* is float16 .* where"),
        (_drop_moment, "optimizer.safetensors: .*: missing optimizer.state"),
        (_add_moment, "optimizer.safetensors: .*: unknown extra"),
        (_add_array, "arrays.safetensors: .*: unknown extra"),
        (_drop_group, "does not hold an agent: it has the parts"),
        (_drop_section, "does not hold an agent: it has the parts"),
        (_drop_setting, "lacks the settings policy_class"),
        (_add_setting, "has the settings learn, which DistributionalPPO does not know"),
        (_drop_progress, "progress must have .*num_timesteps"),
        (_other_policy, "policy_class must be a Quantail policy; was .*ActorCriticPolicy"),
        (_no_space, "action_space must be a space; was 3"),
        (_other_network, "the network is not built as it was .*: critic was .*kappa=0.5"),
    ],
)
def test_file_that_does_not_fit_is_one_clear_error(
    change: Callable[[Any, Any], None], message: str, saved: bytes
) -> None:
    DistributionalPPO.load(forged(saved, lambda *_: None))
    with pytest.raises(CheckpointError, match=message):
        DistributionalPPO.load(forged(saved, change))


@pytest.mark.parametrize("member", ["manifest", "state", "policy", "optimizer", "arrays"])
def test_flipped_bit_in_any_member_of_an_agent_is_refused(member: str, saved: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(saved)) as source:
        name = next(name for name in source.namelist() if name.startswith(member))
        content = source.read(name)
    damaged = bytearray(saved)
    damaged[saved.index(content) + len(content) // 2] ^= 1
    for action in (DistributionalPPO.load, agent().set_parameters):
        with pytest.raises(CheckpointError, match=f"'{name}'.*is damaged"):
            action(io.BytesIO(bytes(damaged)))
    with pytest.raises(CheckpointError, match="wasn't a zip-file, or not a whole one"):
        DistributionalPPO.load(io.BytesIO(saved[: len(saved) // 2]))


@catalogue("F74")
@pytest.mark.parametrize("number", [0, 2])
def test_agent_of_another_format_is_refused(number: int, saved: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(saved)) as source:
        members = {name: source.read(name) for name in source.namelist()}
    manifest = {**json.loads(members["manifest.json"]), "format": number}
    members["manifest.json"] = json.dumps(manifest).encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as target:
        for name, content in members.items():
            target.writestr(name, content)
    with pytest.raises(CheckpointError, match=f"has format {number}, written by quantail"):
        DistributionalPPO.load(file)


def test_checkpoint_that_is_no_agent_is_told(tmp_path: Path) -> None:
    write(tmp_path / "other", Checkpoint({"members": 3}, {}))
    with pytest.raises(CheckpointError, match="other.zip does not hold an agent: it has the parts"):
        DistributionalPPO.load(tmp_path / "other")


def test_versions_are_printed(saved: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    DistributionalPPO.load(io.BytesIO(saved), print_system_info=True)
    printed = capsys.readouterr().out
    assert "== CURRENT SYSTEM INFO ==" in printed
    assert "== SAVED SYSTEM INFO ==" in printed
    assert f"- torch: {torch.__version__}" in printed


NONSENSE: list[Any] = [
    None,
    -1,
    1e300,
    "x",
    [],
    {"a": 1},
    {"$": "x"},
    {"$": "float", "value": "nan"},
    {"$": "class", "module": "torch.optim.adam", "name": "Adam"},
    {
        "$": "object",
        "module": "stable_baselines3.common.utils",
        "name": "LinearSchedule",
        "fields": {"start": "x", "end": None, "end_fraction": 1},
    },
]


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to every node; of long lists, to the first ones."""
    if path:
        yield path
    items = node.items() if isinstance(node, dict) else ()
    if isinstance(node, list):
        items = enumerate(node[:2])
    for key, part in items:
        yield from places(part, (*path, key))


def test_nonsense_anywhere_is_one_clear_error_or_harmless() -> None:
    buffer = io.BytesIO()
    schedule = LinearSchedule(1e-3, 0.0, 0.5)
    model = agent(VecNormalize(env_of()), learning_rate=schedule, clip_range=lambda p: 0.2 * p)
    model.learn(16).save(buffer)
    whole = from_bytes(buffer.getvalue())
    damages = [(path, value) for path in places(whole.state) for value in NONSENSE]
    refused = 0
    for path, value in random.Random(0).sample(damages, 150):
        state = json.loads(json.dumps(whole.state))
        node = state
        for key in path[:-1]:
            node = node[key]
        node[path[-1]] = value
        data = io.BytesIO(to_bytes(Checkpoint(state, whole.tensors)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                DistributionalPPO.load(data, env=VecNormalize(env_of()))
            except QuantailError:
                refused += 1
    assert refused > 100


def test_nonsense_is_told_with_the_file_and_what_was_given(tmp_path: Path) -> None:
    agent().save(tmp_path / "agent")
    whole = from_bytes((tmp_path / "agent.zip").read_bytes())
    state: Any = {**whole.state, "settings": {**whole.state["settings"], "verbose": "x"}}
    (tmp_path / "agent.zip").write_bytes(to_bytes(Checkpoint(state, whole.tensors)))
    with pytest.raises(CheckpointError, match="what .*agent.zip holds does not make an agent: Typ"):
        DistributionalPPO.load(tmp_path / "agent")
    with pytest.raises(CheckpointError, match="holds together with gamma as given to load"):
        DistributionalPPO.load(tmp_path / "agent", gamma=0.9)
