"""What `opmatrix cache --gc` removes from a folder, and what it keeps."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from opmatrix.shared_cache import gc as module
from opmatrix.shared_cache.entry import decode, encode
from opmatrix.shared_cache.gc import collect_garbage, list_files
from opmatrix.shared_cache.store import FolderStore, StoreError
from tests.support.raising import raising

HOUR = 3600


class Folder:
    """A folder of a shared cache with results of a known age."""

    def __init__(self, root: Path) -> None:
        self.root, self.store = root, FolderStore(root)

    def add(self, name: str, *, blob: bytes = b"", hours: float = 48) -> tuple[str, str]:
        """Store a result of 1,000 bytes, written and last used some hours ago; return its key and blob."""
        content = blob or name.encode().ljust(1000)
        key, digest = (hashlib.sha256(text).hexdigest() for text in (name.encode(), content))
        self.store.put("cas", digest, content)
        self.store.put("ac", key, encode(digest, len(content), b""))
        self.age(f"ac/{key}", hours)
        self.age(f"cas/{digest}", hours)
        return key, digest

    def age(self, path: str, hours: float) -> None:
        os.utime(self.root / path, (time.time() - hours * HOUR,) * 2)

    def files(self) -> set[str]:
        return {p.relative_to(self.root).as_posix() for p in self.root.rglob("*") if p.is_file()}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def paths(*results: tuple[str, str]) -> set[str]:
    return {path for key, blob in results for path in (f"ac/{key}", f"cas/{blob}")}


def test_the_results_that_are_unused_for_longest_go_until_the_rest_fits(folder: Folder) -> None:
    results = [folder.add(f"step {n}", hours=100 - n) for n in range(10)]
    one = sum((folder.root / path).stat().st_size for path in paths(results[0]))
    removed = collect_garbage(folder.root, limit=4 * one + 10)
    assert folder.files() == paths(*results[6:])
    assert (removed.entries, removed.blobs, removed.partial, removed.size) == (6, 6, 0, 6 * one)
    assert collect_garbage(folder.root, limit=4 * one).size == 0


def test_a_result_that_is_read_is_kept(folder: Folder) -> None:
    first, _, third = (folder.add(f"step {n}", hours=100 - n) for n in range(3))
    folder.store.get("ac", first[0])
    folder.store.get("cas", first[1])
    collect_garbage(folder.root, limit=2500)
    assert folder.files() == paths(first, third)


def test_the_access_time_of_a_blob_counts(folder: Folder) -> None:
    """Whoever may only read the folder cannot set the time of a file; the file system notes the access."""
    first, _ = folder.add("a", hours=100), folder.add("b", hours=50)
    os.utime(folder.root / "cas" / first[1], (time.time() - HOUR, time.time() - 100 * HOUR))
    collect_garbage(folder.root, limit=1500)
    assert folder.files() == paths(first)


def test_a_blob_that_two_results_share_goes_with_the_second(folder: Folder) -> None:
    shared = b"shared".ljust(5000)
    first, second = folder.add("a", blob=shared, hours=100), folder.add("b", blob=shared, hours=90)
    last = folder.add("c", hours=10)
    size = list_files(folder.root).size
    collect_garbage(folder.root, limit=size - 1)
    assert folder.files() == paths(second, last)
    collect_garbage(folder.root, limit=2000)
    assert folder.files() == paths(last)
    assert first[1] == second[1]


def test_leftovers_go_without_a_limit_once_they_are_old(folder: Folder) -> None:
    good, lost, damaged, unnamed = (folder.add(f"step {n}") for n in range(4))
    (folder.root / "cas" / lost[1]).unlink()
    (folder.root / "ac" / damaged[0]).write_bytes(b"damaged")
    (folder.root / "ac" / unnamed[0]).unlink()
    interrupted = folder.root / "cas" / f".{good[1]}.0123"
    interrupted.write_bytes(b"half")
    (folder.root / "ac/README").write_text("of a person")
    before = folder.files()
    for path in (f"ac/{damaged[0]}", f"cas/{unnamed[1]}", f"ac/{lost[0]}", f"cas/{damaged[1]}"):
        folder.age(path, 0.5)
    assert collect_garbage(folder.root, limit=None) == module.Removed()
    assert folder.files() == before
    for path in before:
        folder.age(path, 2)
    removed = collect_garbage(folder.root, limit=None)
    assert folder.files() == {*paths(good), "ac/README"}
    assert (removed.entries, removed.blobs, removed.partial) == (2, 2, 1)


def test_files_that_others_write_or_remove_meanwhile(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written again stays; that a file is gone is no error."""
    again, gone, old = (folder.add(name) for name in "abc")
    listed = list_files(folder.root)
    monkeypatch.setattr(module, "list_files", lambda _: listed)
    folder.add("a", hours=0)
    for path in paths(gone):
        (folder.root / path).unlink()
    collect_garbage(folder.root, limit=1)
    assert folder.files() == paths(again) and old


def test_writers_and_readers_beside_it_never_see_a_wrong_blob(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes store and read as doit does, while results go, until each has read some that the other stored."""
    program = (
        "import hashlib, sys; from pathlib import Path\n"
        "from opmatrix.shared_cache.store import FolderStore\n"
        "from opmatrix.shared_cache.entry import decode, encode\n"
        "folder, hit, n = Path(sys.argv[1]), Path(sys.argv[2]), 0\n"
        "store = FolderStore(folder)\n"
        "while not (folder / 'stop').exists():\n"
        "    n = (n + 1) % 40; key = f'{n:064x}'\n"
        "    content = bytes([n]) * 10_000; digest = hashlib.sha256(content).hexdigest()\n"
        "    entry = store.get('ac', key)\n"
        "    blob = store.get('cas', decode(entry)[0]) if entry else None\n"
        "    assert blob in (None, content)\n"
        "    if blob is None:\n"
        "        store.put('cas', digest, content); store.put('ac', key, encode(digest, 10_000, b''))\n"
        "    else: hit.touch()\n"
    )
    hits = [tmp_path / "hit of a", tmp_path / "hit of b"]
    users = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(hit)]) for hit in hits]
    removed = 0
    try:
        while (removed < 100 or not all(hit.exists() for hit in hits)) and all(user.poll() is None for user in users):
            removed += collect_garbage(tmp_path, limit=200_000).entries
    finally:
        (tmp_path / "stop").touch()
    assert [user.wait() for user in users] == [0, 0]
    assert removed >= 100 and all(hit.exists() for hit in hits)
    # Between the look at a blob and its removal it may be written again, and then its entry remains: a miss.
    monkeypatch.setattr(module, "SETTLED", -60)
    collect_garbage(tmp_path, limit=200_000)
    listed = list_files(tmp_path)
    assert 0 < listed.size <= 200_000
    assert {decode(file.path.read_bytes())[0] for file in listed.entries.values()} == listed.blobs.keys()


def test_a_folder_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "scandir", raising(PermissionError(13, "Permission denied")))
    with pytest.raises(StoreError, match=r"'.*/ac' of the shared cache: Permission denied"):
        list_files(tmp_path)
