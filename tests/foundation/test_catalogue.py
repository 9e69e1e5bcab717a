"""The regression catalogue is bound to tests, and its page tells the truth."""

from pathlib import Path

import pytest

from tests.catalogue import ENTRIES, PAGE, ROOT, catalogue, guards, page


@catalogue("F71")
def test_page_lists_exactly_the_tests_there_are() -> None:
    expected = page(guards(ROOT / "tests"))
    assert PAGE.read_text("utf-8") == expected, "docs/catalogue.md is stale; run `make docs`"


def test_every_entry_is_on_the_page_once() -> None:
    rows = [line.split(" | ")[0] for line in PAGE.read_text("utf-8").splitlines()]
    numbers = [f"F{i:02d}" for i in range(1, 75)] + [f"X{i:02d}" for i in range(1, 49)]
    assert list(ENTRIES) == numbers
    assert [row[2:] for row in rows if row[2:] in ENTRIES] == numbers


def test_unknown_id_is_refused_where_it_is_written() -> None:
    with pytest.raises(ValueError, match="@catalogue names F99; known ids are listed in"):
        catalogue("F01", "F99")
    with pytest.raises(ValueError, match="@catalogue names no entry"):
        catalogue()


def test_guards_are_found_in_functions_and_classes(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    (tests / "part").mkdir(parents=True)
    (tests / "part" / "test_a.py").write_text(
        '@catalogue("F01", "X08")\ndef test_one(): ...\n'
        "def test_two(): ...\n"
        'class TestB:\n    @catalogue("F01")\n    def test_three(self): ...\n'
    )
    assert guards(tests) == {
        "F01": ["tests/part/test_a.py::test_one", "tests/part/test_a.py::TestB::test_three"],
        "X08": ["tests/part/test_a.py::test_one"],
    }


def test_an_entry_without_tests_is_listed_as_open() -> None:
    text = page({"F01": ["tests/test_a.py::test_one"]})
    assert f"| F01 | {ENTRIES['F01']} | `tests/test_a.py::test_one` |" in text
    assert f"| F02 | {ENTRIES['F02']} | open |" in text
    assert "Covered: 1 of 122." in text
