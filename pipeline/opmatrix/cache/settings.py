"""The settings of the shared cache: [tool.opmatrix.cache] in pyproject.toml, and variables of this machine.

OPMATRIX_CACHE overrides the address, or is "off"; OPMATRIX_CACHE_MODE overrides the mode; OPMATRIX_CACHE_KEY is the
file of the key that signs entries. The key is of a machine, so pyproject.toml cannot name it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from opmatrix.basics.errors import UsageError, did_you_mean
from opmatrix.basics.features import provided
from opmatrix.project.paths import Paths
from opmatrix.project.settings import settings

TABLE = "pyproject.toml: [tool.opmatrix.cache]"
URL, MODE, KEY = "OPMATRIX_CACHE", "OPMATRIX_CACHE_MODE", "OPMATRIX_CACHE_KEY"
Mode = Literal["read", "write", "check"]
Prove = Literal["shared", "local"]
OFF = "off"
_MODES = ("read", "write", "check", OFF)
_PROVE = ("shared", "local")
FIELDS = ("url", "mode", "prove", "signers", "size")
_UNITS = {"MB": 1, "GB": 1000, "TB": 1_000_000}


@dataclass(frozen=True, kw_only=True)
class CacheSettings:
    """A shared cache. `mode`: read takes entries, write also makes them, check computes all and compares.

    `prove`: with "local", verdicts and records of checks are computed here. `signers`: lines as in ssh's file
    allowed_signers; if there are any, only entries that one of them signed are taken. `key`: the file of the private
    key that signs, or of a public key whose private one an ssh-agent has. `megabytes`: the size to which
    ``opmatrix cache --gc`` reduces a folder.
    """

    url: str
    mode: Mode = "read"
    prove: Prove = "shared"
    signers: tuple[str, ...] = ()
    key: Path | None = None
    megabytes: int | None = None


def read(paths: Paths, environ: Mapping[str, str]) -> CacheSettings | None:
    """Return the settings, or None if there is no cache or it is off. Raises UsageError with all mistakes.

    A project may name signers and leave the address to each machine's OPMATRIX_CACHE.
    """
    if environ.get(URL) == OFF or environ.get(MODE) == OFF:
        return None
    table = settings(paths, "cache")
    url, mode = environ.get(URL) or table.get("url"), environ.get(MODE) or table.get("mode", "read")
    if not table and not url:
        return None
    key = Path(environ[KEY]).expanduser() if environ.get(KEY) else None
    if mistakes := [
        *_mistakes(table),
        *_wrong_variables(environ, key),
        *(_does_not_fit(mode, table, key) if url else ()),
    ]:
        raise UsageError("\n".join(dict.fromkeys(mistakes)))
    if mode == OFF or not url:
        return None
    return CacheSettings(
        url=url,
        mode=cast(Mode, mode),
        prove=table.get("prove", "shared"),
        signers=tuple(table.get("signers", ())),
        key=key,
        megabytes=megabytes_in(table["size"]) if "size" in table else None,
    )


def signers(paths: Paths) -> tuple[str, ...]:
    """Return the signers that pyproject.toml names, also where the cache is off. Raises UsageError."""
    table = settings(paths, "cache")
    if mistakes := [one for one in _mistakes(table) if one.startswith(f"{TABLE}: signers")]:
        raise UsageError("\n".join(mistakes))
    return tuple(table.get("signers", ()))


def _mistakes(table: Mapping[str, Any]) -> Iterator[str]:
    for field in table.keys() - set(FIELDS):
        yield f"{TABLE}: {field}: unknown setting, allowed: {', '.join(FIELDS)}{did_you_mean(field, FIELDS)}"
    url = table.get("url", "file:///srv/cache")
    if not isinstance(url, str) or not url:
        yield f"{TABLE}: url: found {url!r}, allowed: an address such as 'https://cache.example.org/my_ops'"
    for field, allowed in (("mode", _MODES), ("prove", _PROVE)):
        if (value := table.get(field, allowed[0])) not in allowed:
            yield f"{TABLE}: {field}: found {value!r}, allowed: {_listed(allowed)}"
    if megabytes_in(size := table.get("size", "1 GB")) is None:
        yield f"{TABLE}: size: found {size!r}, allowed: a size above 0 such as '500 MB' or '20 GB'"
    signers = table.get("signers", [])
    if not isinstance(signers, list) or not all(isinstance(line, str) for line in signers):
        yield f"{TABLE}: signers: found {signers!r}, allowed: a list of lines as in ssh's file allowed_signers"
        return
    for number, line in enumerate(signers, start=1):
        if why := provided("signing").wrong_signer(line):
            yield f"{TABLE}: signers: line {number}: {why}"


def _wrong_variables(environ: Mapping[str, str], key: Path | None) -> Iterator[str]:
    if (mode := environ.get(MODE) or "read") not in _MODES:
        yield f"{MODE}: found {mode!r}, allowed: {_listed(_MODES)}"
    if key is None:
        return
    if "-----BEGIN" in environ[KEY]:  # not printed: the log of a CI job has many readers
        yield f"{KEY} contains a key; allowed: the path of a file with the key, which only its owner can read"
    elif not key.is_file():
        yield f"{KEY}: there is no file {str(key)!r}; allowed: the path of a key that ssh-keygen made"


def _does_not_fit(mode: Any, table: Mapping[str, Any], key: Path | None) -> Iterator[str]:
    if mode == "write" and table.get("signers") and key is None:
        yield (
            f"the mode of the shared cache is 'write', and {TABLE} names signers, so entries without a signature are "
            f"refused; but no key is set. Set {KEY} to the file of a signer's key, or {MODE}=read"
        )


def megabytes_in(size: Any) -> int | None:
    """Return the megabytes of a size such as "20 GB", at least 1; None if it is no size."""
    if not isinstance(size, str) or not (found := re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?) ?([MGT]B)", size)):
        return None
    return int(float(found[1]) * _UNITS[found[2]]) or None


def _listed(allowed: tuple[str, ...]) -> str:
    return ", ".join(map(repr, allowed))
