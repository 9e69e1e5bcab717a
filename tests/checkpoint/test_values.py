"""Values to JSON and back, and which classes a file may name."""

import json
import math
import subprocess
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from stable_baselines3.common.utils import ConstantSchedule, FloatSchedule, LinearSchedule

from quantail.checkpoint.archive import CheckpointError
from quantail.checkpoint.classes import Vocabulary
from quantail.checkpoint.values import Packer, Unpacker, check_references, check_tensors
from quantail.losses.value_clip import QuantileClip
from quantail.nets.cores import LruConfig
from quantail.nets.critics import QuantileCritic
from quantail.optim.schedules import CosineSchedule
from quantail.sb3.parameters import VOCABULARY
from tests.catalogue import catalogue


def there_and_back(value: Any, custom: dict[str, Any] | None = None) -> Any:
    packer = Packer(VOCABULARY)
    node = json.loads(json.dumps(packer.pack(value, "value"), allow_nan=False))
    check_references(node, packer.tensors, "arrays")
    return unpacker(custom, packer.tensors).unpack(node, "value")


def unpacker(
    custom: dict[str, Any] | None = None, tensors: dict[str, torch.Tensor] | None = None
) -> Unpacker:
    own = Vocabulary(VOCABULARY.roots, VOCABULARY.bases, VOCABULARY.records, custom or {})
    return Unpacker(own, tensors or {})


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.just("$"), inner)
        | st.dictionaries(st.integers() | st.booleans(), inner)
    ),
    max_leaves=12,
)


def typed(value: Any) -> Any:
    """Values that compare equal across types (1, 1.0, True) told apart."""
    if isinstance(value, list | tuple):
        return (type(value), [typed(item) for item in value])
    if isinstance(value, dict):
        return (dict, [(typed(key), typed(item)) for key, item in value.items()])
    return (
        (type(value), math.copysign(1, value), value)
        if type(value) is float
        else (
            type(value),
            value,
        )
    )


@given(PLAIN)
def test_plain_values_come_back_with_their_types(value: Any) -> None:
    assert typed(there_and_back(value)) == typed(value)


def test_numbers_of_numpy_and_infinities() -> None:
    back = there_and_back([np.float64(0.1), np.int32(3), np.bool_(True), -math.inf, math.nan])
    assert back[:4] == [0.1, 3, True, -math.inf]
    assert [type(item) for item in back] == [float, int, bool, float, float]
    assert math.isnan(back[4])


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "float16", "float64"])
def test_arrays_and_tensors_to_the_bit(dtype: str) -> None:
    array = np.arange(6).astype(dtype).reshape(2, 3).T
    back = there_and_back({"a": array, "b": torch.from_numpy(array.copy()), "c": np.array(2.5)})
    assert back["a"].dtype == array.dtype
    np.testing.assert_array_equal(back["a"], array)
    assert torch.equal(back["b"], torch.from_numpy(array.copy()))
    assert back["c"].shape == ()


def test_tensors_whose_places_read_alike_are_kept_apart() -> None:
    back = there_and_back({"a": {"b": torch.tensor(1)}, "a.b": torch.tensor(2)})
    assert (int(back["a"]["b"]), int(back["a.b"])) == (1, 2)


@pytest.mark.parametrize(
    "value",
    [
        QuantileCritic(n_quantiles=7, kappa=0.5),
        LruConfig(hidden_size=8),
        QuantileClip(range=0.1),
        CosineSchedule(start=1e-3, duration=0.5),
        (torch.nn.ReLU, torch.optim.AdamW, torch.optim.Muon),
        OrderedDict(a=1),
    ],
)
def test_configurations_and_classes(value: Any) -> None:
    assert there_and_back(value) == value


def test_schedules_of_stable_baselines3() -> None:
    for schedule in (LinearSchedule(0.3, 0.1, 0.5), ConstantSchedule(0.2)):
        back = there_and_back(FloatSchedule(schedule))
        assert type(back) is FloatSchedule
        assert vars(back.value_schedule) == vars(schedule)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-1.0, 1.0, (3,)),
        spaces.Box(np.array([-np.inf, 0.1]), np.array([2.5, np.inf]), dtype=np.float64),
        spaces.Box(0, 255, (8, 8, 3), np.uint8),
        spaces.Box(-5, 7, (), np.int16),
        spaces.Discrete(5, start=-2),
        spaces.Discrete(5, dtype=np.int32),
        spaces.MultiDiscrete([3, 4], start=[1, 2]),
        spaces.MultiDiscrete(np.array([[3, 4], [5, 6]]), dtype=np.int32),
        spaces.MultiBinary(4),
        spaces.MultiBinary([2, 3]),
        spaces.Dict(OrderedDict(z=spaces.Discrete(2), a=spaces.Box(0.0, 1.0, (2,)))),
    ],
    ids=str,
)
def test_spaces(space: Any) -> None:
    back = there_and_back(space)
    assert back == space
    assert type(back) is type(space)
    assert back.dtype == space.dtype
    if isinstance(space, spaces.Box):
        np.testing.assert_array_equal(back.low, space.low)
        np.testing.assert_array_equal(back.high, space.high)
    if isinstance(space, spaces.Dict):
        assert list(back.keys()) == ["z", "a"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda x: x, "value cannot be saved: it is .*<lambda>"),
        ({"a": [1, object()]}, r"value\.a\.1 cannot be saved: it is a object"),
        ({1, 2}, "value cannot be saved: it is a set"),
        (torch.nn.Linear(1, 1), "value cannot be saved: it is a Linear"),
        (np.array(["text"]), "value is an array of <U4, not of numbers"),
        (spaces.Text(3), "value is a Text; Box, Discrete"),
        (np.random.default_rng(0), "value cannot be saved: it is a Generator"),
        (torch.nn.Parameter, "value cannot be saved: it is Parameter"),
    ],
)
def test_what_cannot_be_saved_is_refused_with_its_place(value: Any, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        Packer(VOCABULARY).pack(value, "value")


class Mine(torch.nn.Module):
    """A class of the user's."""


def test_own_classes_are_named_and_found_in_custom_objects_only() -> None:
    name = f"{__name__}.Mine"
    with pytest.raises(
        CheckpointError, match=f"value names {name}, and only quantail, .*custom_ob"
    ):
        there_and_back(Mine)
    assert there_and_back(Mine, {name: Mine}) is Mine
    with pytest.raises(CheckpointError, match="must be a class; was 3"):
        there_and_back(Mine, {name: 3})


def named(full: str, kind: str = "class", **more: Any) -> Any:
    module, _, name = full.rpartition(".")
    return {"$": kind, "module": module, "name": name, **more}


@catalogue("X46")
@pytest.mark.parametrize("kind", ["class", "object"])
@pytest.mark.parametrize(
    "full",
    [
        "os.system",
        "builtins.eval",
        "builtins.exec",
        "subprocess.Popen",
        "importlib.import_module",
        "torchvision.Tensor",
        "torch.hub.load",
        "torch.utils.cpp_extension.load",
        "quantail_evil.Payload",
        "stable_baselines3x.Payload",
        "quantail.__main__.main",
        f"{__name__}.Mine",
    ],
)
def test_class_outside_the_list_is_refused_by_name(full: str, kind: str) -> None:
    more = {"fields": {}} if kind == "object" else {}
    with pytest.raises(CheckpointError, match=f"value names {full}, and only quantail, stable_b"):
        unpacker().unpack(named(full, kind, **more), "value")


@catalogue("X46")
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("torch.nn.modules.module", "torch.os.system"),
        ("stable_baselines3.common.utils", "os.system"),
        ("stable_baselines3.common.utils", "set_random_seed"),
        ("quantail.checkpoint.archive", "zipfile.ZipFile"),
        ("quantail.checkpoint.archive", "Path"),
        ("torch.nn", "Tanh"),
        ("torch.nn.modules.activation", "Tanh.forward"),
        ("torch.nn.modules.activation", "None"),
    ],
)
def test_what_a_known_module_imports_is_not_reached(module: str, name: str) -> None:
    with pytest.raises(CheckpointError, match=f"names {module}.{name}, which is not a class defin"):
        unpacker().unpack({"$": "class", "module": module, "name": name}, "value")


@catalogue("X46")
@pytest.mark.parametrize(
    "full",
    [
        "stable_baselines3.common.logger.CSVOutputFormat",
        "stable_baselines3.common.monitor.Monitor",
        "stable_baselines3.common.vec_env.subproc_vec_env.SubprocVecEnv",
        "quantail.checkpoint.archive.Checkpoint",
    ],
)
def test_classes_that_act_when_built_are_refused(full: str) -> None:
    with pytest.raises(CheckpointError, match=f"names {full}, which is neither a network nor"):
        unpacker().unpack(named(full), "value")
    with pytest.raises(CheckpointError, match=f"an object of {full}, which files cannot build"):
        unpacker().unpack(named(full, "object", fields={"filename": "boom"}), "value")


def test_module_that_is_not_installed_is_named() -> None:
    with pytest.raises(CheckpointError, match="torch.nn.nowhere.Gone, which cannot be imported"):
        unpacker().unpack(named("torch.nn.nowhere.Gone"), "value")


@pytest.mark.parametrize(
    "node",
    [
        {"$": "pickle", "data": "gASV"},
        {"$": "tuple"},
        {"$": "tuple", "items": [], "more": 1},
        {"$": "float", "value": "1e3"},
        {"$": "class", "module": 3, "name": "Tanh"},
        {"$": ["class"], "module": "os", "name": "system"},
        {"$": "dict", "items": [[1]]},
        {"$": "dict", "items": [[[], 1]]},
        {"$": "tensor", "name": "gone"},
        {"$": "space", "space": {"kind": "Text"}},
        {"$": "space", "space": {"kind": "Discrete", "n": -3, "start": 0, "dtype": "int64"}},
        {"$": "space", "space": {"kind": "Discrete"}},
        {"$": "space", "space": {"kind": "Box", "dtype": "O", "shape": [], "low": 0, "high": 1}},
    ],
    ids=str,
)
def test_malformed_nodes_are_refused_with_their_place(node: Any) -> None:
    with pytest.raises(CheckpointError, match=r"^place\.a"):
        unpacker().unpack({"a": node}, "place")


def test_configuration_of_another_version_is_refused() -> None:
    node: Any = Packer(VOCABULARY).pack(QuantileCritic(), "critic")
    node["fields"]["n_atoms"] = 3
    with pytest.raises(CheckpointError, match="QuantileCritic has the fields .*n_atoms. It was"):
        unpacker().unpack(node, "critic")
    del node["fields"]["n_atoms"]
    node["fields"]["n_quantiles"] = 1
    with pytest.raises(
        CheckpointError, match=r"critic: (?s:.*)n_quantiles: must be at least 2; was 1"
    ):
        unpacker().unpack(node, "critic")


def test_references_and_tensors_must_agree() -> None:
    node: Any = [{"$": "tensor", "name": "a"}, {"$": "array", "name": "b"}]
    tensors = {"a": torch.zeros(1), "c": torch.zeros(1)}
    with pytest.raises(CheckpointError, match="arrays: .*: missing b; unknown c"):
        check_references(node, tensors, "arrays")


@pytest.mark.parametrize(
    ("given_tensors", "message"),
    [
        ({"a": torch.zeros(2)}, "policy: the tensors do not fit: missing b"),
        ({"a": torch.zeros(2), "b": torch.zeros(1), "c": torch.zeros(1)}, "unknown c"),
        ({"a": torch.zeros(3), "b": torch.zeros(1)}, r"a is float32 \[3\] where float32 \[2\]"),
        ({"a": torch.zeros(2).double(), "b": torch.zeros(1)}, r"a is float64 \[2\] where float32"),
        ({"a": [0, 0], "b": torch.zeros(1)}, "a is a list, not a tensor"),
    ],
)
def test_tensors_that_do_not_fit(given_tensors: Any, message: str) -> None:
    expected = {"a": torch.zeros(2), "b": torch.zeros(1)}
    check_tensors(expected, dict(expected), "policy")
    with pytest.raises(CheckpointError, match=message):
        check_tensors(expected, given_tensors, "policy")
    if "missing" in message:
        check_tensors(expected, given_tensors, "policy", exact=False)
    else:
        with pytest.raises(CheckpointError, match=message):
            check_tensors(expected, given_tensors, "policy", exact=False)


def test_popen_is_really_out_of_reach() -> None:
    """The name that the refusals above refuse does exist, so they refuse something."""
    assert isinstance(subprocess.Popen, type)
