import stat

import pytest

from quantail.errors import DataError
from quantail.report import write_pdf

PRINTING = """for word in "$@"; do
  case $word in --print-to-pdf=*) echo whole > "${word#*=}";; esac
done"""


@pytest.fixture
def only_path(monkeypatch, tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def browser_that(folder, commands: str) -> None:
    file = folder / "chromium"
    file.write_text(f"#!/bin/sh\n{commands}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)


def test_without_a_browser_the_way_out_is_named(only_path, tmp_path):
    with pytest.raises(
        DataError, match=r"needs one of chromium, .* there is none. Install Chromium .* print it"
    ):
        write_pdf(tmp_path / "report.html")


def test_a_browser_that_fails_is_named_with_its_last_word(only_path, tmp_path):
    browser_that(only_path, "echo first >&2; echo no display >&2; exit 3")
    with pytest.raises(DataError, match=r"could not print .* \(exit code 3: no display\)"):
        write_pdf(tmp_path / "report.html")


def test_a_browser_that_prints_nothing_is_no_success(only_path, tmp_path):
    browser_that(only_path, "exit 0")
    with pytest.raises(DataError, match=r"could not print .* \(exit code 0: no message\)"):
        write_pdf(tmp_path / "report.html")
    assert not (tmp_path / "report.pdf").exists()


def test_a_browser_that_dies_after_printing_is_no_success(only_path, tmp_path):
    browser_that(
        only_path,
        f"{PRINTING}; exit 4",
    )
    with pytest.raises(DataError, match=r"could not print .* \(exit code 4: no message\)"):
        write_pdf(tmp_path / "report.html")
    assert not (tmp_path / "report.pdf").exists()


def test_what_the_browser_printed_is_put_beside_the_report(only_path, tmp_path):
    browser_that(only_path, PRINTING)
    path = write_pdf(tmp_path / "report.html")
    assert path == tmp_path / "report.pdf"
    assert path.read_text() == "whole\n"
