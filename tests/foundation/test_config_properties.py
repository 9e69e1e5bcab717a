"""Any configuration survives its file; any damage to the file is one clear error."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from quantail.config_file import parse_config, read_config, write_config
from quantail.errors import ConfigError
from tests.catalogue import catalogue
from tests.foundation.shapes import CategoricalHead, QuantileHead, Root
from tests.foundation.strategies import configs


@catalogue("X15")
@settings(max_examples=300)
@given(configs(Root))
def test_config_to_yaml_to_config_is_the_identity(root: Root) -> None:
    text = write_config(root)
    assert parse_config(Root, text) == root
    assert write_config(parse_config(Root, text)) == text


VALID = write_config(
    Root(
        head=CategoricalHead(), heads=(QuantileHead(), CategoricalHead(n_atoms=3)), tags={"a": 1.0}
    )
)
# path, a value out of its range
RANGES: list[tuple[tuple[str | int, ...], Any]] = [
    (("seed",), -1),
    (("learning", "rate"), 0.0),
    (("learning", "gamma"), 1.0001),
    (("learning", "max_grad_norm"), -0.5),
    (("head", "n_atoms"), 1),
    (("heads", 0, "n_quantiles"), 513),
    (("windows",), []),
    (("learning", "rate"), float("inf")),
]
# path, values of a wrong type
TYPES: list[tuple[tuple[str | int, ...], list[Any]]] = [
    (("seed",), ["one", 1.5, True, None, [1], {"a": 1}]),
    (("verbose",), ["yes", 1, None, []]),
    (("name",), [1, True, None, ["run"]]),
    (("learning", "gamma"), ["0.9", True, None, [0.9]]),
    (("learning",), [1, "x", None, []]),
    (("head", "support"), [1, [1], [0, 1, 2], ["a", "b"], None]),
    (("heads",), [{"kind": "quantile"}, 3, "x"]),
    (("windows", 0, "start"), ["yesterday", True, [], None]),
    (("tags",), [[1], "x", {"a": "x"}]),
]
KEYS: list[tuple[str | int, ...]] = [
    ("seed",), ("learning",), ("learning", "gamma"), ("head", "n_atoms"), ("heads", 0, "levels"),
    ("windows", 0, "stop"),
]  # fmt: skip
TAGS: list[tuple[str | int, ...]] = [("head", "kind"), ("heads", 0, "kind"), ("heads", 1, "kind")]


def at(data: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        data = data[step]
    return data


def dotted(path: tuple[str | int, ...]) -> str:
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(steps).lstrip(".")


@st.composite
def damaged(draw: st.DrawFn) -> tuple[bytes, str]:
    """Draw the bytes of a damaged file and a text that the message must contain."""
    kind = draw(
        st.sampled_from(["typo", "type", "range", "tag", "duplicate", "bytes", "empty", "cut"])
    )
    data = yaml.safe_load(VALID)
    if kind == "typo":
        *parent, key = draw(st.sampled_from(KEYS))
        place = draw(st.integers(0, len(str(key))))
        wrong = str(key)[:place] + draw(st.sampled_from("xyzq_")) + str(key)[place:]
        holder = at(data, tuple(parent))
        holder[wrong] = holder.pop(key)
        names = dotted((*parent, wrong))
    elif kind in ("type", "range"):
        if kind == "range":
            path, value = draw(st.sampled_from(RANGES))
        else:
            path, values = draw(st.sampled_from(TYPES))
            value = draw(st.sampled_from(values))
        at(data, path[:-1])[path[-1]] = value
        names = dotted(path)
    elif kind == "tag":
        path = draw(st.sampled_from(TAGS))
        at(data, path[:-1])["kind"] = draw(st.sampled_from(["quantle", "", 3, None, "scalar"]))
        names = dotted(path)
    elif kind == "duplicate":
        key = draw(st.sampled_from(["seed", "name", "learning"]))
        return f"{VALID}{key}: 1\n".encode(), key
    elif kind == "bytes":
        place = draw(st.integers(0, len(VALID)))
        noise = draw(st.sampled_from([b"\xff", b"\xfe\xff", b"\xc3\x28", b"\x80"]))
        return VALID.encode()[:place] + noise + VALID.encode()[place:], "run.yaml"
    elif kind == "empty":
        return draw(st.sampled_from([b"", b"\n", b"   \n", b"# nothing\n", b"---\n"])), "run.yaml"
    else:
        return VALID.encode() + draw(st.sampled_from([b"x: [1", b"x: {a: 1", b'x: "a', b"\tx"])), ""
    return yaml.safe_dump(data).encode(), names


@catalogue("X05")
@settings(max_examples=400)
@given(damaged())
def test_any_damage_is_one_error_that_names_the_place(
    tmp_path_factory: pytest.TempPathFactory, case: tuple[bytes, str]
) -> None:
    content, names = case
    file: Path = tmp_path_factory.mktemp("damage") / "run.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_config(Root, file)
    assert names in str(caught.value)
    assert "run.yaml" in str(caught.value)


@settings(max_examples=300)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_arbitrary_bytes_never_give_anything_but_a_config_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    file: Path = tmp_path_factory.mktemp("noise") / "run.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError):
        read_config(Root, file)
