"""What `doit doctor` finds about a shared cache: one planted fault per test."""

from __future__ import annotations

import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from opmatrix.commands import doctor
from opmatrix.commands.doctor_project import shared_cache
from opmatrix.project.paths import Paths

needs_ssh_keygen = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs OpenSSH's ssh-keygen")
PATH = "/usr/local/bin:/usr/bin:/bin"


def findings(folder: Path, table: str, **environ: str) -> list[tuple[str, str, str]]:
    (folder / "pyproject.toml").write_text(f"[tool.opmatrix.cache]\n{table}" if table else "")
    found = [*doctor.findings("cache", shared_cache(Paths(folder), {"PATH": PATH, **environ}))]
    assert {one.question for one in found} <= {"cache"}
    return [(one.mark, one.text, one.remedy) for one in found]


@pytest.fixture
def ci(tmp_path: Path) -> tuple[Path, str]:
    """A key, and its line."""
    key = tmp_path / "ci"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "x", "-f", str(key)], check=True)
    return key, f"ci@example.org {key.with_suffix('.pub').read_text().strip()}"


def test_a_project_without_a_cache_has_no_finding(tmp_path: Path) -> None:
    assert findings(tmp_path, "") == []


def test_a_cache_without_signers(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    assert findings(tmp_path, f"url = '{url}'\nprove = 'local'\n") == [
        ("ok", f"{url} answers; mode read; verdicts are computed here", ""),
        ("note", "no signers are named, so entries are accepted from everyone who can write to the cache", ""),
    ]
    assert not (tmp_path / "cas").exists()


@needs_ssh_keygen
def test_signers_and_key(tmp_path: Path, ci: tuple[Path, str]) -> None:
    key, line = ci
    table = f"url = '{tmp_path.as_uri()}'\nmode = 'write'\nsigners = ['{line}']\n"
    assert findings(tmp_path, table, OPMATRIX_CACHE_KEY=str(key))[1:] == [
        ("ok", "only entries of 1 signer are taken: ci@example.org", ""),
        ("ok", f"OPMATRIX_CACHE_KEY signs as ci@example.org: {key}", ""),
    ]
    (_, no_signer) = findings(tmp_path, f"url = '{tmp_path.as_uri()}'\n", OPMATRIX_CACHE_KEY=str(key))
    assert no_signer == ("ok", f"OPMATRIX_CACHE_KEY signs: {key}", "")


@needs_ssh_keygen
def test_a_key_that_cannot_sign(tmp_path: Path, ci: tuple[Path, str]) -> None:
    key, line = ci
    key.chmod(0o644)
    table = f"url = '{tmp_path.as_uri()}'\nsigners = ['{line}']\n"
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
    table = f"url = '{tmp_path.as_uri()}'\n"
    assert findings(tmp_path, table, OPMATRIX_CACHE="off")[0][:2] == (
        "note",
        "the shared cache is off: OPMATRIX_CACHE=off",
    )
    assert findings(tmp_path, f"{table}mode = 'off'\n")[0][:2] == ("note", "the shared cache is off: its mode is 'off'")
    assert findings(tmp_path, "mode = 'read'\n")[0][:2] == (
        "note",
        "the shared cache is off: no url in pyproject.toml, and OPMATRIX_CACHE is not set",
    )
