"""Sign entries of the shared cache, and find out who signed one, with OpenSSH's ssh-keygen.

The signature is an SSHSIG (OpenSSH's PROTOCOL.sshsig) in the namespace "opmatrix". An ssh-keygen takes 4 ms of CPU, so
each signature costs one: the key is read from the signature, and one that no signer has is refused without ssh-keygen.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import IO

from opmatrix.basics.errors import OpmatrixError, ToolchainError, UsageError, one_line, printable
from opmatrix.shared_cache.entry import SIGNED

NAMESPACE = "opmatrix"
_LONGEST = 20_000  # characters of a signature; one of RSA with 16384 bits has 6,000
_SECONDS = 30  # for a hardware key that waits to be touched, or an ssh-agent that asks
_TYPES = r"(?:ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)|sk-(?:ssh-ed25519|ecdsa-sha2-nistp256)@openssh\.com)"
# A line of allowed_signers: names, options, type, key, comment. Quotes may contain spaces.
_LINE = re.compile(
    rf'("[^"]*"|[^\s"]+)[ \t]+(?:((?:[^\s"]|"[^"]*")+)[ \t]+)?({_TYPES})[ \t]+([\w+/]+={{0,2}})(?:[ \t].*)?'
)
_OPTION = re.compile(r'(?:[^,"]|"[^"]*")+')
_EXAMPLE = "'ci@example.org ssh-ed25519 AAAA...'"


class SignatureError(OpmatrixError):
    """A key that cannot sign."""


def wrong_signer(line: str) -> str:
    """Return what is wrong with a line of allowed_signers, or ""."""
    if "PRIVATE KEY" in line:  # not printed
        return "it is a private key. All who read this file can use it: make another, and name its public key here"
    if not (found := _LINE.fullmatch(line.strip())):
        return f"found {line!r}, allowed: name, type and public key of a signer, such as {_EXAMPLE}"
    _, options, kind, key = found.groups()
    try:
        whole = _fields(base64.b64decode(key, validate=True))[0].decode() == kind
    except (ValueError, struct.error):
        whole = False
    if not whole:
        return f"the key of {found[1]!r} is damaged: it is no {kind}. Copy the line of the .pub file again"
    return next((f"{option}: {why}" for option in _OPTION.findall(options or "") if (why := _wrong_option(option))), "")


def _wrong_option(option: str) -> str:
    """Return what is wrong with an option of a line of allowed_signers, or ""."""
    name, _, value = option.partition("=")
    value = value.strip('"')
    if name.lower() == "namespaces":
        return "" if {NAMESPACE, "*"} & {*value.split(",")} else f"allowed: one that contains {NAMESPACE}"
    if name.lower() in ("valid-after", "valid-before"):
        return "" if re.fullmatch(r"\d{8}(?:\d{4}(?:\d{2})?)?Z?", value) else "allowed: YYYYMMDD or YYYYMMDDHHMM[SS]"
    if name.lower() == "cert-authority":
        return "not supported, because a certificate that expires takes its entries with it. Name the keys themselves"
    return "unknown option, allowed: namespaces, valid-after, valid-before"


def sign(message: bytes, key: Path) -> str:
    """Return the signature of a message. `key`: the file of a private key, or of a public one whose private key an
    ssh-agent has. Raises SignatureError if the key cannot sign, ToolchainError without ssh-keygen."""
    done = _ssh_keygen("-Y", "sign", "-q", "-n", NAMESPACE, "-f", str(key), stdin=message)
    if done.returncode:
        raise SignatureError(_why_no_signature(key, _printed(done)))
    return done.stdout.decode()


def verify(message: bytes, signature: str, signers: Sequence[str]) -> str | None:
    """Return the name of the signer whose signature this is of the message, None if it is invalid or of no signer.
    `signers`: lines without mistakes (`wrong_signer`). Raises as `sign`."""
    names, lines = _allowed(tuple(signers))
    key = public_key(signature)
    if key is None or key not in names:
        return None
    with _unnamed_file(signature) as signed, _unnamed_file(lines) as allowed:
        arguments = ("-I", _identity(key), "-s", f"/dev/fd/{signed.fileno()}", "-f", f"/dev/fd/{allowed.fileno()}")
        done = _ssh_keygen("-Y", "verify", "-q", "-n", NAMESPACE, *arguments, stdin=message,
                           descriptors=(signed.fileno(), allowed.fileno()))  # fmt: skip
    return None if done.returncode else names[key]


def signer_names(signers: Sequence[str]) -> list[str]:
    """Return the names in lines without mistakes, each once."""
    return list(dict.fromkeys(_allowed(tuple(signers))[0].values()))


def fingerprint(signature: str) -> str:
    """Return the fingerprint of the key in a signature, as ``ssh-keygen -l`` prints it; "" if it is no signature."""
    return _fingerprint(key) if (key := public_key(signature)) else ""


def identities(signers: Sequence[str]) -> set[str]:
    """Return name and fingerprint of each signer, as `opmatrix.shared_cache.client.Record` has them."""
    return {f"{name} {_fingerprint(key)}" for key, name in _allowed(tuple(signers))[0].items()}


def _fingerprint(key: bytes) -> str:
    return f"SHA256:{base64.b64encode(hashlib.sha256(key).digest()).decode().rstrip('=')}"


def check_key(key: Path, signers: Sequence[str]) -> str:
    """Sign something with the key, and return the name that `signers` has for it, "" without signers. Raises UsageError
    if the key cannot sign or is of no signer, ToolchainError without ssh-keygen."""
    trial = f"opmatrix {SIGNED}\n".encode()
    try:
        signature = sign(trial, key)
    except SignatureError as error:
        raise UsageError(f"OPMATRIX_CACHE_KEY: {error}") from error
    if not signers:
        return ""
    if (name := verify(trial, signature, signers)) is None:
        blob = public_key(signature) or b""
        line = f"{_fields(blob)[0].decode()} {base64.b64encode(blob).decode()}"
        raise UsageError(f"OPMATRIX_CACHE_KEY: the key {str(key)!r} is of no signer in pyproject.toml, so all would "
                         f"refuse what it signs. Its line for signers: 'NAME {line}'")  # fmt: skip
    return name


def public_key(signature: str) -> bytes | None:
    """Return the public key in a signature, in the format of SSH, or None if it is no signature."""
    lines = signature.strip().splitlines() if len(signature) <= _LONGEST else []
    if len(lines) < 3 or (lines[0], lines[-1]) != ("-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----"):
        return None
    try:
        content = base64.b64decode("".join(lines[1:-1]), validate=True)
        return _fields(content[10:])[0] if content[:10] == b"SSHSIG\0\0\0\1" else None
    except (ValueError, struct.error):
        return None


def _fields(content: bytes) -> list[bytes]:
    """Return the strings of SSH's encoding: each after its length in four bytes. Raises struct.error, ValueError."""
    strings = []
    while content:
        (length,) = struct.unpack(">I", content[:4])
        strings.append(content[4 : 4 + length])
        if len(strings[-1]) != length:
            raise ValueError("cut off")
        content = content[4 + length :]
    return strings


@lru_cache(maxsize=8)
def _allowed(signers: tuple[str, ...]) -> tuple[Mapping[bytes, str], str]:
    """Return the names of signers by their public keys, and their lines for ssh-keygen."""
    names: dict[bytes, str] = {}
    lines = []
    for line in signers:
        found = _LINE.fullmatch(line.strip())
        assert found, line
        name, options, kind, key = found.groups()
        blob = base64.b64decode(key)
        names.setdefault(blob, name.strip('"'))
        lines.append(" ".join(filter(None, (_identity(blob), options, kind, key))) + "\n")
    return names, "".join(lines)


def _identity(key: bytes) -> str:
    """Return the name of a key for ssh-keygen, which takes those of allowed_signers as patterns."""
    return hashlib.sha256(key).hexdigest()


def _unnamed_file(text: str) -> IO[bytes]:
    """Return a temporary file without a name: only this process can open it, and nothing is left behind."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    file.write(text.encode())
    file.flush()
    return file


def _ssh_keygen(
    *arguments: str, stdin: bytes = b"", descriptors: Sequence[int] = ()
) -> subprocess.CompletedProcess[bytes]:
    """Run ssh-keygen without a terminal, because it would ask there for a passphrase."""
    try:
        done = subprocess.run(["ssh-keygen", *arguments], input=stdin, capture_output=True, timeout=_SECONDS,
                              pass_fds=descriptors, start_new_session=True,
                              env={**os.environ, "SSH_ASKPASS_REQUIRE": "never"})  # fmt: skip
    except OSError as error:
        raise ToolchainError(
            f"cannot run ssh-keygen, which signs and verifies entries of the shared cache: {error.strerror}. "
            "Install OpenSSH's client (Debian: apt install openssh-client), or set OPMATRIX_CACHE=off"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise SignatureError(f"ssh-keygen {' '.join(arguments[:2])} did not end within {_SECONDS} s. "
                             "Does an ssh-agent or a hardware key wait for you?") from error  # fmt: skip
    if done.returncode and "unknown option" in _printed(done):
        raise ToolchainError("this ssh-keygen knows no -Y, with which entries of the shared cache are signed. Install "
                             "OpenSSH 8.1 or newer, or set OPMATRIX_CACHE=off")  # fmt: skip
    return done


def _printed(done: subprocess.CompletedProcess[bytes]) -> str:
    return printable(one_line(done.stderr.decode(errors="replace")))


def _why_no_signature(key: Path, printed: str) -> str:
    """Return why a key cannot sign. ssh-keygen -Y prints it only of some keys, -y of all that are private."""
    if not os.access(key, os.R_OK):
        return f"cannot read the key {str(key)!r}, as this user"
    if key.read_bytes()[:10] != b"-----BEGIN":
        return f"no private key for {str(key)!r}: neither next to it nor in an ssh-agent. Add it: ssh-add PRIVATE_KEY"
    printed = _printed(_ssh_keygen("-y", "-P", "", "-f", str(key))) or printed
    if "passphrase" in printed:
        return (
            f"the key {str(key)!r} has a passphrase, and opmatrix does not ask for it. Add the key to an ssh-agent "
            f"(ssh-add {key}), and name its public key: OPMATRIX_CACHE_KEY={key}.pub"
        )
    if "too open" in printed:
        return f"other users can read the private key {str(key)!r}, so ssh-keygen refuses it. Run: chmod 600 {key}"
    return f"the key {str(key)!r} cannot sign: {printed}. Is the file whole, with a newline at its end?"
