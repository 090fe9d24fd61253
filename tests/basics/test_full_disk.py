"""A disk that cannot be written is named in one message."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from opmatrix.basics.errors import disk_fault
from opmatrix.basics.files import write_bytes, write_list, write_parts, write_text

REMEDY = "Is the folder writable, and is there space left?"
# At 71b51ad8: no message named the file.
WRITERS = {
    "bytes": lambda path: write_bytes(path, b"x"),
    "text": lambda path: write_text(path, "x"),
    "parts": lambda path: write_parts(path, [b"x", memoryview(b"y")]),
    "list": lambda path: write_list(path, ["x"], root=path.parent),
    "in place of another": lambda path: (path.parent.mkdir(), path.touch(), write_text(path, "x")),
}


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each write fails as that of a full disk, whose error names no file."""
    opened = Path.open

    class Full:
        def __init__(self, file: object) -> None:
            self._file = file

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()  # type: ignore[attr-defined]  # a file of any kind

        def write(self, _: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open_full(path: Path, mode: str = "r", *arguments: object, **options: object) -> object:
        file = opened(path, mode, *arguments, **options)  # type: ignore[call-overload]  # as it was called
        return Full(file) if "w" in mode else file

    monkeypatch.setattr(Path, "open", open_full)
    yield


@pytest.mark.parametrize("writer", WRITERS)
def test_a_write_names_its_file(full: None, tmp_path: Path, writer: str) -> None:
    path = tmp_path / "build" / "a.json"
    with pytest.raises(OSError) as caught:
        WRITERS[writer](path)
    assert disk_fault(caught.value) == f"cannot write '{path}': No space left on device. {REMEDY}"
    assert [one.name for one in path.parent.iterdir()] == (["a.json"] if path.exists() else []), "no half file is left"


# At 71b51ad8: no message named a folder.
@pytest.mark.parametrize(
    ("number", "rooms", "named"),
    [
        (errno.ENOSPC, {"build": (0, 9)}, " 'build'"),
        (errno.ENOSPC, {"build": (9, 0)}, " 'build'"),
        (errno.EDQUOT, {"build": (0, 9)}, " 'build'"),
        (errno.ENOSPC, {"build": (9, 9), "/tmp/of_tests": (0, 9)}, " '/tmp/of_tests'"),
        (errno.ENOSPC, {"/tmp/of_tests": (9, 9), ".": (0, 9)}, " '.'"),
        (errno.EIO, {"build": (9, 9)}, ""),
        (errno.EACCES, {"build": (0, 9)}, None),
    ],
)
def test_the_full_disk_is_named_where_the_error_names_no_file(
    monkeypatch: pytest.MonkeyPatch, number: int, rooms: dict[str, tuple[int, int]], named: str | None
) -> None:
    """`rooms`: percent of blocks and of inodes that are free, by folder."""

    def statvfs(folder: str) -> SimpleNamespace:
        if folder not in rooms:
            raise FileNotFoundError
        blocks, inodes = rooms[folder]
        return SimpleNamespace(f_blocks=10_000, f_bavail=blocks * 100, f_files=10_000, f_favail=inodes * 100)

    monkeypatch.setattr(os, "statvfs", statvfs)
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/tmp/of_tests")
    error = OSError(number, os.strerror(number))
    assert disk_fault(error) == ("" if named is None else f"cannot write{named}: {os.strerror(number)}. {REMEDY}")
