"""An entry of the shared cache: what a step wrote, as one blob of bytes, and its name in `/ac`.

A blob is a line of JSON and the contents of the files, one after another. The line names the files, each with its size
and whether it is executable, the symbolic links, the digests of the inputs that the step found while it ran, and what
it printed. Nothing of it is executed or unpickled; a file is written only where the step itself would write it.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import re
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opmatrix.basics.files import write_bytes, write_link
from opmatrix.records.step import Step

_PACKAGES = sysconfig.get_path("purelib")
_ANY = "{packages}/"
_LONGEST_HEAD = 1 << 24  # bytes of the line of JSON


class EntryError(ValueError):
    """A blob that no step of this kind wrote."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What a step wrote. All paths are relative to the project, except those of a system's headers in `inputs`, and
    those of installed packages there, which begin with `{packages}/`.

    `files`: contents. `executable`: those of them that may be executed. `links`: where symbolic links point to.
    `inputs`: the digests of the inputs that the step discovered. `log`: what it printed.
    """

    files: Mapping[str, bytes]
    executable: frozenset[str] = frozenset()
    links: Mapping[str, str]
    inputs: Mapping[str, str]
    log: str = ""

    @property
    def digests(self) -> dict[str, str]:
        """Return the sha256 of each file."""
        return {path: hashlib.sha256(content).hexdigest() for path, content in self.files.items()}


def listed(entry: Entry, step: Step, root: Path) -> list[str]:
    """Return the inputs that an entry says the step found, also those of which it has no digest."""
    if not step.discovered_inputs:
        return []
    return entry.files[relative(step.discovered_inputs, root)].decode(errors="replace").splitlines()


def relative(path: str, root: Path) -> str:
    """Return a path relative to the project, or as it is outside of it."""
    return path.removeprefix(f"{root}/")


def outputs(step: Step, root: Path) -> tuple[str, ...]:
    """Return the files that an entry of a step holds: what it writes, and its list of discovered inputs."""
    more = [step.discovered_inputs] if step.discovered_inputs else []
    return tuple(sorted({relative(path, root) for path in (*step.writes, *more)}))


def discovered(step: Step) -> list[str]:
    """Return the inputs that a step found when it last ran."""
    if step.discovered_inputs:
        with suppress(OSError, UnicodeDecodeError):
            return Path(step.discovered_inputs).read_text(encoding="utf-8").splitlines()
    return []


def here(path: str) -> str:
    """Return where an input that a step found elsewhere is on this machine."""
    return f"{_PACKAGES}/{path.removeprefix(_ANY)}" if path.startswith(_ANY) else path


def _anywhere(path: str) -> str:
    """Return the path of an input that a step found, for any machine: environments are in different folders."""
    return f"{_ANY}{path.removeprefix(f'{_PACKAGES}/')}" if path.startswith(f"{_PACKAGES}/") else path


def _lines(paths: Iterable[str]) -> bytes:
    return "".join(f"{path}\n" for path in paths).encode()


def read(step: Step, root: Path, *, inputs: Mapping[str, str], log: str = "") -> Entry:
    """Read what a step wrote. Raises OSError for a file that it did not write."""
    paths = outputs(step, root)
    files = {path: (root / path).read_bytes() for path in paths}
    if step.discovered_inputs:
        files[relative(step.discovered_inputs, root)] = _lines(map(_anywhere, discovered(step)))
    return Entry(
        files=files,
        executable=frozenset(path for path in paths if os.access(root / path, os.X_OK)),
        links={relative(path, root): str(Path(path).readlink()) for path in sorted(step.links)},
        inputs={_anywhere(path): digest for path, digest in sorted(inputs.items())},
        log=log,
    )


def write(entry: Entry, step: Step, root: Path) -> None:
    """Write the files and links of an entry. Each is replaced at once; one with equal content stays untouched."""
    of_list = relative(step.discovered_inputs, root) if step.discovered_inputs else None
    for path, content in entry.files.items():
        there = root / path
        if path == of_list:
            content = _lines(map(here, listed(entry, step, root)))
        write_bytes(there, content)
        if os.access(there, os.X_OK) != (path in entry.executable):
            there.chmod(0o755 if path in entry.executable else 0o644)
    for path, target in entry.links.items():
        write_link(root / path, target)  # at once: a step of another ONNX Runtime has the same links


def pack(entry: Entry) -> bytes:
    """Return an entry as a blob."""
    files = [[path, len(content), path in entry.executable] for path, content in sorted(entry.files.items())]
    head = {"files": files, "links": dict(sorted(entry.links.items())), "found": dict(sorted(entry.inputs.items())),
            "log": entry.log}  # fmt: skip
    contents = (content for _, content in sorted(entry.files.items()))
    return b"".join([json.dumps(head, separators=(",", ":")).encode(), b"\n", *contents])


def unpack(blob: bytes, step: Step, root: Path) -> Entry:
    """Return the entry in a blob. Raises EntryError unless it holds exactly what the step writes."""
    end = blob.find(b"\n", 0, _LONGEST_HEAD)
    try:
        if end < 0:
            raise ValueError(f"no line of at most {_LONGEST_HEAD:,} bytes")
        head = json.loads(blob[:end])
        files, executable = _files(head["files"], blob[end + 1 :])
        links, inputs, log = _texts(head["links"]), _texts(head["found"]), _text(head["log"])
        entry = Entry(files=files, executable=executable, links=links, inputs=inputs, log=log)
    except (ValueError, LookupError, TypeError, RecursionError, OverflowError) as error:
        raise EntryError(f"it is damaged: {error}") from error
    if set(files) != {*outputs(step, root)}:
        raise EntryError("it holds other files than the step writes")
    if set(entry.links) != {relative(path, root) for path in step.links}:
        raise EntryError("it holds other links than the step makes")
    for link, target in entry.links.items():
        # Else what is written through a link would be elsewhere, or what is read from it of another user.
        top = link.partition("/")[0]
        if not posixpath.normpath(f"{posixpath.dirname(link)}/{target}").startswith(f"{top}/") or target[:1] == "/":
            raise EntryError(f"its link {link} points out of {top}/")
    return entry


def _files(listed: Any, contents: bytes) -> tuple[dict[str, bytes], frozenset[str]]:
    files: dict[str, bytes] = {}
    executable, at = set(), 0
    for path, size, runs in listed:
        if not isinstance(path, str) or type(size) is not int or size < 0 or type(runs) is not bool:
            raise ValueError("a file without path, size or mode")
        files[path] = contents[at : at + size]
        at += size
        if runs:
            executable.add(path)
    if at != len(contents):
        raise ValueError(f"{len(contents)} bytes, where its files have {at}")
    return files, frozenset(executable)


def _texts(table: Any) -> dict[str, str]:
    if not isinstance(table, dict):
        raise ValueError("no table")
    return {_text(key): _text(value) for key, value in table.items()}


def _text(value: Any) -> str:
    """Return a string that a file can contain. Raises ValueError."""
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("a value that is no text")
    value.encode()  # JSON can write half a character
    return value


# Under `/ac` is an ActionResult of Bazel's Remote Execution API (build.bazel.remote.execution.v2), which servers may
# check: output_files = 2, stdout_raw = 5; OutputFile: path = 1, digest = 2; Digest: hash = 1, size_bytes = 2. Fields
# that a server adds are skipped. By hand, since importing a library for protobuf takes longer than reading all entries.
_PATH = b"outputs"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_DIGEST = re.compile(rb"[0-9a-f]{64}", re.ASCII)


def encode(digest: str, size: int, stdout: bytes) -> bytes:
    """Return an ActionResult with one output file: the blob in `/cas` with this SHA-256 and number of bytes."""
    number = _varint(2 << 3 | _VARINT) + _varint(size)
    file = _bytes(1, _PATH) + _bytes(2, _bytes(1, digest.encode()) + number)
    return _bytes(2, file) + _bytes(5, stdout)


def decode(content: bytes) -> tuple[str, int, bytes]:
    """Return what `encode` was given. Raises ValueError for anything else than one output file."""
    files, told = _two(content, 2, 5)
    if len(files) != 1:
        raise ValueError(f"the entry has {len(files)} output files, not 1")
    path, blob = _two(_as_bytes(files[0]), 1, 2)
    if _last(path) != _PATH:
        raise ValueError(f"the entry's output file is {_last(path)!r}, not {_PATH!r}")
    named, sizes = _two(_as_bytes(_last(blob)), 1, 2)
    digest, size = _as_bytes(_last(named)), _last(sizes) or 0  # proto3 leaves out a 0
    if not _DIGEST.fullmatch(digest) or not isinstance(size, int) or size >= 1 << 63:
        raise ValueError(f"the entry's output file has no valid digest: {digest!r}, {size!r} bytes")
    return digest.decode(), size, _as_bytes(_last(told) or b"")


def _two(content: bytes, first: int, second: int) -> tuple[list[int | bytes], list[int | bytes]]:
    """Return the values of two fields of a message, two of each at most: more take memory, and none is valid."""
    found: dict[int, list[int | bytes]] = {first: [], second: []}
    for number, value in _fields(content):
        if number in found:
            found[number] = [*found[number][-1:], value]
    return found[first], found[second]


def _last(values: list[int | bytes]) -> int | bytes | None:
    return values[-1] if values else None


def _as_bytes(value: int | bytes | None) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("the entry is no ActionResult: a field has another type")
    return value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(value)) + value


def _fields(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and value of each field of a message."""
    at = 0
    while at < len(content):
        key, at = _read_varint(content, at)
        field, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _read_varint(content, at)
            yield field, value
            continue
        if kind not in (_FIXED64, _BYTES, _FIXED32) or not field:
            raise ValueError(f"the entry is no ActionResult: wire type {kind} at byte {at}")
        size, at = _read_varint(content, at) if kind == _BYTES else (8 if kind == _FIXED64 else 4, at)
        if at + size > len(content):
            raise ValueError(f"the entry is cut off: {len(content)} bytes, expected {at + size} at least")
        yield field, content[at : at + size]
        at += size


def _read_varint(content: bytes, at: int) -> tuple[int, int]:
    value = 0
    for number, byte in enumerate(content[at : at + 10]):
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            return value, at + number + 1
    raise ValueError(f"the entry is no ActionResult: no number at byte {at}")


SIGNED = 1  # the format of what is signed


def message(*, key: str, blob: str, record: bytes) -> bytes:
    """Return what is signed of an entry: its key, the digest of its blob, and its record without the signature."""
    return f"opmatrix {SIGNED}\n{key}\n{blob}\n{hashlib.sha256(record).hexdigest()}\n".encode()
