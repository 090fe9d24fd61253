"""Urls of the shared cache, and stores in a folder and by fsspec. Servers: test_http_store.py, test_real_servers.py."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from opmatrix.basics.errors import UsageError
from opmatrix.shared_cache import store as module
from opmatrix.shared_cache.store import FolderStore, Kind, StoreError, without_password
from opmatrix.shared_cache.stores import folder_of, open_store
from tests.shared_cache.conftest import use_in_threads
from tests.support.raising import raising

A, B = "a" * 64, "b" * 64


@pytest.mark.parametrize("kind", ["ac", "cas"])
def test_a_folder_returns_what_was_stored(tmp_path: Path, kind: Kind) -> None:
    store = open_store((tmp_path / "new ö/cache").as_uri(), timeout=60)
    assert store.get(kind, A) is None
    store.put(kind, A, b"\0first")
    store.put(kind, A, b"second")
    assert (store.get(kind, A), store.get(kind, B)) == (b"second", None)
    assert [p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()] == [
        f"new ö/cache/{kind}/{A}"
    ]
    store.close()


def test_a_folders_files_can_be_read_by_everyone_whom_the_umask_allows(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        FolderStore(tmp_path).put("ac", A, b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "ac" / A).stat().st_mode) == 0o640


def test_an_old_file_that_is_read_is_marked_as_used(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("cas", A, b"content")
    path = tmp_path / "cas" / A
    recent, old = time.time() - 60, time.time() - 2 * module.USED_EVERY
    os.utime(path, (recent, recent))
    store.get("cas", A)
    assert path.stat().st_mtime == pytest.approx(recent)  # reads write nothing but once an hour
    os.utime(path, (old, old))
    store.get("cas", A)
    assert path.stat().st_mtime > recent


def test_writers_of_one_entry_never_show_a_part_of_it(tmp_path: Path) -> None:
    """Processes, as two clones are."""
    program = (
        "import sys; from pathlib import Path; from opmatrix.shared_cache.store import FolderStore\n"
        "store = FolderStore(Path(sys.argv[1]))\n"
        "while not Path(sys.argv[1], 'stop').exists(): store.put('cas', 'a' * 64, sys.argv[2].encode() * 200_000)\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), letter]) for letter in "xy"]
    store, seen, whole = FolderStore(tmp_path), list[bytes | None](), {b"x" * 200_000, b"y" * 200_000}
    while len(seen) < 300 or not whole <= {*seen}:
        seen.append(store.get("cas", A))
    (tmp_path / "stop").touch()
    assert [writer.wait() for writer in writers] == [0, 0]
    assert {*seen} <= {None, *whole}
    assert len([*tmp_path.rglob("*")]) == 3  # cas/, the one file, and stop


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        path.write_bytes(content[:2])
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(module, "_write", full)
    store = open_store(tmp_path.as_uri(), timeout=60)
    (tmp_path / "ac").mkdir()
    with pytest.raises(StoreError, match=r"cannot write '.*': No space left on device.*folder of the shared cache"):
        store.put("ac", A, b"content")
    assert [*(tmp_path / "ac").iterdir()] == []


def test_a_file_in_place_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = open_store((tmp_path / "file").as_uri(), timeout=60)
    assert store.get("ac", A) is None
    with pytest.raises(StoreError, match=r"cannot write '.*/file/ac': Not a directory. It is the folder of the shared"):
        store.put("ac", A, b"")
    (tmp_path / "ac" / A).mkdir(parents=True)
    with pytest.raises(StoreError, match=r"cannot read '.*' of the shared cache: Is a directory"):
        open_store(tmp_path.as_uri(), timeout=60).get("ac", A)


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


# Text: the target of a link. At 71b51ad8: zero, urandom, mkfifo and kmsg gave no answer in 12 s, tty and bind another
# message, maps was read.
@pytest.mark.parametrize(
    ("make", "message"),
    [
        ("/dev/zero", "it is no regular file"),
        ("/dev/urandom", "it is no regular file"),
        ("/dev/tty", "it is no regular file"),
        (os.mkfifo, "it is no regular file"),
        (Path.mkdir, "Is a directory"),
        ("/proc/self/fd", "Is a directory"),
        (bind, "it is no regular file"),
        (".", "Is a directory"),
        (A, "Too many levels"),  # itself
        (sparse, "has 1,099,511,627,776 bytes, allowed: "),
        ("/proc/kmsg", None),
        ("/proc/self/maps", None),
        ("nowhere", None),
    ],
)
@pytest.mark.parametrize("kind", module.KINDS)
def test_only_regular_files_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, make: Callable[[Path], None] | str, message: str | None
) -> None:
    """Without waiting, and no more than a file has."""
    monkeypatch.chdir(tmp_path)
    Path(kind).mkdir()
    if isinstance(make, str):
        Path(kind, A).symlink_to(make)
    else:
        make(Path(kind, A))
    # Only root may open the kernel's log.
    with pytest.raises(StoreError, match=message) if message else suppress(StoreError):
        assert FolderStore(tmp_path).get(kind, A) in (None, b"")


def test_a_folder_that_does_not_answer_is_an_error_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one on a network file system whose server is gone."""
    ended = threading.Event()
    monkeypatch.setattr(module, "read", lambda *_: ended.wait())
    with pytest.raises(StoreError, match=r"^file:///.*: no answer within 0.2 s$"):  # without a limit, it never ends
        open_store(tmp_path.as_uri(), timeout=0.2).get("ac", A)
    ended.set()


def test_a_process_ends_while_a_store_does_not_answer(tmp_path: Path) -> None:
    program = (
        "import sys, time; from opmatrix.shared_cache import store; from opmatrix.shared_cache.store import *\n"
        "from opmatrix.shared_cache.stores import *\n"
        "store.read = lambda *_: time.sleep(1000)\n"
        f"try: open_store(sys.argv[1], timeout=0.1).get('ac', {A!r})\n"
        "except StoreError: print('error')"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path.as_uri()], capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("error\n", "", 0)


def test_a_process_without_another_thread_has_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path.as_uri(), timeout=1)
    monkeypatch.setattr(threading.Thread, "start", raising(RuntimeError("can't start new thread")))
    with pytest.raises(StoreError, match=r"^file:///.*: can't start new thread$"):
        store.get("ac", A)


def test_threads_share_a_store(tmp_path: Path) -> None:
    use_in_threads(open_store(tmp_path.as_uri(), timeout=60))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "the shared cache's url is '', allowed: file:///FOLDER, http"),
        ("/srv/cache", r"is '/srv/cache', allowed: .* For this folder: file:///srv/cache"),
        ("file://srv/cache", "has three slashes and an absolute path, such as file:///srv/opmatrix-cache"),
        ("file:///srv/cache?x=1", "is 'file:///srv/cache' with a query or a fragment; give it without"),
        ("http:///cache", "is 'http:///cache', without a host; such as https://cache.example.com/opmatrix"),
        ("http://me:secret@host:port/x", "is 'http://host:port/x': Port could not be cast"),
        ("https://host/x?token=secret", "is 'https://host/x' with a query"),
        ("htps://me:secret@host/x", r"is 'htps://host/x', of no known kind 'htps'; did you mean 'https'\?; allowed: "),
        ("s3//bucket", "is 's3//bucket', allowed"),
    ],
)
def test_a_url_that_names_no_store_is_an_error(url: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        open_store(url, timeout=1)
    assert "secret" not in str(error.value)


def test_a_missing_package_is_an_error_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for package, url, message in (
        ("s3fs", "s3://bucket/x", r'shared cache s3://bucket/x needs .*Run: pip install "opmatrix\[cache\]" s3fs$'),
        ("fsspec", "memory://x", r'^the shared cache memory://x needs fsspec. Run: pip install "opmatrix\[cache\]"$'),
    ):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(UsageError, match=message):
            open_store(url, timeout=1)


def test_fsspec_returns_what_was_stored_and_its_errors_are_those_of_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("memory://cache/of/a/test", timeout=60)
    assert store.get("ac", A) is None
    store.put("ac", A, b"\0entry")
    assert (store.get("ac", A), store.get("cas", A)) == (b"\0entry", None)
    for name in ("cat_file", "pipe_file"):
        monkeypatch.setattr(f"fsspec.implementations.memory.MemoryFileSystem.{name}", raising(RuntimeError("no\nroom")))
    for operation in (lambda: store.get("ac", A), lambda: store.put("ac", A, b"")):
        with pytest.raises(StoreError, match=r"^memory://cache/of/a/test: no room$"):
            operation()


def test_a_url_is_shown_without_secrets_and_names_a_folder() -> None:
    urls = ("https://me:pa@ss@host/x", "s3://key:secret@bucket/x?y=secret", "file:///a/b@c", "http://host/\x1b[31m")
    shown = ["https://host/x", "s3://bucket/x", "file:///a/b@c", "http://host/\\x1b[31m"]
    assert [without_password(url) for url in urls] == shown
    assert (folder_of("file:///srv/a%20b"), folder_of("https://host/x")) == (Path("/srv/a b"), None)


def test_a_store_in_a_folder_imports_no_http() -> None:
    program = (
        "import sys; from opmatrix.shared_cache.store import *\n"
        "from opmatrix.shared_cache.stores import *; open_store('file:///x', timeout=1)\n"
        "print({'http.client', 'ssl', 'fsspec', 'concurrent.futures'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
