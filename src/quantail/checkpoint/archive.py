"""The file: a zip whose members are JSON and safetensors, with a manifest of their checksums.

::

    agent.zip
    ├── manifest.json          format number, and SHA-256 and size of every other member
    ├── state.json             everything that is not a tensor
    └── <group>.safetensors    tensors by name, one member for each group

Members are stored without compression and without times, so the same content gives the same bytes,
and nothing in a file can unpack to more than the file's own size. A checksum shows damage; it does
not show who wrote the file.
"""

import hashlib
import io
import json
import os
import secrets
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

import safetensors
import safetensors.torch
from torch import Tensor

from quantail.errors import QuantailError

FORMAT: Final = 1
"""Number of the format; raised by every change that makes older files read differently."""
MANIFEST: Final = "manifest.json"
STATE: Final = "state.json"
_SUFFIX: Final = ".safetensors"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
# What zipfile raises on damaged headers.
_BROKEN: Final = (
    zipfile.BadZipFile,
    EOFError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
)

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Location: TypeAlias = str | os.PathLike[str] | IO[bytes] | io.BufferedIOBase
"""A path, with or without ``.zip``, or a file opened in binary mode."""


class CheckpointError(QuantailError, ValueError, RuntimeError):
    """A saved agent was refused, or an agent cannot be saved as it is.

    It is also a ``RuntimeError``, which torch raises for tensors that do not fit.
    """


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a file holds."""

    state: dict[str, Json]
    """Everything that is not a tensor."""
    tensors: Mapping[str, Mapping[str, Tensor]]
    """Tensors by group and name."""
    name: str = "the checkpoint"
    """Where it came from, for messages."""


def write(location: Location, checkpoint: Checkpoint) -> None:
    """Write a checkpoint; a path is replaced as a whole, or left as it was when this fails.

    Args:
        location: ``.zip`` is added to a path without suffix; missing folders are created. A file is
            written from where it stands, and left open.
        checkpoint: What to write.
    """
    data = to_bytes(checkpoint)
    if isinstance(location, str | os.PathLike):
        path = Path(location)
        replace_file(path if path.suffix else path.with_name(f"{path.name}.zip"), data)
    else:
        location.write(data)


def read(location: Location) -> Checkpoint:
    """Read a checkpoint and check that it is whole.

    Args:
        location: A path, tried as it is and then with ``.zip``; or a file, read from its start.

    Raises:
        CheckpointError: The file is damaged, of another format, or no checkpoint.
        FileNotFoundError: There is no such file.
    """
    if not isinstance(location, str | os.PathLike):
        location.seek(0)
        return from_bytes(location.read(), getattr(location, "name", None) or "the opened file")
    path = Path(location)
    candidates = [path, path.with_name(f"{path.name}.zip")]
    for candidate in candidates:
        if candidate.is_file():
            return from_bytes(candidate.read_bytes(), candidate)
    raise FileNotFoundError(f"no saved agent at {path}, nor at {candidates[1]}")


def to_bytes(checkpoint: Checkpoint) -> bytes:
    """Return the bytes of the file; the same content gives the same bytes."""
    members = {STATE: _dumps(checkpoint.state)}
    for group, tensors in checkpoint.tensors.items():
        # Copies: safetensors refuses tensors that share memory, as tied weights do.
        plain = {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}
        members[group + _SUFFIX] = safetensors.torch.save(
            {name: tensor.contiguous() for name, tensor in plain.items()}
        )
    manifest: Json = {
        "format": FORMAT,
        "quantail": version("quantail"),
        "members": {
            name: {"bytes": len(data), "sha256": _digest(data)} for name, data in members.items()
        },
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in {MANIFEST: _dumps(manifest), **members}.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), data)
    return buffer.getvalue()


def from_bytes(data: bytes, name: object = "the checkpoint") -> Checkpoint:
    """Return the checkpoint in ``data``; ``name`` tells in messages where they came from."""
    members = _members(data, name)
    manifest = _manifest(members.pop(MANIFEST), name)
    _check_members(members, manifest["members"], name)
    state = _loads(members.pop(STATE), f"{STATE} in {name}")
    if not isinstance(state, dict):
        raise CheckpointError(f"{STATE} in {name} must hold keys and values; {_AGAIN}")
    tensors = {}
    for member, content in members.items():
        try:
            tensors[member.removesuffix(_SUFFIX)] = safetensors.torch.load(content)
        except safetensors.SafetensorError as error:
            raise CheckpointError(
                f"{member} in {name} is not a safetensors file: {error}; {_AGAIN}"
            ) from error
    return Checkpoint(state, tensors, str(name))


def replace_file(path: Path, data: bytes) -> None:
    """Put ``data`` at ``path`` so that whoever looks finds the old file or the whole new one.

    The data are on disk before the name points to them, and the name is on disk before this
    returns, so that neither a crash nor a power cut leaves half a file under ``path``.
    """
    if path.is_dir():
        raise CheckpointError(f"cannot save to {path}: it is a folder; add a file name")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # elsewhere a folder cannot be opened
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


_AGAIN: Final = "the file is damaged or was made by other means. Save the agent again"


def _members(data: bytes, name: object) -> dict[str, bytes]:
    """Return the members of the zip, refusing what :func:`to_bytes` never writes."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            names = [info.filename for info in infos]
            if "policy.pth" in names:
                raise CheckpointError(
                    f"{name} was saved by Stable-Baselines3, as pickles, which run code when they "
                    "are loaded. Load it there, and hand its weights over with set_parameters()"
                )
            if MANIFEST not in names:
                raise CheckpointError(f"{name} is no Quantail checkpoint: it has no {MANIFEST}")
            if len(set(names)) < len(names) or any(info.compress_type for info in infos):
                raise CheckpointError(f"{name} has a repeated or compressed member; {_AGAIN}")
            return {info.filename: archive.read(info) for info in infos}
    except CheckpointError:
        raise
    except _BROKEN as error:
        raise CheckpointError(
            f"{name} wasn't a zip-file, or not a whole one ({error}); {_AGAIN}"
        ) from error


def _manifest(data: bytes, name: object) -> dict[str, Any]:
    """Return the manifest, refusing every format but our own."""
    manifest = _loads(data, f"{MANIFEST} in {name}")
    number = manifest.get("format") if isinstance(manifest, dict) else None
    if not isinstance(manifest, dict) or type(number) is not int:
        raise CheckpointError(f"{MANIFEST} in {name} has no format number; {_AGAIN}")
    if number != FORMAT:
        remedy = (
            "install that version or a newer one"
            if number > FORMAT
            else "load it with that version and save it again with this one"
        )
        raise CheckpointError(
            f"{name} has format {number}, written by quantail {manifest.get('quantail')}; this is "
            f"quantail {version('quantail')}, which reads format {FORMAT}. To use it, {remedy}"
        )
    if not isinstance(manifest.get("members"), dict):
        raise CheckpointError(f"{MANIFEST} in {name} lists no members; {_AGAIN}")
    return manifest


def _check_members(members: Mapping[str, bytes], listed: dict[str, Any], name: object) -> None:
    """Refuse a member that is missing, not listed, or not as it was written."""
    names = {STATE, *listed}
    problems = [f"{member} is missing" for member in sorted(names - set(members))]
    problems += [f"{member} is not listed" for member in sorted(set(members) - set(listed))]
    problems += [
        f"{member} does not match its checksum"
        for member in sorted(set(members) & set(listed))
        if listed[member] != {"bytes": len(members[member]), "sha256": _digest(members[member])}
    ]
    problems += [
        f"{member} is not of a known kind"
        for member in sorted(names - {STATE})
        if not member.endswith(_SUFFIX)
    ]
    if problems:
        raise CheckpointError(f"{name}: {', '.join(problems)}; {_AGAIN}")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _dumps(value: Json) -> bytes:
    return json.dumps(value, indent=1, allow_nan=False).encode()


def _loads(data: bytes, name: str) -> Json:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    try:
        value: Json = json.loads(data, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{name} is not valid JSON: {error}; {_AGAIN}") from error
    return value
