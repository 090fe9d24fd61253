"""The settings of the shared cache: [tool.opmatrix.cache] in pyproject.toml, and variables of this machine.

OPMATRIX_CACHE overrides the address, or is "off"; OPMATRIX_CACHE_MODE overrides the mode; OPMATRIX_CACHE_KEY is the
file of the key that signs entries. The key is of a machine, so pyproject.toml cannot name it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from opmatrix.basics.features import provided
from opmatrix.project.paths import Paths
from opmatrix.project.settings import one_of, read_values, setting, settings

TABLE = "pyproject.toml: [tool.opmatrix.cache]"
URL, MODE, KEY = "OPMATRIX_CACHE", "OPMATRIX_CACHE_MODE", "OPMATRIX_CACHE_KEY"
OFF = "off"
Mode = Literal["read", "write", "check", "off"]
_UNITS = {"MB": 1, "GB": 1000, "TB": 1_000_000}


def _wrong_signers(signers: Any) -> Sequence[str]:
    if not isinstance(signers, list) or not all(isinstance(line, str) for line in signers):
        return [f"found {signers!r}, allowed: a list of lines as in ssh's file allowed_signers"]
    mistakes = ((number, provided("signing").wrong_signer(line)) for number, line in enumerate(signers, start=1))
    return [f"line {number}: {why}" for number, why in mistakes if why]


def _wrong_key(key: str) -> Sequence[str]:
    if "-----BEGIN" in key:  # not printed: the log of a CI job has many readers
        return ["contains a key; allowed: the path of a file with the key, which only its owner can read"]
    path = Path(key).expanduser()
    return (
        [] if path.is_file() else [f"there is no file {str(path)!r}; allowed: the path of a key that ssh-keygen made"]
    )


def megabytes_in(size: Any) -> int | None:
    """Return the megabytes of a size such as "20 GB", at least 1; None if it is no size."""
    if not isinstance(size, str) or not (found := re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?) ?([MGT]B)", size)):
        return None
    return int(float(found[1]) * _UNITS[found[2]]) or None


@dataclass(frozen=True, kw_only=True)
class CacheSettings:
    """A shared cache. `mode`: read takes entries, write also makes them, check computes all and compares.

    `prove`: with "local", verdicts and records of checks are computed here. `signers`: lines as in ssh's file
    allowed_signers; if there are any, only entries that one of them signed are taken. `key`: the file of the private
    key that signs, or of a public key whose private one an ssh-agent has. `megabytes`: the size to which
    ``opmatrix cache --gc`` reduces a folder.
    """

    TABLE: ClassVar[str] = "cache"
    url: str = setting(
        lambda url: isinstance(url, str) and url, "an address such as 'https://cache.example.org/my_ops'", variable=URL,
        default="",
    )  # fmt: skip
    """where shared results are: `file:///FOLDER`, `https://HOST/PATH`, or what fsspec reaches"""
    mode: Mode = setting(*one_of("read", "write", "check", OFF), variable=MODE, default="read")
    """`read` (default), `write`, `check` (compute all, and compare) or `off`"""
    prove: Literal["shared", "local"] = setting(*one_of("shared", "local"), default="shared")
    """`shared` (default); `local` takes what is built, and verifies it on this machine"""
    signers: tuple[str, ...] = setting(_wrong_signers, default=())
    """lines of `allowed_signers`; only what one of them signed is taken"""
    megabytes: int | None = setting(
        megabytes_in, "a size above 0 such as '500 MB' or '20 GB'", key="size", parse=megabytes_in, default=None
    )
    """to which `doit cache --gc` reduces a folder, such as `20 GB`"""
    key: Path | None = setting(
        _wrong_key, key="", variable=KEY, parse=lambda key: Path(key).expanduser(), default=None
    )  # fmt: skip


def read(paths: Paths, environ: Mapping[str, str]) -> CacheSettings | None:
    """Return the settings, or None if there is no cache or it is off. Raises UsageError with all mistakes.

    A project may name signers and leave the address to each machine's OPMATRIX_CACHE.
    """
    if OFF in (environ.get(URL), environ.get(MODE)):
        return None
    if not (table := settings(paths, CacheSettings.TABLE)) and not environ.get(URL):
        return None
    found = CacheSettings(**read_values(CacheSettings, table, environ, _unsigned))
    return found if found.url and found.mode != OFF else None


def signers(paths: Paths) -> tuple[str, ...]:
    """Return the signers that pyproject.toml names, also where the cache is off. Raises UsageError."""
    named = {key: lines for key, lines in settings(paths, CacheSettings.TABLE).items() if key == "signers"}
    return CacheSettings(**read_values(CacheSettings, named, {})).signers


def _unsigned(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message where entries would be written without a signature, which all would refuse."""
    if values.get("mode") == "write" and values.get("url") and values.get("signers") and "key" not in values:
        yield (
            f"the mode of the shared cache is 'write', and {TABLE} names signers, so entries without a signature are "
            f"refused; but no key is set. Set {KEY} to the file of a signer's key, or {MODE}=read"
        )
