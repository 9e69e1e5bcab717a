"""The border: what is read, what is refused, and in which words."""

import datetime
from pathlib import Path

import pytest

from quantail.config_class import config
from quantail.config_file import parse_config, read_config, write_config
from quantail.errors import ConfigError, ConfigProblem
from tests.catalogue import catalogue
from tests.foundation.shapes import CategoricalHead, QuantileHead, Root, Window


def problems(text: str, *overrides: str, tmp_path: Path) -> list[str]:
    file = tmp_path / "run.yaml"
    file.write_text(text, "utf-8")
    with pytest.raises(ConfigError) as caught:
        read_config(Root, file, overrides)
    return [str(problem).replace(str(file), "run.yaml") for problem in caught.value.problems]


def test_numbers_and_words_follow_yaml_1_2() -> None:
    root = parse_config(Root, "learning: {rate: 1e-3}\nname: yes\nseed: 010\n")
    assert root.learning.rate == 1e-3
    assert root.name == "yes"
    assert root.seed == 10


def test_a_part_given_in_part_keeps_the_other_defaults() -> None:
    root = parse_config(Root, "head: {levels: tail}\nlearning: {rate: 0.1}\n")
    assert root.head == QuantileHead(n_quantiles=64, levels="tail")
    assert root.learning.gamma == 0.95


def test_another_kind_starts_from_its_own_defaults() -> None:
    assert parse_config(Root, "head: {kind: categorical}\n").head == CategoricalHead()
    by_kind = parse_config(Root, "head: {kind: quantile, levels: tail}\n").head
    assert by_kind == QuantileHead(n_quantiles=64, levels="tail")


def test_items_of_a_list_start_from_their_kind() -> None:
    root = parse_config(Root, "heads: [{kind: quantile}, {kind: categorical, n_atoms: 7}]\n")
    assert root.heads == (QuantileHead(), CategoricalHead(n_atoms=7))


def test_overrides_win_and_are_read_as_yaml(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("seed: 1\nlearning: {rate: 0.5}\n", "utf-8")
    root = read_config(Root, file, ["seed=7", "learning.rate=2e-4", "head.kind=categorical"])
    assert (root.seed, root.learning.rate, root.head) == (7, 2e-4, CategoricalHead())
    assert read_config(Root, overrides=["windows=[{start: 2021-05-01}]"]).windows == (
        Window(start=datetime.date(2021, 5, 1)),
    )
    assert (
        read_config(Root, overrides=["learning.max_grad_norm=null"]).learning.max_grad_norm is None
    )


@catalogue("X05", "X15", "X47")
def test_all_errors_at_once_with_path_rule_value_and_source(tmp_path: Path) -> None:
    text = """\
sed: 3
learning:
  rate: ten
  gamma: 1.5
head:
  kind: quantle
windows:
  - start: someday
heads:
  - {kind: categorical, n_atom: 5}
"""
    assert problems(text, "verbose=1", "learning.gama=0.9", tmp_path=tmp_path) == [
        "head.kind: must be one of 'quantile', 'categorical'; was 'quantle'   [run.yaml:6]",
        "heads[0].n_atom: is not a known key; did you mean 'heads[0].n_atoms'?   [run.yaml:10]",
        "learning.gama: is not a known key; did you mean 'learning.gamma'?   "
        "[--set learning.gama=0.9]",
        "learning.gamma: must be at most 1; was 1.5   [run.yaml:4]",
        "learning.rate: must be a number; was 'ten'   [run.yaml:3]",
        "sed: is not a known key; did you mean 'seed'?   [run.yaml:1]",
        "verbose: must be true or false; was 1   [--set verbose=1]",
        "windows[0].start: must be a date, as in 2024-12-31; was 'someday'   [run.yaml:8]",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; write at least one key"),
        ("# only a comment\n", "is empty; write at least one key"),
        ("- 1\n", "must hold keys and values at the top level"),
        ("seed: 1\nseed: 2\n", "seed: is given twice; keep one   [run.yaml:2]"),
        ("seed: [1\n", "is not valid YAML"),
        ("3: x\n", "has a key that is not a word: '3'"),
        ("<<: {seed: 1}\n", "uses a merge key (<<); write the keys out"),
        ("learning: 5\n", "learning: must hold keys and values; was 5   [run.yaml:1]"),
        ("learning:\n", "learning: must hold keys and values; was None   [run.yaml:1]"),
        ("windows: [{}]\n", "windows[0].start: is required   [run.yaml:1]"),
        ("heads: [{n_atoms: 5}]\n", "heads[0].kind: is required, to tell the kinds apart"),
        ("learning: {gamma: .nan}\n", "learning.gamma: must be finite; was nan"),
        ("seed: 1.0\n", "seed: must be a whole number; was 1.0"),
        ("seed: '1'\n", "seed: must be a whole number; was '1'"),
        ("seed: true\n", "seed: must be a whole number; was True"),
        ("name: 3\n", "name: must be text; was 3"),
        (
            "head: {kind: categorical, support: [1, 0]}\n",
            "head: support must rise; was (1.0, 0.0). Swap the two numbers   [run.yaml:1]",
        ),
        ("head: !!python/name:os.system {}\n", "head: has the tag 'tag:yaml.org,2002:python/name"),
        ("seed: !!int x\n", "seed: cannot be read as a whole number"),
        (
            'name: "\\ud800"\n',
            "name: must be text that UTF-8 can hold; was '\\ud800'",
        ),
        ("a: &a [*a]\n", "nests or repeats too much; write it out"),
    ],
)
def test_refusals(text: str, message: str, tmp_path: Path) -> None:
    assert any(message in problem for problem in problems(text, tmp_path=tmp_path))


def test_missing_and_undecodable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read: No such file.*nowhere\.yaml"):
        read_config(Root, tmp_path / "nowhere.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    with pytest.raises(ConfigError, match="must be UTF-8 text; byte 9 is 0xe9"):
        read_config(Root, tmp_path / "latin.yaml")


@pytest.mark.parametrize("override", ["seed", "=3", "learning..rate=3", ""])
def test_malformed_overrides(override: str) -> None:
    with pytest.raises(ConfigError, match=r"an override must read path\.to\.key=value"):
        read_config(Root, overrides=[override])


def test_override_with_keys_names_itself_as_the_source() -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(Root, overrides=["learning={gama: 0.9}"])
    assert str(caught.value.problems[0]).endswith("[--set learning={gama: 0.9}]")


def test_override_below_a_value_or_a_list() -> None:
    with pytest.raises(ConfigError, match="seed: has no keys: it is a value"):
        read_config(Root, overrides=["seed=1", "seed.x=2"])
    with pytest.raises(ConfigError, match="windows: has no keys: it is a list"):
        read_config(Root, overrides=["windows=[{start: 2020-01-01}]", "windows.0.start=2021-01-01"])


def test_nested_aliases_cannot_explode(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    found = problems("\n".join(lines), tmp_path=tmp_path)
    assert any("nests or repeats too much" in problem for problem in found)


def test_written_config_names_every_key() -> None:
    text = write_config(Root())
    assert "n_quantiles: 64" in text
    assert "max_grad_norm: 0.5" in text
    assert parse_config(Root, text) == Root()


def test_several_problems_of_one_check_are_listed_side_by_side() -> None:
    @config
    class Pair:
        first: int = 1
        second: int = 2

        def check(self) -> None:
            raise ConfigError(
                [ConfigProblem("first", "is odd"), ConfigProblem("second", "is even")]
            )

    @config
    class Whole:
        pair: Pair

    with pytest.raises(ConfigError) as refused:
        parse_config(Whole, "pair: {first: 3}\n")
    assert [problem.path for problem in refused.value.problems] == ["pair.first", "pair.second"]
    assert str(refused.value).count("Configuration has") == 1
