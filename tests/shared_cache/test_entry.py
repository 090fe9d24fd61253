"""An entry brings back what a step wrote, and nothing else. The entry in /ac is an ActionResult of Bazel's Remote
Execution API.
"""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opmatrix.records.step import Step
from opmatrix.shared_cache import entry as module
from opmatrix.shared_cache.entry import Entry, EntryError, decode, encode, here, pack, read, unpack, write


@pytest.fixture
def step(tmp_path: Path) -> Step:
    root = tmp_path / "project"
    return Step(
        group="compile",
        name="x",
        command=("compile", "x"),
        writes=(f"{root}/build/x.so", f"{root}/build/x.json"),
        links=(f"{root}/build/data",),
        discovered_inputs=f"{root}/build/found.txt",
    )


@pytest.fixture
def entry(step: Step, tmp_path: Path) -> Entry:
    root = tmp_path / "project"
    (root / "build").mkdir(parents=True)
    (root / "build/x.so").write_bytes(bytes(range(256)))
    (root / "build/x.so").chmod(0o755)
    (root / "build/x.json").write_text("{}\n")
    (root / "build/found.txt").write_text("/usr/include/math.h\n")
    (root / "build/data").symlink_to("elsewhere")
    return read(step, root, inputs={"/usr/include/math.h": "0" * 64}, log="built x\n")


def test_what_a_step_wrote_comes_back_in_another_folder(step: Step, entry: Entry, tmp_path: Path) -> None:
    here, there = tmp_path / "project", tmp_path / "other"
    moved = replace(
        step,
        writes=tuple(path.replace(str(here), str(there)) for path in step.writes),
        links=(f"{there}/build/data",),
        discovered_inputs=f"{there}/build/found.txt",
    )
    found = unpack(pack(entry), moved, there)
    assert found == entry
    assert pack(replace(entry, files=dict(reversed(entry.files.items())))) == pack(entry)
    write(found, moved, there)
    for name in ("x.so", "x.json", "found.txt"):
        assert (there / "build" / name).read_bytes() == (here / "build" / name).read_bytes()
        assert (there / "build" / name).stat().st_mode & 0o777 == (0o755 if name == "x.so" else 0o644)
    assert (there / "build/data").readlink() == Path("elsewhere")
    before = {path: path.lstat().st_mtime_ns for path in (there / "build").iterdir()}
    write(found, moved, there)
    assert {path: path.lstat().st_mtime_ns for path in (there / "build").iterdir()} == before


def test_headers_of_packages_are_found_in_the_environment_of_each_machine(
    step: Step, entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, header = tmp_path / "project", "cmeel.prefix/include/eigen3/Eigen/Core"
    (root / "build/found.txt").write_text(f"/usr/include/math.h\nthird_party/x.h\n/one/site-packages/{header}\n")
    monkeypatch.setattr(module, "_PACKAGES", "/one/site-packages")
    blob = pack(read(step, root, inputs={f"/one/site-packages/{header}": "0" * 64}))
    assert b"/one/" not in blob
    monkeypatch.setattr(module, "_PACKAGES", "/another/.venv")
    (path,) = (taken := unpack(blob, step, root)).inputs
    assert here(path) == f"/another/.venv/{header}"
    write(taken, step, root)
    lines = (root / "build/found.txt").read_text().splitlines()
    assert lines == ["/usr/include/math.h", "third_party/x.h", f"/another/.venv/{header}"]


def head(**changed: Any) -> bytes:
    usual = {
        "files": [["build/found.txt", 1, False], ["build/x.json", 1, False], ["build/x.so", 1, True]],
        "links": {"build/data": "elsewhere"},
        "found": {},
        "log": "",
    }
    return json.dumps(usual | changed).encode() + b"\nabc"


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"", "damaged"),
        (b" " * (1 << 24) + head(), "damaged: no line of at most 16,777,216 bytes"),
        (b"\x80\x04K\x01.", "damaged"),  # a pickle
        (b"[]\nabc", "damaged"),
        (b"[" * 100_000 + b"\nabc", "damaged"),
        (head()[:-1], "damaged: 2 bytes, where its files have 3"),
        (head() + b"d", "damaged: 4 bytes, where its files have 3"),
        (head(files=[["build/x.so", -1, True]]), "damaged"),
        (head(files=[["build/x.so", 10**30, True]]), "damaged"),
        (head(files=[["build/x.so", 3.0, True]]), "damaged"),
        (head(files=[["build/x.so", 3, True]]), "other files than the step writes"),
        (head(files=[["build/x.so", 0, True]] * 2 + [["build/x.json", 3, True]]), "other files"),
        (head(files=[["../../etc/passwd", 3, False]]), "other files"),
        (head(files=[["/etc/passwd", 3, False]]), "other files"),
        (head(links={"build/data": 1}), "damaged"),
        (head(links={}), "other links than the step makes"),
        (head(links={"build/data": "x", "build": "/etc"}), "other links"),
        (head(links={"build/data": "../ops"}), "its link build/data points out of build/"),
        (head(links={"build/data": "/etc"}), "its link build/data points out of build/"),
        (head(links={"build/data": "x/../../../etc"}), "its link build/data points out of build/"),
        (head(links={"build/data": "x\0"}), "damaged"),
        (head(links={"build/data": "\ud800"}), "damaged"),
        (head(log="\ud800"), "damaged"),
        (head(log=1), "damaged"),
        (head(found=[]), "damaged"),
    ],
)
def test_another_blob_is_refused(step: Step, tmp_path: Path, blob: bytes, message: str) -> None:
    assert unpack(head(), step, tmp_path / "project").files["build/x.so"] == b"c"
    with pytest.raises(EntryError, match=message):
        unpack(blob, step, tmp_path / "project")


def test_two_steps_may_make_the_same_link_at_once(
    step: Step, entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the steps of a model in two versions of ONNX Runtime do."""
    link, make = tmp_path / "project/build/data", Path.symlink_to

    def make_after_another_step(path: Path, target: str) -> None:
        if not link.is_symlink():
            make(link, target)
        make(path, target)

    monkeypatch.setattr(Path, "symlink_to", make_after_another_step)
    link.unlink()
    write(entry, step, tmp_path / "project")
    assert str(link.readlink()) == "elsewhere"
    assert [path.name for path in link.parent.iterdir() if path.name.startswith(".")] == []


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


def test_protobuf_reads_an_entry_and_a_server_may_add_fields(action_result: Any) -> None:
    """bazel-remote names in each entry the machine that it came from."""
    read = action_result.FromString(encode(DIGEST, 1 << 40, b"hello"))
    (file,) = read.output_files
    assert (file.path, file.digest.hash, file.digest.size_bytes) == ("outputs", DIGEST, 1 << 40)
    assert read.stdout_raw == b"hello"
    assert read.SerializeToString() == encode(DIGEST, 1 << 40, b"hello")
    read.execution_metadata.worker, read.exit_code, file.is_executable = "127.0.0.1", -1, True
    fixed64, fixed32 = b"\x79" + bytes(8), b"\x7d" + bytes(4)  # of types that no field of ours has
    assert decode(read.SerializeToString() + fixed64 + fixed32) == (DIGEST, 1 << 40, b"hello")


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
    whole = []
    for length in range(len(ENTRY)):
        with suppress(ValueError):
            whole.append(decode(ENTRY[:length]))
    assert whole == [(DIGEST, 300, b"")]
