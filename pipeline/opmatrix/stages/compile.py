"""Compile an operator's libraries with ninja, and let the symbol gate judge them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

from opmatrix.declaration.load import Operator
from opmatrix.declaration.torch_signature import (
    OWN_TORCH,
    has_kernel_object,
    has_ort_library,
    has_torch_library,
    is_classic,
    is_own,
    stable_abi_since,
)
from opmatrix.errors import CompileError, missing
from opmatrix.files import write_text
from opmatrix.project.paths import Paths
from opmatrix.spec import OpSpec
from opmatrix.toolchain import elf_symbols, ninja_file, ort_headers, third_party_headers
from opmatrix.toolchain.find_tools import Toolchain, find_toolchain
from opmatrix.toolchain.torch_headers import TorchBuild, find_classic_torch

FINGERPRINTS = "sources.json"
OTHERS = "headers.json"
HEADERS = "headers.txt"
COMMANDS = "compile_commands.json"


def run(layout: Paths, operator: Operator, *, debug: bool = False, torch: Path | None = None) -> None:
    """Bring the libraries up to date; with `torch`, the place of an environment, the library for that torch alone.

    Raises CompileError with the compiler's own message, or the gate's.
    """
    toolchain = find_toolchain(os.environ)
    if torch:
        _for_one_torch(layout, operator, toolchain=toolchain, torch=find_classic_torch(torch), debug=debug)
        return
    name, spec, written = operator.name, operator.spec, operator.handwritten_files
    folder = layout.compiled(name, debug=debug)
    own = is_own(OWN_TORCH, spec, written)
    installed = find_classic_torch(toolchain.torch_include.parent) if own else None
    text = ninja_file.build_ninja(layout, spec, toolchain=toolchain, written=written, debug=debug)
    rewritten = _build(layout, operator, folder, text, toolchain=toolchain, torch=installed)
    if layout.sanitized:  # the libraries ask for the sanitizers' own functions
        return
    if own:
        elf_symbols.check_own_torch_library(layout.torch_library(name, debug=debug))
    elif has_torch_library(spec):
        elf_symbols.check_torch_library(layout.torch_library(name, debug=debug), target=ninja_file.TORCH_TARGET)
    if has_ort_library(spec):
        elf_symbols.check_ort_library(layout.ort_library(name, debug=debug))
    if not debug and (rewritten or not (folder / COMMANDS).exists()):
        _write_compile_commands(layout, toolchain, folder)


def _for_one_torch(layout: Paths, operator: Operator, *, toolchain: Toolchain, torch: TorchBuild, debug: bool) -> None:
    """Compile the binding for one torch, and link it to the kernel that all libraries of the operator share."""
    name, spec, written = operator.name, operator.spec, operator.handwritten_files
    own = is_own(OWN_TORCH, spec, written)
    if not own and not is_classic(spec, torch.minor):
        why = (
            f"one library serves torch {stable_abi_since(spec)} and newer"
            if has_torch_library(spec)
            else "it has no library"
        )
        raise CompileError(f"{name} needs no library for torch {torch.version} alone: {why}. Leave out --torch-root")
    shared = [layout.compiled(name, debug=debug) / file for file in ninja_file.KERNEL_OBJECTS]
    if has_kernel_object(spec, written) and (lost := [p for p in shared if not p.is_file()]):
        raise CompileError(missing(lost[0], run=f"python -m opmatrix compile {name}"))
    text = ninja_file.cpp_abi_ninja(layout, spec, toolchain=toolchain, written=written, debug=debug)
    _build(
        layout, operator, layout.compiled(name, debug=debug, torch=torch.minor), text, toolchain=toolchain, torch=torch
    )
    if layout.sanitized:
        return
    check = elf_symbols.check_own_torch_library if own else elf_symbols.check_classic_torch_library
    check(layout.torch_library(name, debug=debug, torch=torch.minor))


def _build(
    layout: Paths, operator: Operator, folder: Path, text: str, *, toolchain: Toolchain, torch: TorchBuild | None
) -> bool:
    """Write what ninja reads, and run it; return whether `text`, of build.ninja, is another one than before."""
    spec = operator.spec
    found = ort_headers.recorded(layout)
    files = json.dumps(found["files"], sort_keys=True)
    others = "".join(f"{version}\n" for version in third_party_headers.versions(spec))
    write_text(folder / ninja_file.IDENTITY, f"{toolchain.identity}onnxruntime {found['version']} {files}\n{others}")
    if torch:
        write_text(folder / ninja_file.TORCH, f"{torch.identity}\n")
    places = ninja_file.sdk_ninja(
        Path(found["path"]), torch=torch, openmp=toolchain.is_gcc, headers=third_party_headers.find(spec, layout.root)
    )
    write_text(folder / ninja_file.SDK, places)
    path = folder / "build.ninja"
    rewritten = not path.exists() or path.read_text() != text
    write_text(path, text)
    _distrust_time_stamps(layout, spec, folder)
    _ninja(toolchain, folder)
    _list_headers(layout, folder, toolchain=toolchain, torch=torch)
    return rewritten


def _sources(layout: Paths, spec: OpSpec) -> Iterator[Path]:
    """Yield every file of ours that may be compiled in; which of them an object reads is for ninja to know."""
    yield from layout.native_sources(spec.name)
    yield from third_party_headers.files(spec, layout.root)
    yield from sorted(p for p in layout.generated(spec.name).iterdir() if p.suffix in (".h", ".cc"))


def _distrust_time_stamps(layout: Paths, spec: OpSpec, folder: Path) -> None:
    """Remove the objects if a source changed in a way that ninja cannot see.

    With a time stamp that is not newer: a checkout, an unpacked archive or a restored backup may do that. Or there is
    a header more, which may stand before one that an object was compiled with.
    """
    path = folder / FINGERPRINTS
    before = json.loads(path.read_text()) if path.exists() else {}
    now = {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in _sources(layout, spec)}
    objects = list(folder.glob("*.o"))
    built = max((p.stat().st_mtime_ns for p in objects), default=0)
    changed = [p for p, digest in now.items() if before.get(p) != digest]
    unseen = any(p not in before or Path(p).stat().st_mtime_ns <= built for p in changed)
    others = folder / OTHERS
    if unseen or (others.exists() and any(_mark(p) != m for p, m in json.loads(others.read_text()).items())):
        for path_of_object in objects:
            path_of_object.unlink()
    write_text(path, json.dumps(now, indent=1))


def _ninja(toolchain: Toolchain, folder: Path) -> None:
    # doit says how many cores are free for it; by hand all are.
    jobs = os.environ.get("OPMATRIX_JOBS") or str(os.cpu_count() or 1)
    command = [toolchain.ninja, "--quiet", "-j", jobs, "-C", str(folder)]
    print("$", shlex.join(command), flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        raise CompileError(_message(done.stdout))
    print(done.stdout, end="", flush=True)


def _list_headers(layout: Paths, folder: Path, *, toolchain: Toolchain, torch: TorchBuild | None) -> None:
    """Write down what the compiler has read of others: doit must see when one of these changes, too.

    For torch's own, which are more than a thousand, its version stands.
    """
    done = subprocess.run(
        [toolchain.ninja, "-C", str(folder), "-t", "deps"], capture_output=True, text=True, check=True
    )
    read = {os.path.normpath(folder / line.strip()) for line in done.stdout.splitlines() if line.startswith("    ")}
    folders = (layout.native, layout.include, layout.binding, layout.build, *([torch.include] if torch else ()))
    own = tuple(f"{folder}/" for folder in folders)
    others = sorted(path for path in read if not path.startswith(own))
    write_text(folder / OTHERS, json.dumps({path: _mark(path) for path in others}))
    write_text(folder / HEADERS, "".join(f"{path}\n" for path in others))


def _mark(path: str) -> list[int] | None:
    """Return what shows that a file was written or replaced: an upgrade may set any time stamp but ctime."""
    try:
        status = Path(path).stat()
    except FileNotFoundError:
        return None
    return [status.st_mtime_ns, status.st_ctime_ns, status.st_size]


def _message(output: str) -> str:
    """Return the compiler's words alone, without the commands that ninja repeats and its own last word."""
    lines = output.splitlines()
    kept = [
        line
        for previous, line in zip(["", *lines], lines, strict=False)
        if not line.startswith(("FAILED: ", "ninja: ")) and not previous.startswith("FAILED: ")
    ]
    return "\n".join(kept) or output.strip()


def _write_compile_commands(layout: Paths, toolchain: Toolchain, folder: Path) -> None:
    """Write the compile commands of the operator, and those of all operators together, for editors."""
    command = [toolchain.ninja, "-C", str(folder), "-t", "compdb", "object"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    entries = json.loads(re.sub(r"\Aninja: .*\n", "", done.stdout))
    for entry in entries:  # what keeps the object is for a shell, not for an editor
        entry["command"] = entry["command"].partition(" && ")[0].replace(".o.new", ".o")
    write_text(folder / COMMANDS, json.dumps(entries, indent=1) + "\n")
    every = [json.loads(p.read_text()) for p in sorted(folder.parent.glob(f"*/{COMMANDS}"))]
    write_text(layout.build / COMMANDS, json.dumps([entry for of_one in every for entry in of_one], indent=1) + "\n")
