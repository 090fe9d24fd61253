"""An entry of the shared cache: what a step wrote, as one blob of bytes.

A blob is a line of JSON and the contents of the files, one after another. The line names the files, each with its size
and whether it is executable, the symbolic links, the digests of the inputs that the step found while it ran, and what
it printed. Nothing of it is executed or unpickled; a file is written only where the step itself would write it.
"""

from __future__ import annotations

import hashlib
import json
import os
import posixpath
import secrets
import sysconfig
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opmatrix.files import write_bytes
from opmatrix.step import Step

_PACKAGES = sysconfig.get_path("purelib")
_ANY = "{packages}/"
_LONGEST_HEAD = 1 << 24  # bytes of the line of JSON


class EntryError(ValueError):
    """A blob that no step of this kind wrote."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What a step wrote. All paths are relative to the project, except those of a system's headers in `found`, and
    those of installed packages there, which begin with `{packages}/`.

    `files`: contents. `executable`: those of them that may be executed. `links`: where symbolic links point to.
    `found`: the digests of the inputs that the step discovered. `log`: what it printed.
    """

    files: Mapping[str, bytes]
    executable: frozenset[str] = frozenset()
    links: Mapping[str, str]
    found: Mapping[str, str]
    log: str = ""

    @property
    def digests(self) -> dict[str, str]:
        """Return the sha256 of each file."""
        return {path: hashlib.sha256(content).hexdigest() for path, content in self.files.items()}


def listed(entry: Entry, step: Step, root: Path) -> list[str]:
    """Return the inputs that an entry says the step found, also those of which it has no digest."""
    if not step.discovered_inputs:
        return []
    return entry.files[relative(step.discovered_inputs, root)].decode(errors="replace").splitlines()


def relative(path: str, root: Path) -> str:
    """Return a path relative to the project, or as it is outside of it."""
    return path.removeprefix(f"{root}/")


def outputs(step: Step, root: Path) -> tuple[str, ...]:
    """Return the files that an entry of a step holds: what it writes, and its list of discovered inputs."""
    more = [step.discovered_inputs] if step.discovered_inputs else []
    return tuple(sorted({relative(path, root) for path in (*step.writes, *more)}))


def discovered(step: Step) -> list[str]:
    """Return the inputs that a step found when it last ran."""
    if step.discovered_inputs:
        with suppress(OSError, UnicodeDecodeError):
            return Path(step.discovered_inputs).read_text(encoding="utf-8").splitlines()
    return []


def here(path: str) -> str:
    """Return where an input that a step found elsewhere is on this machine."""
    return f"{_PACKAGES}/{path.removeprefix(_ANY)}" if path.startswith(_ANY) else path


def _anywhere(path: str) -> str:
    """Return the path of an input that a step found, for any machine: environments are in different folders."""
    return f"{_ANY}{path.removeprefix(f'{_PACKAGES}/')}" if path.startswith(f"{_PACKAGES}/") else path


def _lines(paths: Iterable[str]) -> bytes:
    return "".join(f"{path}\n" for path in paths).encode()


def read(step: Step, root: Path, *, found: Mapping[str, str], log: str = "") -> Entry:
    """Read what a step wrote. Raises OSError for a file that it did not write."""
    paths = outputs(step, root)
    files = {path: (root / path).read_bytes() for path in paths}
    if step.discovered_inputs:
        files[relative(step.discovered_inputs, root)] = _lines(map(_anywhere, discovered(step)))
    return Entry(
        files=files,
        executable=frozenset(path for path in paths if os.access(root / path, os.X_OK)),
        links={relative(path, root): str(Path(path).readlink()) for path in sorted(step.links)},
        found={_anywhere(path): digest for path, digest in sorted(found.items())},
        log=log,
    )


def write(entry: Entry, step: Step, root: Path) -> None:
    """Write the files and links of an entry. Each is replaced at once; one with equal content stays untouched."""
    of_list = relative(step.discovered_inputs, root) if step.discovered_inputs else None
    for path, content in entry.files.items():
        there = root / path
        if path == of_list:
            content = _lines(map(here, listed(entry, step, root)))
        write_bytes(there, content)
        if os.access(there, os.X_OK) != (path in entry.executable):
            there.chmod(0o755 if path in entry.executable else 0o644)
    for path, target in entry.links.items():
        link = root / path
        if not (link.is_symlink() and str(link.readlink()) == target):
            link.parent.mkdir(parents=True, exist_ok=True)
            made = link.with_name(f".{link.name}.{secrets.token_hex(8)}")
            made.symlink_to(target)
            made.replace(link)  # at once: a step of another ONNX Runtime has the same links


def pack(entry: Entry) -> bytes:
    """Return an entry as a blob."""
    files = [[path, len(content), path in entry.executable] for path, content in sorted(entry.files.items())]
    head = {"files": files, "links": dict(sorted(entry.links.items())), "found": dict(sorted(entry.found.items())),
            "log": entry.log}  # fmt: skip
    contents = (content for _, content in sorted(entry.files.items()))
    return b"".join([json.dumps(head, separators=(",", ":")).encode(), b"\n", *contents])


def unpack(blob: bytes, step: Step, root: Path) -> Entry:
    """Return the entry in a blob. Raises EntryError unless it holds exactly what the step writes."""
    end = blob.find(b"\n", 0, _LONGEST_HEAD)
    try:
        if end < 0:
            raise ValueError(f"no line of at most {_LONGEST_HEAD:,} bytes")
        head = json.loads(blob[:end])
        files, executable = _files(head["files"], blob[end + 1 :])
        links, found, log = _texts(head["links"]), _texts(head["found"]), _text(head["log"])
        entry = Entry(files=files, executable=executable, links=links, found=found, log=log)
    except (ValueError, LookupError, TypeError, RecursionError, OverflowError) as error:
        raise EntryError(f"it is damaged: {error}") from error
    if set(files) != {*outputs(step, root)}:
        raise EntryError("it holds other files than the step writes")
    if set(entry.links) != {relative(path, root) for path in step.links}:
        raise EntryError("it holds other links than the step makes")
    for link, target in entry.links.items():
        # Else what is written through a link would be elsewhere, or what is read from it of another user.
        top = link.partition("/")[0]
        if not posixpath.normpath(f"{posixpath.dirname(link)}/{target}").startswith(f"{top}/") or target[:1] == "/":
            raise EntryError(f"its link {link} points out of {top}/")
    return entry


def _files(listed: Any, contents: bytes) -> tuple[dict[str, bytes], frozenset[str]]:
    files: dict[str, bytes] = {}
    executable, at = set(), 0
    for path, size, runs in listed:
        if not isinstance(path, str) or type(size) is not int or size < 0 or type(runs) is not bool:
            raise ValueError("a file without path, size or mode")
        files[path] = contents[at : at + size]
        at += size
        if runs:
            executable.add(path)
    if at != len(contents):
        raise ValueError(f"{len(contents)} bytes, where its files have {at}")
    return files, frozenset(executable)


def _texts(table: Any) -> dict[str, str]:
    if not isinstance(table, dict):
        raise ValueError("no table")
    return {_text(key): _text(value) for key, value in table.items()}


def _text(value: Any) -> str:
    """Return a string that a file can contain. Raises ValueError."""
    if not isinstance(value, str) or "\0" in value:
        raise ValueError("a value that is no text")
    value.encode()  # JSON can write half a character
    return value
