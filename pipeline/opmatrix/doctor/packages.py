"""The packages that opmatrix requires, by their metadata: nothing is imported."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from opmatrix.basics.errors import ToolchainError
from opmatrix.basics.finding import Finding, note, ok, wrong
from opmatrix.doctor.machine import from_message
from opmatrix.project.paths import PACKAGE
from opmatrix.project.settings import PACKAGES
from opmatrix.toolchain import find

# Parts of opmatrix that need more packages: what they are for.
_EXTRAS = {"tox": "choose cells with tox", "mutate": "doit mutate"}
# Libraries without which an import of a package fails.
_LIBRARIES = {
    "torch": ("lib/libtorch_cpu.so", "lib/libc10.so"),
    "onnxruntime": ("capi/onnxruntime_pybind11_state*.so",),
}
# Packages with the same modules under another name, which the keys of steps do not contain.
_OTHER_NAMES = {"onnxruntime": ("onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml"),
                "onnx": ("onnx-weekly",)}  # fmt: skip


def packages(install: str) -> Iterator[Finding]:
    """Are the required packages there, in versions that fit? `install`: the remedy for missing ones."""
    try:
        yield ok("opmatrix", f"{metadata.version('opmatrix')}, {PACKAGE}")
        required = metadata.requires("opmatrix") or []
    except metadata.PackageNotFoundError:
        yield wrong("opmatrix", f"it is not installed for {sys.executable}, only imported from {PACKAGE}", install)
        required = [*PACKAGES]
    lost, found = [], {}
    for requirement in required:
        name, limits, extra = parse(requirement)
        if extra:
            continue
        if (version := _version(name)) is None:
            lost.append(name)
        elif why := too_old_or_new(version, limits):
            yield wrong("packages", f"{name} {version} is {why}", f"pip install '{name}{limits}'")
        else:
            found[name] = version
    if lost:
        there = [other for name in lost for other in _OTHER_NAMES.get(name, ()) if _version(other)]
        instead = f"; {', '.join(there)} does not count, because only the other name is pinned" if there else ""
        yield wrong("packages", f"not installed for {sys.executable}: {', '.join(lost)}{instead}", install)
    if found:
        yield ok("packages", ", ".join(f"{name} {version}" for name, version in found.items()))
    yield from _files(found)
    yield from _extras(required)


def parse(requirement: str) -> tuple[str, str, str]:
    """Return name, limits and extra of a requirement such as ``tox>=4.30.3; extra == 'tox'``."""
    text, _, marker = requirement.partition(";")
    name = re.match(r"[\w.-]+", text)
    extra = re.search(r"extra == ['\"](\w+)['\"]", marker)
    assert name, requirement
    return name[0], text[len(name[0]) :].strip(), extra[1] if extra else ""


def too_old_or_new(version: str, limits: str) -> str:
    """Return why a version breaks limits such as ``>=0.37,<0.38``, or ""."""
    for sign, limit in re.findall(r"(>=|<)\s*([\d.]+)", limits):
        length = max(len(_numbers(version)), len(_numbers(limit)))
        one, other = ((*_numbers(v), *[0] * length)[:length] for v in (version, limit))
        if (one < other) == (sign == ">="):
            return f"too {'old' if sign == '>=' else 'new'}: opmatrix needs {limits}"
    return ""


def _numbers(version: str) -> tuple[int, ...]:
    """Return ``(2, 13, 0)`` for ``2.13.0+cpu`` and ``(1, 21)`` for ``1.21rc1``."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _files(found: dict[str, str]) -> Iterator[Finding]:
    """Find a package of which an installation that was interrupted left a part."""
    checks: dict[str, Callable[[], object]] = {"torch": find.find_torch} if "torch" in found else {}
    for name, patterns in _LIBRARIES.items():
        if name not in found:
            continue
        spec = importlib.util.find_spec(name)
        folder = Path(next(iter(spec.submodule_search_locations or ()), "")) if spec else Path()
        if lost := [pattern for pattern in patterns if not spec or not any(folder.glob(pattern))]:
            checks.pop(name, None)
            yield wrong("packages", f"{name} {found[name]} lacks {lost[0]} in {folder}",
                        f"pip install --force-reinstall --no-deps {name}=={found[name]}")  # fmt: skip
    for check in checks.values():
        try:
            check()
        except ToolchainError as error:
            yield from_message("packages", str(error))


def _extras(required: list[str]) -> Iterator[Finding]:
    lost: dict[str, list[str]] = {}
    for requirement in required:
        name, _, extra = parse(requirement)
        if extra in _EXTRAS and _version(name) is None:
            lost.setdefault(extra, []).append(name)
    for extra, names in lost.items():
        yield note("packages", f"without {', '.join(names)}, needed only for: {_EXTRAS[extra]}. "
                               f"pip install 'opmatrix[{extra}]'")  # fmt: skip
