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


def link(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


# At 71b51ad8: zeros, random, pipe and log_of_the_kernel gave no answer in 12 s, terminal and socket another message,
# file_without_a_size was read.
@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(link("/dev/zero"), "it is no regular file", id="zeros"),
        pytest.param(link("/dev/urandom"), "it is no regular file", id="random"),
        pytest.param(link("/dev/tty"), "it is no regular file", id="terminal"),
        pytest.param(os.mkfifo, "it is no regular file", id="pipe"),
        pytest.param(Path.mkdir, "Is a directory", id="folder"),
        pytest.param(link("/proc/self/fd"), "Is a directory", id="folder_of_processes"),
        pytest.param(bind, "it is no regular file", id="socket"),
        pytest.param(link("."), "Is a directory", id="own_folder"),
        pytest.param(lambda path: path.symlink_to(path.name), "Too many levels", id="loop"),
        pytest.param(sparse, "has 1,099,511,627,776 bytes, allowed: ", id="sparse"),
        pytest.param(link("/proc/kmsg"), None, id="log_of_the_kernel"),
        pytest.param(link("/proc/self/maps"), None, id="file_without_a_size"),
        pytest.param(link("nowhere"), None, id="nothing"),
    ],
)
@pytest.mark.parametrize("kind", module.KINDS)
def test_only_regular_files_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind, make: Callable[[Path], None], message: str | None
) -> None:
    """Without waiting, and no more than a file has."""
    monkeypatch.chdir(tmp_path)
    Path(kind).mkdir()
    make(Path(kind, "a" * 64))
    store = FolderStore(tmp_path)
    if message:
        with pytest.raises(StoreError, match=message):
            store.get(kind, "a" * 64)
    else:
        with suppress(StoreError):  # only root may open the kernel's
            assert store.get(kind, "a" * 64) in (None, b"")


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
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    store = open_store(tmp_path.as_uri(), timeout=1)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(StoreError, match=r"^file:///.*: can't start new thread$"):
        store.get("ac", A)


def test_threads_share_a_store(tmp_path: Path) -> None:
    store = open_store(tmp_path.as_uri(), timeout=60)
    digests = [f"{n:064x}" for n in range(200)]

    def work(own: list[str]) -> None:
        for digest in own:
            store.put("cas", digest, digest.encode())

    threads = [threading.Thread(target=work, args=(digests[n::4],)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.get("cas", digest) for digest in digests] == [digest.encode() for digest in digests]


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
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(
        UsageError, match=r'shared cache s3://bucket/x needs .*Run: pip install "opmatrix\[cache\]" s3fs$'
    ):
        open_store("s3://bucket/x", timeout=1)
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(
        UsageError, match=r'^the shared cache memory://x needs fsspec. Run: pip install "opmatrix\[cache\]"$'
    ):
        open_store("memory://x", timeout=1)


def test_fsspec_returns_what_was_stored() -> None:
    store = open_store("memory://cache/of/a/test", timeout=60)
    assert store.get("ac", A) is None
    store.put("ac", A, b"\0entry")
    assert (store.get("ac", A), store.get("cas", A)) == (b"\0entry", None)


def test_an_error_of_fsspec_is_a_store_error(monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store("memory://cache/of/a/test", timeout=60)

    def refuse(*_: object, **__: object) -> bytes:
        raise RuntimeError("no\nroom")

    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.cat_file", refuse)
    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.pipe_file", refuse)
    for operation in (lambda: store.get("ac", A), lambda: store.put("ac", A, b"")):
        with pytest.raises(StoreError, match=r"^memory://cache/of/a/test: no room$"):
            operation()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://me:pa@ss@host/x", "https://host/x"),
        ("s3://key:secret@bucket/x?y=secret", "s3://bucket/x"),
        ("file:///a/b@c", "file:///a/b@c"),
        ("http://host/\x1b[31m", "http://host/\\x1b[31m"),
    ],
)
def test_a_url_is_shown_without_secrets(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_the_folder_of_a_url() -> None:
    assert folder_of("file:///srv/a%20b") == Path("/srv/a b")
    assert folder_of("https://host/x") is None


def test_a_store_in_a_folder_imports_no_http() -> None:
    program = (
        "import sys; from opmatrix.shared_cache.store import *\n"
        "from opmatrix.shared_cache.stores import *; open_store('file:///x', timeout=1)\n"
        "print({'http.client', 'ssl', 'fsspec', 'concurrent.futures'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_each_kind_has_a_limit() -> None:
    assert module.LARGEST.keys() == {*module.KINDS}
