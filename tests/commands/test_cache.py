"""`doit cache`: the settings and the size of the shared cache, and --gc. What `doit doctor` finds about a shared cache:
one planted fault per test.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from opmatrix.commands import doctor
from opmatrix.commands.doctor_project import shared_cache
from opmatrix.commands.main import main
from opmatrix.project.paths import Paths
from opmatrix.shared_cache.entry import encode
from opmatrix.shared_cache.store import FolderStore
from tests.support.small_servers import cache_server


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `opmatrix cache` in a folder, with a value of OPMATRIX_CACHE."""

    def run(folder: Path, *arguments: str, variable: str = "") -> tuple[str, str, int]:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("OPMATRIX_CACHE", variable)
        monkeypatch.setattr(sys, "argv", ["opmatrix", "cache", *arguments])
        code = main()
        return *capsys.readouterr(), code

    return run


Run = Callable[..., tuple[str, str, int]]  # output, errors, exit code


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
    """Without a limit, --gc removes leftovers."""
    url = folder.as_uri()
    (folder / "ac" / f"{1:064x}").unlink()
    unlimited = "no limit is set: add --size 10GB, or size = '10 GB' to [tool.opmatrix.cache]\n"
    for arguments, printed in (
        ([], f"url      {url}\nmode     read\nstore    2 entries, 3 blobs, 3.0 MB\n"),
        (["--gc"], f"removed 1 blob, 1.0 MB; 2.0 MB are left; {unlimited}"),
        (["--gc"], f"removed nothing, 0.0 MB; 2.0 MB are left; {unlimited}"),
        (["--gc", "--size", "2MB"], "removed 1 entry, 1 blob, 1.0 MB; 1.0 MB are left\n"),
    ):
        assert cache(folder.parent, *arguments, url) == (printed, "", 0)
    assert len([*(folder / "cas").iterdir()]) == 1


def test_in_a_project_the_settings_name_it(folder: Path, cache: Run) -> None:
    project = folder.parent / "project"
    project.mkdir()
    (project / "dodo.py").write_text("")
    table = f'[tool.opmatrix.cache]\nurl = "{folder.as_uri()}"\nmode = "write"\nprove = "local"\nsize = "1 MB"\n'
    (project / "pyproject.toml").write_text(f'[tool.doit]\nloader = "opmatrix"\n{table}')
    assert cache(project)[0] == (
        f"url      {folder.as_uri()}\nmode     write\nprove    local: verdicts are computed here\n"
        "store    3 entries, 3 blobs, 3.0 MB of at most 1 MB\n"
    )
    assert cache(project, "--gc")[0] == "removed 3 entries, 3 blobs, 3.0 MB; 0.0 MB are left\n"


def test_a_server_is_asked(tmp_path: Path, cache: Run) -> None:
    with cache_server() as server:
        shown, *_ = cache(tmp_path, variable=server.url.replace("//", "//me:secret@"))
        assert shown.startswith(f"url      {server.url}\nmode     read\nstore    answers within ")
        assert shown.endswith(" ms; how much is there, only the server knows\n")
        url = server.url
    assert cache(tmp_path, variable=url) == ("", f"{url}: Connection refused\n", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gc"], "no shared cache is set, or it is off: see OPMATRIX_CACHE and"),
        (["--gc", "https://me:secret@host/x"], "https://host/x is no folder: its server decides what to remove"),
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
    printed, errors, code = cache(tmp_path, *arguments)
    assert message in errors and "secret" not in errors and (printed, code) == ("", 2)


def test_without_a_cache_it_says_how_to_set_one(tmp_path: Path, cache: Run) -> None:
    done = cache(tmp_path)
    assert done[0].startswith("no shared cache is set, or it is off: see OPMATRIX_CACHE and") and done[2] == 0
    assert cache(tmp_path, variable="off") == done


needs_ssh_keygen = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs OpenSSH's ssh-keygen")
PATH = "/usr/local/bin:/usr/bin:/bin"


def findings(folder: Path, table: str, **environ: str) -> list[tuple[str, str, str]]:
    (folder / "pyproject.toml").write_text(f"[tool.opmatrix.cache]\n{table}" if table else "")
    found = [*doctor.findings("cache", shared_cache(Paths(folder), {"PATH": PATH, **environ}))]
    assert {one.question for one in found} <= {"cache"}
    return [(one.mark, one.text, one.remedy) for one in found]


def test_a_cache_without_signers_and_a_project_without_a_cache(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    assert findings(tmp_path, f"url = '{url}'\nprove = 'local'\n") == [
        ("ok", f"{url} answers; mode read; verdicts are computed here", ""),
        ("note", "no signers are named, so entries are accepted from everyone who can write to the cache", ""),
    ]
    assert not (tmp_path / "cas").exists()
    assert findings(tmp_path, "") == []


@needs_ssh_keygen
def test_signers_and_a_key_that_can_sign_or_not(tmp_path: Path) -> None:
    key, url = tmp_path / "ci", f"url = '{tmp_path.as_uri()}'\n"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "x", "-f", str(key)], check=True)
    table = f"{url}mode = 'write'\nsigners = ['ci@example.org {key.with_suffix('.pub').read_text().strip()}']\n"
    assert findings(tmp_path, table, OPMATRIX_CACHE_KEY=str(key))[1:] == [
        ("ok", "only entries of 1 signer are taken: ci@example.org", ""),
        ("ok", f"OPMATRIX_CACHE_KEY signs as ci@example.org: {key}", ""),
    ]
    (_, no_signer) = findings(tmp_path, url, OPMATRIX_CACHE_KEY=str(key))
    assert no_signer == ("ok", f"OPMATRIX_CACHE_KEY signs: {key}", "")
    key.chmod(0o644)
    ((mark, text, remedy),) = findings(tmp_path, table, OPMATRIX_CACHE_KEY=str(key))[2:]
    assert mark == "wrong" and text.startswith("OPMATRIX_CACHE_KEY: other users can read the private key")
    assert remedy == f"Run: chmod 600 {key}"


def test_no_ssh_keygen(tmp_path: Path) -> None:
    line = "ci ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIENftjgiitC6h3Q+V0Eu7n2R6wRW/vZQD24wnrbK/dqO"
    found = findings(tmp_path, f"url = '{tmp_path.as_uri()}'\nsigners = ['{line}']\n", PATH=str(tmp_path))
    assert found[1] == ("wrong", "no ssh-keygen on PATH, so no entry can be signed or verified",
                        "Install OpenSSH's client (Debian: apt install openssh-client)")  # fmt: skip


def test_a_server_that_is_gone_is_no_problem_for_doit(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ((mark, text, _), _) = findings(tmp_path, "", OPMATRIX_CACHE=f"http://user:secret@127.0.0.1:{port}/x")
    assert mark == "note" and text.startswith(f"the shared cache does not answer: http://127.0.0.1:{port}/x: ")
    assert text.endswith("doit works without it, and computes all here") and "secret" not in text


def test_wrong_settings(tmp_path: Path) -> None:
    assert [one[:2] for one in findings(tmp_path, "url = 'x://y'\nmode = 'rw'\n")] == [
        ("wrong", "pyproject.toml: [tool.opmatrix.cache]: mode: found 'rw', allowed: 'read', 'write', 'check', 'off'")
    ]
    ((mark, text, _), _) = findings(tmp_path, "url = 'folder'\n")
    assert mark == "wrong" and text.startswith("the shared cache's url is 'folder', allowed: file:///FOLDER")


def test_a_cache_that_is_off(tmp_path: Path) -> None:
    url, mode = f"url = '{tmp_path.as_uri()}'\n", "mode = 'off'\n"
    unset = "no url in pyproject.toml, and OPMATRIX_CACHE is not set"
    for table, environ, why in (
        (url, {"OPMATRIX_CACHE": "off"}, "OPMATRIX_CACHE=off"),
        (url + mode, {}, "its mode is 'off'"),
        ("mode = 'read'\n", {}, unset),
    ):
        assert findings(tmp_path, table, **environ)[0][:2] == ("note", f"the shared cache is off: {why}")
