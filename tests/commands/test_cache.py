"""`doit cache`: the settings and the size of the shared cache, and --gc."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from opmatrix.commands.main import main
from opmatrix.shared_cache.entry import encode
from opmatrix.shared_cache.store import FolderStore
from tests.support.small_servers import cache_server


@dataclass(frozen=True, kw_only=True)
class Done:
    stdout: str
    stderr: str
    returncode: int


Run = Callable[..., Done]


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `opmatrix cache` in a folder, with a value of OPMATRIX_CACHE."""

    def run(folder: Path, *arguments: str, variable: str = "") -> Done:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("OPMATRIX_CACHE", variable)
        monkeypatch.setattr(sys, "argv", ["opmatrix", "cache", *arguments])
        code = main()
        captured = capsys.readouterr()
        return Done(stdout=captured.out, stderr=captured.err, returncode=code)

    return run


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cache of three results of a megabyte, the first unused for longest."""
    store = FolderStore(tmp_path / "a cache")
    for number in range(3):
        store.put("cas", f"{number:064x}", b"x" * 1_000_000)
        store.put("ac", f"{number:064x}", encode(f"{number:064x}", 1_000_000, b""))
        for kind in ("ac", "cas"):
            os.utime(tmp_path / "a cache" / kind / f"{number:064x}", (time.time() - 9000 + number,) * 2)
    return tmp_path / "a cache"


def test_outside_a_project_the_url_is_an_argument(folder: Path, cache: Run) -> None:
    shown = cache(folder.parent, folder.as_uri())
    assert shown.stdout == f"url      {folder.as_uri()}\nmode     read\nstore    3 entries, 3 blobs, 3.0 MB\n"
    collected = cache(folder.parent, "--gc", "--size", "3MB", folder.as_uri())
    assert collected.stdout == "removed 1 entry, 1 blob, 1.0 MB; 2.0 MB are left\n"
    assert (collected.stderr, collected.returncode) == ("", 0)
    assert len([*(folder / "cas").iterdir()]) == 2


def test_in_a_project_the_settings_name_it(folder: Path, cache: Run) -> None:
    project = folder.parent / "project"
    project.mkdir()
    (project / "dodo.py").write_text("")
    table = f'[tool.opmatrix.cache]\nurl = "{folder.as_uri()}"\nmode = "write"\nprove = "local"\nsize = "1 MB"\n'
    (project / "pyproject.toml").write_text(f'[tool.doit]\nloader = "opmatrix"\n{table}')
    assert cache(project).stdout == (
        f"url      {folder.as_uri()}\nmode     write\nprove    local: verdicts are computed here\n"
        "store    3 entries, 3 blobs, 3.0 MB of at most 1 MB\n"
    )
    assert cache(project, "--gc").stdout == "removed 3 entries, 3 blobs, 3.0 MB; 0.0 MB are left\n"


def test_without_a_limit_leftovers_go(folder: Path, cache: Run) -> None:
    (folder / "ac" / f"{1:064x}").unlink()
    assert cache(folder, "--gc", folder.as_uri()).stdout == (
        "removed 1 blob, 1.0 MB; 2.0 MB are left; no limit is set: add --size 10GB, or size = '10 GB' to "
        "[tool.opmatrix.cache]\n"
    )
    assert cache(folder, "--gc", folder.as_uri()).stdout.startswith(
        "removed nothing, 0.0 MB; 2.0 MB are left; no limit"
    )


def test_a_server_is_asked(tmp_path: Path, cache: Run) -> None:
    with cache_server() as server:
        shown = cache(tmp_path, variable=server.url.replace("//", "//me:secret@"))
        assert shown.stdout.startswith(f"url      {server.url}\nmode     read\nstore    answers within ")
        assert shown.stdout.endswith(" ms; how much is there, only the server knows\n")
        url = server.url
    gone = cache(tmp_path, variable=url)
    assert (gone.stdout, gone.stderr, gone.returncode) == ("", f"{url}: Connection refused\n", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gc"], "no shared cache is set, or it is off: see OPMATRIX_CACHE and"),
        (
            ["--gc", "https://me:secret@host/x"],
            "https://host/x is no folder: its server decides what to remove",
        ),
        (["--gc", "file:///none/of/this"], "there is no folder '/none/of/this'"),
        (
            ["--gc", "--size", "10", "file:///tmp"],
            "--size: found '10', allowed: a size above 0 such as '500MB' or '10GB'",
        ),
        (["--size", "10GB"], "doit cache: --size is for --gc"),
        (["/srv/cache"], "doit cache takes one URL, such as file:///srv/opmatrix-cache, and was"),
        (["file://srv/cache"], "has three slashes and an absolute path"),
        (["--gv"], "did you mean '--gc'?"),
    ],
    ids=lambda p: " ".join(p) if isinstance(p, list) else "",
)
def test_what_it_cannot_do_is_an_error(tmp_path: Path, arguments: list[str], message: str, cache: Run) -> None:
    done = cache(tmp_path, *arguments)
    assert message in done.stderr
    assert "secret" not in done.stderr
    assert (done.stdout, done.returncode) == ("", 2)


def test_without_a_cache_it_says_how_to_set_one(tmp_path: Path, cache: Run) -> None:
    done = cache(tmp_path)
    assert done.stdout.startswith("no shared cache is set, or it is off: see OPMATRIX_CACHE and")
    assert done.returncode == 0
    assert cache(tmp_path, variable="off") == done
