"""Signatures of entries, with ssh-keygen itself: who signed what, and every way in which a signature is refused."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from opmatrix.addons.team.signing import SignatureError, check_key, public_key, sign, verify, wrong_signer
from opmatrix.basics.errors import ToolchainError, UsageError
from opmatrix.shared_cache.entry import message

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs OpenSSH's ssh-keygen")

MESSAGE = message(key="a" * 64, blob="b" * 64, record=b"{}")


def make_key(folder: Path, name: str, kind: str = "ed25519", passphrase: str = "") -> tuple[Path, str]:
    """Make a key; return its file, and its public key as a line has it."""
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", name, "-f", str(folder / name)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    kind, key, _ = (folder / f"{name}.pub").read_text().split()
    return folder / name, f"{kind} {key}"


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, Path, str]:
    folder = tmp_path_factory.mktemp("keys")
    return *make_key(folder, "ci"), *make_key(folder, "other")


Keys = tuple[Path, str, Path, str]


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_the_signer_of_a_message_is_found(tmp_path: Path, kind: str) -> None:
    empty = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"  # sha256 of {}
    assert MESSAGE.decode().splitlines() == ["opmatrix 1", "a" * 64, "b" * 64, empty]
    key, public = make_key(tmp_path, "key", kind)
    key.with_suffix(".pub").unlink()  # CI has the private key alone
    assert verify(MESSAGE, sign(MESSAGE, key), [f"ci@example.org {public}"]) == "ci@example.org"


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("ci@example.org {} with a comment", "ci@example.org"),
        ("ci,ci@example.org {}", "ci,ci@example.org"),
        ('"the CI" {}', "the CI"),
        ('ci namespaces="git,opmatrix",valid-after="20200101" {}', "ci"),
        ('ci valid-before="29990101" {}', "ci"),
        ("*,!x {}", "*,!x"),  # a name, though ssh-keygen takes patterns
    ],
)  # fmt: skip
def test_lines_of_allowed_signers(keys: Keys, line: str, name: str) -> None:
    key, public, _, other = keys
    lines = [f"other {other}", line.format(public)]
    assert [wrong_signer(one) for one in lines] == ["", ""]
    assert verify(MESSAGE, sign(MESSAGE, key), lines) == name


def test_what_no_signer_signed_is_refused(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> None:
    key, public, other, other_public = keys
    lines, signature = [f"ci {public}"], sign(MESSAGE, key)
    assert verify(MESSAGE, signature, lines) == "ci"
    command = ["ssh-keygen", "-Y", "sign", "-q", "-n", "git", "-f", str(key)]
    of_git = subprocess.run(command, input=MESSAGE, capture_output=True, check=True).stdout.decode()
    assert public_key(of_git)
    parts: dict[str, Any] = {"key": "a" * 64, "blob": "b" * 64, "record": b"{}"}
    changed = [message(**parts | part) for part in ({"key": "c" * 64}, {"blob": "c" * 64}, {"record": b"[]"})]
    expired = [f"ci {option} {public}" for option in ('valid-before="20200101"', 'valid-after="29990101"')]
    refused = [
        *(verify(MESSAGE, one, lines) for one in (sign(MESSAGE, other), of_git, *garbage(signature))),
        *(verify(one, signature, lines) for one in changed),
        *(verify(MESSAGE, signature, [line]) for line in expired),
    ]
    monkeypatch.setattr(subprocess, "run", None)  # a key of no signer costs no process
    refused += [verify(MESSAGE, signature, known) for known in ([], [f"other {other_public}"])]
    assert refused == [None] * len(refused)


def test_another_key_in_the_place_of_the_signers_is_refused(keys: Keys) -> None:
    """The key that is read from a signature only names the signer; ssh-keygen verifies with the key of the line."""
    _, public, other, other_public = keys
    own, others = (base64.b64decode(p.split()[1]) for p in (public, other_public))
    body = base64.b64decode("".join(sign(MESSAGE, other).splitlines()[1:-1])).replace(others, own)
    forged = f"-----BEGIN SSH SIGNATURE-----\n{base64.b64encode(body).decode()}\n-----END SSH SIGNATURE-----\n"
    assert public_key(forged) == own
    assert verify(MESSAGE, forged, [f"ci {public}"]) is None


def garbage(signature: str) -> Iterator[str]:
    lines = signature.splitlines()
    yield from ("", "\n", "x", lines[0], "\0", "-----BEGIN SSH SIGNATURE-----\n\n-----END SSH SIGNATURE-----", "é" * 40)
    yield "\n".join([lines[0], "U1NIU0lH", lines[-1]])
    yield "\n".join([lines[0], "U1NIU0lHAAAAAf////8=", lines[-1]])
    yield signature * 100
    yield "\n".join([lines[0], *lines[2:]])
    yield "\n".join([*lines[:-2], lines[-1]])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", "found '', allowed: name, type and public key of a signer, such as 'ci@example.org ssh-ed25519"),
        ("ssh-ed25519 AAAA", "found 'ssh-ed25519 AAAA', allowed: name"),
        ("ci ssh-ed25519 AAAA", "the key of 'ci' is damaged: it is no ssh-ed25519. Copy the line"),
        ("ci ssh-rsa {key}", "the key of 'ci' is damaged: it is no ssh-rsa"),
        ("ci ssh-dss {key}", "found 'ci ssh-dss"),
        ("ci ssh-ed25519 {key}\nother ssh-ed25519 {key}", "found 'ci ssh-ed25519"),
        ('ci namespaces="git" ssh-ed25519 {key}', 'namespaces="git": allowed: one that contains opmatrix'),
        ('ci namespaces="opmatrix",valid-before="2030" ssh-ed25519 {key}', 'valid-before="2030": allowed: YYYYMMDD'),
        ("ci cert-authority ssh-ed25519 {key}", "cert-authority: not supported, because a certificate that expires"),
        ('ci bogus="x" ssh-ed25519 {key}', 'bogus="x": unknown option, allowed: namespaces, valid-after'),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "it is a private key. All who read this file can use it"),
    ],
)  # fmt: skip
def test_each_wrong_line_has_a_message(keys: Keys, line: str, expected: str) -> None:
    found = wrong_signer(line.format(key=keys[1].split()[1]))
    assert found.startswith(expected)
    assert "\n" not in found


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("cut", "'.*cut' cannot sign: .* Is the file whole, with a newline at its end"),
        ("open", "other users can read the private key '.*open', so ssh-keygen refuses it. Run: chmod 600 "),
        ("text", "no private key for '.*text': neither next to it nor in an ssh-agent. Add it: ssh-add"),
        ("empty", "no private key for '.*empty'"),
        ("locked", r"has a passphrase, and opmatrix does not ask for it. .*locked.pub$"),
    ],
)
def test_a_key_that_cannot_sign_has_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, expected: str
) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    key, _ = make_key(tmp_path, kind, passphrase="secret" if kind == "locked" else "")
    content = {"cut": key.read_bytes()[:200], "text": b"x", "empty": b""}
    key.write_bytes(content.get(kind, key.read_bytes()))
    key.chmod(0o644 if kind == "open" else 0o600)
    if kind != "locked":
        key.with_suffix(".pub").unlink()
    with pytest.raises(SignatureError, match=expected) as caught:
        sign(MESSAGE, key)
    assert "\n" not in str(caught.value)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    socket = tmp_path / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(socket)], stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        yield
        process.terminate()


@pytest.mark.usefixtures("agent")
def test_an_agent_signs_for_a_public_key(tmp_path: Path) -> None:
    key, public = make_key(tmp_path, "key")
    subprocess.run(["ssh-add", "-q", str(key)], check=True, env=os.environ)
    key.unlink()
    assert verify(MESSAGE, sign(MESSAGE, tmp_path / "key.pub"), [f"me {public}"]) == "me"


def test_the_key_of_a_run_is_tried_before_anything_runs(keys: Keys, tmp_path: Path) -> None:
    key, public, other, other_public = keys
    assert check_key(key, [f"ci {public}"]) == "ci"
    assert check_key(key, []) == ""
    with pytest.raises(UsageError, match=r"is of no signer in pyproject.toml, .*'NAME ssh-ed25519 ") as caught:
        check_key(other, [f"ci {public}"])
    assert other_public in str(caught.value)
    locked, _ = make_key(tmp_path, "locked", passphrase="secret")
    with pytest.raises(UsageError, match=r"^OPMATRIX_CACHE_KEY: the key .* has a passphrase"):
        check_key(locked, [])


def test_without_ssh_keygen_and_with_an_old_one_there_is_a_message(
    keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, public, *_ = keys
    signature, path = sign(MESSAGE, key), os.environ["PATH"]
    monkeypatch.setenv("PATH", str(tmp_path))
    for call in (lambda: sign(MESSAGE, key), lambda: verify(MESSAGE, signature, [f"ci {public}"])):
        with pytest.raises(ToolchainError, match=r"cannot run ssh-keygen, .*Install OpenSSH's client"):
            call()
    (tmp_path / "ssh-keygen").write_text("#!/bin/sh\necho 'unknown option -- Y' >&2; exit 1\n")
    (tmp_path / "ssh-keygen").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{path}")
    with pytest.raises(ToolchainError, match=r"knows no -Y, .* Install OpenSSH 8.1 or newer"):
        sign(MESSAGE, key)
