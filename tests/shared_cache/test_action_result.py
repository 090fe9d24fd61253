"""The entry in /ac is an ActionResult of Bazel's Remote Execution API."""

from __future__ import annotations

import hashlib
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest

from opmatrix.shared_cache.entry import decode, encode

DIGEST = hashlib.sha256(b"blob").hexdigest()


@pytest.mark.parametrize("size", [0, 1, 127, 128, 1 << 31, (1 << 63) - 1])
@pytest.mark.parametrize("stdout", [b"", b"{}", bytes(range(256)) * 1000])
def test_an_entry_is_read_as_it_was_written(size: int, stdout: bytes) -> None:
    assert decode(encode(DIGEST, size, stdout)) == (DIGEST, size, stdout)


# Fields of remote_execution.proto: message, field, number, type, repeated.
FIELDS = [
    ("Digest", "hash", 1, "string", False),
    ("Digest", "size_bytes", 2, "int64", False),
    ("OutputFile", "path", 1, "string", False),
    ("OutputFile", "digest", 2, "Digest", False),
    ("OutputFile", "is_executable", 4, "bool", False),
    ("ExecutedActionMetadata", "worker", 1, "string", False),
    ("ActionResult", "output_files", 2, "OutputFile", True),
    ("ActionResult", "exit_code", 4, "int32", False),
    ("ActionResult", "stdout_raw", 5, "bytes", False),
    ("ActionResult", "execution_metadata", 9, "ExecutedActionMetadata", False),
]


@pytest.fixture(scope="module")
def action_result() -> Any:
    """The class that protobuf, which the package onnx needs, makes of these fields."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="re.proto", package="re", syntax="proto3")
    messages = {name: file.message_type.add(name=name) for name in dict.fromkeys(row[0] for row in FIELDS)}
    for message, name, number, kind, repeated in FIELDS:
        field = messages[message].field.add(name=name, number=number, label=3 if repeated else 1)
        if kind in messages:
            field.type, field.type_name = field.TYPE_MESSAGE, f".re.{kind}"
        else:
            field.type = getattr(field, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("re.ActionResult"))


def test_protobuf_reads_an_entry_and_writes_the_same_bytes(action_result: Any) -> None:
    read = action_result.FromString(encode(DIGEST, 1 << 40, b"hello"))
    (file,) = read.output_files
    assert (file.path, file.digest.hash, file.digest.size_bytes) == ("outputs", DIGEST, 1 << 40)
    assert read.stdout_raw == b"hello"
    assert read.SerializeToString() == encode(DIGEST, 1 << 40, b"hello")


def test_an_entry_is_read_to_which_a_server_added_fields(action_result: Any) -> None:
    """bazel-remote names in each entry the machine that it came from."""
    read = action_result.FromString(encode(DIGEST, 0, b"hello"))
    read.execution_metadata.worker = "127.0.0.1"
    read.exit_code = -1
    read.output_files[0].is_executable = True
    assert decode(read.SerializeToString()) == (DIGEST, 0, b"hello")


def test_fields_of_other_types_are_skipped() -> None:
    fixed64, fixed32 = b"\x79" + bytes(8), b"\x7d" + bytes(4)
    assert decode(encode(DIGEST, 5, b"x") + fixed64 + fixed32) == (DIGEST, 5, b"x")


ENTRY = encode(DIGEST, 300, b"hello")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the entry has 0 output files, not 1"),
        (ENTRY + ENTRY, "the entry has 2 output files, not 1"),
        (ENTRY * 1000, "the entry has 2 output files, not 1"),
        (b"<html>404</html>", "no ActionResult"),
        (b"\x12\x05ab", "cut off: 4 bytes, expected 7 at least"),
        (b"\x10\x05", "a field has another type"),
        (b"\xff" * 20, "no number at byte 0"),
        (b"\x12", "no number at byte 1"),
        (ENTRY.replace(b"outputs", b"outputz"), "output file is b'outputz', not b'outputs'"),
        (ENTRY.replace(DIGEST.encode(), b"F" * 64), "no valid digest"),
        (ENTRY.replace(DIGEST.encode(), b"../../" + b"a" * 58), "no valid digest"),
    ],
)
def test_another_entry_is_an_error(content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode(content)


@pytest.mark.parametrize("fields", [b"\x08\x00", ENTRY, b"\x2a\x00", b"\x98\x06\x00"])
def test_an_entry_of_many_fields_takes_no_memory(fields: bytes) -> None:
    tracemalloc.start()
    with suppress(ValueError):
        decode(fields * 20_000)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 200_000 + 3 * len(fields) * 20_000, "a list of the fields takes 2,000,000"


def test_a_cut_entry_is_an_error_at_each_length() -> None:
    """But where only stdout is lost, which the record in it shows."""
    whole = [length for length in range(len(ENTRY)) if not _is_error(ENTRY[:length])]
    assert [decode(ENTRY[:length]) for length in whole] == [(DIGEST, 300, b"")]


def _is_error(content: bytes) -> bool:
    try:
        decode(content)
    except ValueError:
        return True
    return False
