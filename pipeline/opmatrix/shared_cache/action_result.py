"""The entry of a step in `/ac`: an ActionResult of Bazel's Remote Execution API, which servers may check.

build.bazel.remote.execution.v2 (remote_execution.proto): ActionResult has output_files = 2 and stdout_raw = 5;
OutputFile has path = 1 and digest = 2; Digest has hash = 1 and size_bytes = 2. Fields that a server adds, such as
execution_metadata, are skipped. Written by hand, because a library for protobuf takes longer to import than all
entries of a build take to read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_PATH = b"outputs"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5  # wire types
_DIGEST = re.compile(rb"[0-9a-f]{64}", re.ASCII)


def encode(digest: str, size: int, stdout: bytes) -> bytes:
    """Return an ActionResult with one output file: the blob in `/cas` with this SHA-256 and number of bytes."""
    file = _bytes(1, _PATH) + _bytes(2, _bytes(1, digest.encode()) + _number(2, size))
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


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


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
