"""The file: whole or refused, old or new but never half."""

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from quantail.checkpoint import archive
from quantail.checkpoint.archive import (
    FORMAT,
    MANIFEST,
    STATE,
    Checkpoint,
    CheckpointError,
    from_bytes,
    read,
    to_bytes,
    write,
)
from tests.catalogue import catalogue

STATE_GIVEN: dict[str, Any] = {"steps": 3, "rate": 1e-3, "name": "Ω", "list": [None, True, -1]}
TENSORS = {
    "policy": {
        "w": torch.arange(6, dtype=torch.float32).reshape(2, 3).T,
        "count": torch.tensor(7, dtype=torch.int64),
        "mean": torch.tensor([0.1, float("nan")], dtype=torch.float64),
        "done": torch.tensor([True, False]),
        "empty": torch.zeros(0, 2),
    },
    "optimizer": {},
}
GIVEN = Checkpoint(STATE_GIVEN, TENSORS)


def same(first: Checkpoint, second: Checkpoint) -> bool:
    if first.state != second.state or list(first.tensors) != list(second.tensors):
        return False
    return all(
        sorted(a) == sorted(b)
        and all(a[k].dtype == b[k].dtype and a[k].shape == b[k].shape for k in a)
        and all(a[k].numpy().tobytes() == b[k].numpy().tobytes() for k in a)
        for a, b in zip(first.tensors.values(), second.tensors.values(), strict=True)
    )


def rewritten(data: bytes, /, **members: bytes | None) -> bytes:
    """The zip with members replaced, added or, for None, removed; ``__`` in a name is a dot."""
    changes = {name.replace("__", "."): content for name, content in members.items()}
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        contents = {name: source.read(name) for name in source.namelist()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        for name, content in {**contents, **changes}.items():
            if content is not None:
                target.writestr(name, content)
    return buffer.getvalue()


def manifest_of(data: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        content: dict[str, Any] = json.loads(source.read(MANIFEST))
    return content


def test_round_trip_to_the_bit() -> None:
    again = from_bytes(to_bytes(GIVEN))
    assert same(again, GIVEN)
    assert not same(again, Checkpoint({**STATE_GIVEN, "steps": 4}, TENSORS))


def test_same_content_gives_the_same_bytes() -> None:
    assert to_bytes(GIVEN) == to_bytes(from_bytes(to_bytes(GIVEN)))


def test_tied_tensors_are_saved() -> None:
    tied = torch.ones(3)
    again = from_bytes(to_bytes(Checkpoint({}, {"policy": {"a": tied, "b": tied[:2]}})))
    assert torch.equal(again.tensors["policy"]["b"], torch.ones(2))


def test_every_flipped_bit_is_refused_or_harmless() -> None:
    """Flip each bit of a whole file: it is refused, or reads as it was written."""
    small = Checkpoint({"a": 1}, {"policy": {"w": torch.arange(4.0)}})
    data = to_bytes(small)
    refused = 0
    for place in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[place // 8] ^= 1 << (place % 8)
        try:
            assert same(from_bytes(bytes(damaged)), small), place
        except CheckpointError:
            refused += 1
    # Harmless are times, permissions and versions in the headers; never a bit of a member.
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        assert refused > 8 * sum(info.file_size for info in source.infolist())


@pytest.mark.parametrize("member", [MANIFEST, STATE, "policy.safetensors", "optimizer.safetensors"])
def test_flipped_bit_in_a_member_is_one_clear_error(member: str) -> None:
    data = to_bytes(GIVEN)
    with zipfile.ZipFile(io.BytesIO(data)) as source:
        content = source.read(member)
    start = data.index(content)
    damaged = bytearray(data)
    damaged[start + len(content) // 2] ^= 4
    with pytest.raises(CheckpointError, match=f"Bad CRC-32 for file '{member}'.*is damaged"):
        from_bytes(bytes(damaged))


@pytest.mark.parametrize("member", [STATE, "policy.safetensors"])
def test_changed_member_with_a_right_crc_does_not_match_its_checksum(member: str) -> None:
    with zipfile.ZipFile(io.BytesIO(to_bytes(GIVEN))) as source:
        content = bytearray(source.read(member))
    content[-1] ^= 1
    data = rewritten(to_bytes(GIVEN), **{member.replace(".", "__"): bytes(content)})
    with pytest.raises(CheckpointError, match=f"agent.zip: {member} does not match its checksum"):
        from_bytes(data, "agent.zip")


def test_truncated_file_is_refused_at_every_length() -> None:
    data = to_bytes(GIVEN)
    for length in [0, 1, *range(2, len(data), 37), len(data) - 1]:
        with pytest.raises(CheckpointError, match="wasn't a zip-file, or not a whole one"):
            from_bytes(data[:length])


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"policy__safetensors": None}, "policy.safetensors is missing"),
        ({STATE.replace(".", "__"): None}, "state.json is missing"),
        ({"extra__py": b"boom"}, "extra.py is not listed"),
        ({"manifest__json": None}, "is no Quantail checkpoint: it has no manifest.json"),
        ({"manifest__json": b"{"}, "manifest.json in .* is not valid JSON"),
        ({"manifest__json": b"[" * 100_000}, "manifest.json in .* is not valid JSON"),
        ({"manifest__json": b'{"format": NaN}'}, "NaN is no JSON"),
        ({"manifest__json": b"[]"}, "has no format number"),
        ({"manifest__json": b'{"format": "1"}'}, "has no format number"),
        ({"manifest__json": b'{"format": 1}'}, "lists no members"),
        ({"policy__pth": b"", "data": b""}, "was saved by Stable-Baselines3, as pickles"),
    ],
)
def test_wrong_members_are_refused(members: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        from_bytes(rewritten(to_bytes(GIVEN), **members))


def resealed(data: bytes, /, **members: bytes) -> bytes:
    """As a forger would: change members and write a manifest that fits them."""
    changed = rewritten(data, **members)
    manifest = manifest_of(changed)
    with zipfile.ZipFile(io.BytesIO(changed)) as source:
        manifest["members"] = {
            name: {"bytes": len(source.read(name)), "sha256": archive._digest(source.read(name))}
            for name in source.namelist()
            if name != MANIFEST
        }
    return rewritten(changed, manifest__json=json.dumps(manifest).encode())


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"state__json": b"[]"}, "state.json in .* must hold keys and values"),
        ({"policy__safetensors": b"\x80\x04."}, "policy.safetensors in .* is not a safetensors"),
        ({"code__pkl": b"boom"}, "code.pkl is not of a known kind"),
    ],
)
def test_forged_members_are_refused(members: dict[str, bytes], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        from_bytes(resealed(to_bytes(GIVEN), **members))


def test_compressed_and_repeated_members_are_refused() -> None:
    with zipfile.ZipFile(io.BytesIO(to_bytes(GIVEN))) as source:
        contents = [(name, source.read(name)) for name in source.namelist()]
    for kind, members in (
        (zipfile.ZIP_DEFLATED, contents),
        (zipfile.ZIP_STORED, [*contents, contents[1]]),
    ):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", kind) as target:
            for number, (name, content) in enumerate(members):
                if number == len(contents):
                    with pytest.warns(UserWarning, match="Duplicate name"):
                        target.writestr(name, content)
                else:
                    target.writestr(name, content)
        with pytest.raises(CheckpointError, match="a repeated or compressed member"):
            from_bytes(buffer.getvalue())


@catalogue("F74")
@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (FORMAT - 1, "load it with that version and save it again with this one"),
        (FORMAT + 1, "install that version or a newer one"),
    ],
)
def test_other_format_is_refused_with_its_version_and_a_remedy(number: int, remedy: str) -> None:
    manifest = {**manifest_of(to_bytes(GIVEN)), "format": number, "quantail": "9.9"}
    data = rewritten(to_bytes(GIVEN), manifest__json=json.dumps(manifest).encode())
    message = f"agent.zip has format {number}, written by quantail 9.9; .*{remedy}"
    with pytest.raises(CheckpointError, match=message):
        from_bytes(data, "agent.zip")


@pytest.mark.parametrize("given", ["agent", "agent.zip", "deep/er/agent", "agent.v1"])
@pytest.mark.parametrize("kind", [str, Path])
def test_paths_with_and_without_suffix(tmp_path: Path, given: str, kind: Any) -> None:
    write(kind(tmp_path / given), GIVEN)
    assert same(read(kind(tmp_path / given)), GIVEN)
    expected = given if "." in given else f"{given}.zip"
    assert (tmp_path / expected).is_file()
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


def test_opened_files_are_written_read_and_left_open() -> None:
    file = io.BytesIO()
    write(file, GIVEN)
    assert same(read(file), GIVEN)
    assert not file.closed


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no saved agent at .*none, nor at .*none.zip"):
        read(tmp_path / "none")
    (tmp_path / "folder.zip").mkdir()
    with pytest.raises(CheckpointError, match="it is a folder; add a file name"):
        write(tmp_path / "folder", GIVEN)


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_failure_while_writing_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """A failure before the new name stands: the old file is whole, and no temporary is left."""
    path = tmp_path / "agent.zip"
    write(path, GIVEN)

    def fail(*_: object) -> None:
        temporary = [file for file in tmp_path.iterdir() if file != path]
        assert len(temporary) == 1
        assert same(from_bytes(temporary[0].read_bytes()), newer)
        raise OSError("disk full")

    newer = Checkpoint({"steps": 4}, TENSORS)
    monkeypatch.setattr(*(os, "fsync") if failing == "fsync" else (Path, "replace"), fail)
    with pytest.raises(OSError, match="disk full"):
        write(path, newer)
    assert same(read(path), GIVEN)
    assert list(tmp_path.iterdir()) == [path]


def test_kill_between_writing_and_renaming_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "agent.zip"
    write(path, GIVEN)
    child = os.fork()
    if child == 0:
        Path.replace = lambda *_: os.kill(os.getpid(), 9)  # type: ignore[assignment,method-assign]
        write(path, Checkpoint({"steps": 4}, {}))
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9
    assert same(read(path), GIVEN)
    assert len(list(tmp_path.iterdir())) == 2  # a temporary file, which nobody reads


def test_data_reach_the_disk_before_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    sync, rename = os.fsync, Path.replace

    def noted_sync(number: int) -> None:
        is_folder = os.path.isdir(f"/proc/self/fd/{number}")
        order.append("folder" if is_folder else "data")
        sync(number)

    def noted_rename(self: Path, target: Path) -> Path:
        order.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(Path, "replace", noted_rename)
    write(tmp_path / "agent", GIVEN)
    assert order == ["data", "rename", "folder"]


def test_saved_file_has_the_usual_permissions(tmp_path: Path) -> None:
    write(tmp_path / "agent", GIVEN)
    (tmp_path / "plain").touch()
    assert (tmp_path / "agent.zip").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_weights_can_be_read_without_quantail(tmp_path: Path) -> None:
    write(tmp_path / "agent", GIVEN)
    with zipfile.ZipFile(tmp_path / "agent.zip") as source:
        weights = safetensors.torch.load(source.read("policy.safetensors"))
    assert torch.equal(weights["w"], TENSORS["policy"]["w"])
