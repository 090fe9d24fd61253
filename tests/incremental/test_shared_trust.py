"""What a clone takes from the shared cache, what it compares with it, and when it refuses to begin."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.incremental.conftest import ALL, Clone, replace_blobs

pytestmark = pytest.mark.incremental
needs_ssh_keygen = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs OpenSSH's ssh-keygen")


def poison(store: Path) -> None:
    """Replace HELLO in the blob of data:a."""
    replace_blobs(store, lambda blob: blob.replace(b"HELLO", b"JELLO") if b'"build/a.npz"' in blob else blob)


def set_cache(clone: Clone, settings: str) -> None:
    clone.write("pyproject.toml", f"{clone.read('pyproject.toml')}\n[tool.opmatrix.cache]\n{settings}\n")


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_mode_check_computes_every_step_and_compares(store: Path, second: Clone) -> None:
    """With a variable and in pyproject.toml. The second time, all is up to date."""
    stored = sorted((store / "ac").iterdir())
    for _ in range(2):
        out = second.run(mode="check")
        assert sorted(second.ran()) == ALL
        assert f"3 steps wrote the same as in the shared cache {store.as_uri()}\n" in out
    set_cache(second, f"url = '{second.url}'\nmode = 'check'")
    assert "3 steps wrote the same" in second.doit().stdout and sorted(second.ran()) == ALL
    second.write("a.txt", "good day")
    assert "0 steps wrote the same as in the shared cache" in (out := second.run(mode="check"))
    assert "it has no entry for 3 steps" in out
    assert sorted((store / "ac").iterdir()) == stored


def test_mode_check_reports_each_difference_with_both_digests(store: Path, second: Clone) -> None:
    poison(store)
    done = second.doit(OPMATRIX_CACHE=second.url, OPMATRIX_CACHE_MODE="check")
    assert done.returncode == 1
    out = " ".join((done.stdout + done.stderr).split())
    assert "data:a" in out and f"1 output differs from the shared cache {second.url}" in out
    assert f"build/a.npz: sha256 {sha('HELLO ')} here, {sha('JELLO ')} in the shared cache" in out
    assert second.read("build/a.npz") == "HELLO "
    assert "1 step wrote the same as in the shared cache" in out  # codegen:a; export:a is behind the difference


def test_mode_check_reports_a_damaged_entry(store: Path, second: Clone) -> None:
    for blob in (store / "cas").iterdir():
        blob.write_bytes(b"x" + blob.read_bytes()[1:])
    done = second.doit("codegen", OPMATRIX_CACHE=second.url, OPMATRIX_CACHE_MODE="check")
    assert done.returncode == 1
    out = " ".join((done.stdout + done.stderr).split())
    assert f"its entry in the shared cache {second.url} is damaged: codegen:a: the blob has another digest" in out


def test_prove_local_takes_what_is_built_and_nothing_that_proves(tmp_path: Path, store: Path, second: Clone) -> None:
    """A poisoned expected output is never taken."""
    poison(store)
    set_cache(second, "url = 'x'\nprove = 'local'")
    second.run(mode="read")
    assert sorted(second.ran()) == ["a.h", "a.npz"]
    assert second.read("build/a.onnx") == "HELLO "
    shared = Clone(tmp_path / "third", store.as_uri())
    shared.run(mode="read")
    assert shared.read("build/a.npz") == "JELLO "  # the plant is one that can be taken


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Path, str]:
    """A key, and the settings that name its owner."""
    key = tmp_path / "ci"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(key)], check=True)
    line = key.with_suffix(".pub").read_text().strip()
    return key, f"url = 'x'\nsigners = ['ci@example.org {line}']"


@needs_ssh_keygen
def test_only_what_a_signer_signed_is_taken(
    tmp_path: Path, store: Path, first: Clone, signed: tuple[Path, str]
) -> None:
    key, settings = signed
    writer, reader = (Clone(tmp_path / name, store.as_uri()) for name in ("writer", "reader"))
    for clone in (writer, reader):
        set_cache(clone, settings)
    out = writer.run(OPMATRIX_CACHE_KEY=str(key))
    assert sorted(writer.ran()) == ALL  # `first` signed nothing
    assert "results of the shared cache were not taken: no signer in pyproject.toml signed them" in out
    reader.run(mode="read")
    assert reader.ran() == ["a.h"]
    assert ", signed by ci@example.org SHA256:" in reader.doit("info", "data:a").stdout


@needs_ssh_keygen
def test_a_writer_that_cannot_sign_runs_nothing(tmp_path: Path, store: Path, signed: tuple[Path, str]) -> None:
    key, settings = signed
    clone = Clone(tmp_path / "writer", store.as_uri())
    set_cache(clone, settings)
    for name, message in (
        ("", "but no key is set. Set OPMATRIX_CACHE_KEY"),
        (str(key), "OPMATRIX_CACHE_KEY: other users can"),
    ):
        key.chmod(0o644)
        done = clone.doit(OPMATRIX_CACHE=clone.url, OPMATRIX_CACHE_MODE="write", OPMATRIX_CACHE_KEY=name)
        assert done.returncode == 2 and message in done.stderr
        assert clone.ran() == [] and not store.exists()
