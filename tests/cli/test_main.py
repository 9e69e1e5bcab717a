"""The command line as a user meets it: real processes, real exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import quantail
from quantail import cli
from tests.catalogue import ROOT, catalogue

CONFIG = ROOT / "configs" / "data_check.yaml"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = Path(sys.executable).with_name("quantail")
    return subprocess.run([command, *arguments], capture_output=True, text=True, check=False)


def test_help_lists_the_verbs() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "data" in done.stdout


@pytest.mark.parametrize(
    "verb", [[], ["init"], ["train"], ["evaluate"], ["report"], ["doctor"], ["data"],
             ["data", "check"]], ids=" ".join,
)  # fmt: skip
def test_every_help_has_examples(
    verb: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["quantail", *verb, "--help"])
    with pytest.raises(SystemExit):
        cli.main()
    example = capsys.readouterr().out.split("Examples")[1]
    assert f"quantail {' '.join(verb)}".rstrip() in example


def test_init_tells_machines_where_it_wrote(tmp_path: Path) -> None:
    done = run("init", str(tmp_path / "my.yaml"), "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"config": str(tmp_path / "my.yaml")}
    assert (tmp_path / "my.yaml").is_file()


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"quantail {quantail.__version__}\n")


@catalogue("X05")
def test_unknown_key_is_one_message_and_exit_code_2() -> None:
    done = run("data", "check", str(CONFIG), "--set", "source.sed=3")
    assert done.returncode == 2
    assert done.stderr == (
        "Configuration has 1 error:\n"
        "  source.sed: is not a known key; did you mean 'source.seed'?   [--set source.sed=3]\n"
    )


def test_missing_file_is_one_message_and_exit_code_2() -> None:
    done = run("data", "check", "nowhere.yaml")
    assert done.returncode == 2
    assert "cannot be read: No such file or directory   [nowhere.yaml]" in done.stderr
    assert "Traceback" not in done.stderr
