"""Compile an operator's libraries with ninja, and check their symbols.

Also lists the names that the folders of the compiler's search path lack: one of them would come before a header that
was read.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from opmatrix.basics.errors import CompileError, colours_wanted, missing, without_colours
from opmatrix.basics.files import LACKS, lacking, mark, present, sha256, write_list, write_text
from opmatrix.basics.step_log import LOGGED, detail
from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.signature import signature
from opmatrix.signature.signature import is_classic
from opmatrix.spec import OpSpec
from opmatrix.toolchain import compiler_output, ninja_file, ort_headers, symbols
from opmatrix.toolchain import headers as third_party_headers
from opmatrix.toolchain.find import Toolchain, find_objcopy, find_toolchain
from opmatrix.toolchain.headers import TorchBuild, find_torch_build
from opmatrix.toolchain.ninja_file import run_ninja

_SKIPPED = re.compile(r'^ignoring nonexistent directory "(?P<folder>.*)"$', re.MULTILINE)
_LIST = re.compile(r"^#include <\.\.\.> search starts here:\n(?P<folders>(?: .*\n)*)", re.MULTILINE)


def of_compiler(compiler: Sequence[str]) -> list[str]:
    """Return the folders that a compiler searches without options, in their order. Those that do not exist come first:
    the compiler does not print where they belong."""
    done = subprocess.run(
        [*compiler, "-E", "-v", "-x", "c++", os.devnull],
        capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    found = _LIST.search(done.stderr)
    folders = [*_SKIPPED.findall(done.stderr), *(found["folders"].splitlines() if found else [])]
    return list(dict.fromkeys(os.path.normpath(folder.strip()) for folder in folders))


def lacked(read: Iterable[str], search: Sequence[str], *, input_folders: Iterable[str]) -> Iterator[str]:
    """Yield `lacking` for each folder of which a header with one of these names would come before what was read.

    `search`: folders in their order. `input_folders`: those of which a new file is an input of the step already.
    """
    names: dict[str, set[str]] = {}
    exists = cache(os.path.lexists)
    order = {folder: number for number, folder in enumerate(search)}
    unknown = [folder for folder in search if folder not in {*input_folders}]
    for path in read:
        own = max((folder for folder in search if path.startswith(f"{folder}/")), key=len, default="")
        for folder in unknown:
            if own and order[folder] < order[own]:
                within = folder
                for part in path[len(own) + 1 :].split("/"):
                    if not exists(f"{within}/{part}"):
                        names.setdefault(within, set()).add(part)
                        break
                    within = f"{within}/{part}"
    return (lacking(folder, names[folder]) for folder in sorted(names))


FINGERPRINTS = "sources.json"  # hashes of the sources that were compiled
OTHERS = "headers.json"  # time stamps and sizes of the system's headers that were read, and of what was built
HEADERS = "headers.txt"  # their paths, for doit
COMMANDS = "compile_commands.json"


def run(paths: Paths, operator: Operator, *, debug: bool = False, torch: Path | None = None) -> None:
    """Bring the libraries up to date, or only that for the torch of the environment `torch`. Raises CompileError."""
    toolchain = find_toolchain(os.environ)
    if torch:
        _for_one_torch(paths, operator, toolchain=toolchain, torch=find_torch_build(torch), debug=debug)
        return
    name, spec = operator.name, operator.spec
    folder = paths.compile_folder(name, debug=debug)
    own = signature.is_own(signature.OWN_TORCH, spec, operator.handwritten_files)
    installed = find_torch_build(toolchain.torch_include.parent) if own else None
    text = ninja_file.build_ninja(paths, spec, toolchain=toolchain, written=operator.handwritten_files, debug=debug)
    rewritten = _build(paths, spec, folder, text, toolchain=toolchain, torch=installed)
    if paths.sanitized:  # the libraries need symbols of the sanitizers
        return
    if own:
        symbols.check_handwritten_torch_library(paths.torch_library(name, debug=debug))
    elif signature.has_torch_library(spec):
        symbols.check_torch_library(paths.torch_library(name, debug=debug), target=ninja_file.TORCH_TARGET)
    if signature.has_ort_library(spec):
        symbols.check_ort_library(paths.ort_library(name, debug=debug))
    if not debug:  # also of the objects from which a wheel's libraries are linked
        objects = [path for used in spec.uses for path in paths.objects(used, *ninja_file.OBJECTS)]
        if not spec.uses and signature.has_kernel(spec):
            stems = ninja_file.shared_objects(spec, operator.handwritten_files)
            objects += [path for path in paths.objects(name, *stems) if path.is_file()]
        libraries = [paths.torch_library(name)] if signature.has_torch_library(spec) else []
        libraries += [paths.ort_library(name)] if signature.has_ort_library(spec) else []
        symbols.write(paths.compiled_record(name), paths.root, objects=objects, libraries=libraries)
    if not debug and (rewritten or not (folder / COMMANDS).exists()):
        _write_compile_commands(paths, toolchain, folder)


def _for_one_torch(paths: Paths, operator: Operator, *, toolchain: Toolchain, torch: TorchBuild, debug: bool) -> None:
    """Compile the binding for one torch, and link it to the kernel that all libraries of the operator share."""
    name, spec = operator.name, operator.spec
    own = signature.is_own(signature.OWN_TORCH, spec, operator.handwritten_files)
    if not own and not is_classic(spec, torch.minor):
        why = "it has no library"
        if signature.has_torch_library(spec):
            why = f"one library serves torch {signature.stable_abi_since(spec)} and newer"
        raise CompileError(f"{name} needs no library for torch {torch.version} alone: {why}. Leave out --torch-root")
    if signature.has_kernel_object(spec, operator.handwritten_files):
        shared = (paths.compile_folder(name, debug=debug) / file for file in ninja_file.KERNEL_OBJECTS)
        if lost := next((path for path in shared if not path.is_file()), None):
            raise CompileError(missing(lost, run=f"python -m opmatrix compile {name}"))
    text = ninja_file.cpp_abi_ninja(paths, spec, toolchain=toolchain, written=operator.handwritten_files, debug=debug)
    folder = paths.compile_folder(name, debug=debug, torch=torch.minor)
    _build(paths, spec, folder, text, toolchain=toolchain, torch=torch)
    if not paths.sanitized:
        check = symbols.check_handwritten_torch_library if own else symbols.check_cpp_abi_library
        check(paths.torch_library(name, debug=debug, torch=torch.minor))


def _build(
    paths: Paths, spec: OpSpec, folder: Path, text: str, *, toolchain: Toolchain, torch: TorchBuild | None
) -> bool:
    """Write the files that ninja reads, and run it; return whether `text`, for build.ninja, is new."""
    found = ort_headers.find_headers(os.environ)
    others = "".join(f"{version}\n" for version in third_party_headers.versions(spec))
    write_text(folder / ninja_file.IDENTITY, f"{toolchain.identity}onnxruntime {found.identity}\n{others}")
    if torch:
        write_text(folder / ninja_file.TORCH, f"{torch.identity}\n")
    headers = third_party_headers.find(spec, paths.root)
    objcopy = find_objcopy(os.environ) if spec.cpu_levels else ""
    places = ninja_file.places_ninja(paths, toolchain, found.path, torch=torch, headers=headers, objcopy=objcopy)
    write_text(folder / ninja_file.PLACES, places)
    path = folder / "build.ninja"
    rewritten = not path.exists() or path.read_text(encoding="utf-8") != text
    write_text(path, text)
    _remove_stale_objects(paths, spec, folder)
    _ninja(paths, spec.name, toolchain, folder)
    versioned = [str(path) for path in (found.path, *(torch.includes if torch else ()))]
    _list_headers(paths, spec.name, folder, toolchain=toolchain, third_party=headers, versioned=versioned)
    return rewritten


def _remove_stale_objects(paths: Paths, spec: OpSpec, folder: Path) -> None:
    """Remove what ninja would keep although it is not what ninja would make.

    All objects, if a source changed in a way that ninja cannot see: its time stamp is not newer, as after a checkout,
    or from an archive or a backup; or it is a new header, which the compiler may find before one that an object was
    compiled with. And each object or library that another one has replaced, such as one from a shared cache.
    """
    path = folder / FINGERPRINTS
    try:
        before, others = (
            json.loads(p.read_text(encoding="utf-8")) if p.exists() else {} for p in (path, folder / OTHERS)
        )
    except ValueError:  # damaged, as by a power failure: then each source counts as a new one
        before, others = {}, {}
    generated = sorted(paths.generated(spec.name).glob("*.[hc]*"))  # none for what has bindings of its own
    sources = (*paths.native_sources(spec.name), *third_party_headers.files(spec, paths.root), *generated)
    now = {str(p): sha256(p) for p in sources}
    objects = list(folder.glob("*.o"))
    built = max((p.stat().st_mtime_ns for p in objects), default=0)
    changed = [p for p, digest in now.items() if before.get(p) != digest]
    unseen = any(p not in before or Path(p).stat().st_mtime_ns <= built for p in changed)
    shadowed = any(present(path) != names for path, names in others.items() if LACKS in path)
    marks = {name: kept and (*kept,) for name, kept in others.items() if LACKS not in name}
    replaced = [folder / name for name, kept in marks.items() if mark(str(folder / name)) != kept]
    # Outside the folder are the system's headers.
    outdated = unseen or shadowed or any(p.parent != folder for p in replaced)
    for output in {*(objects if outdated else ()), *(p for p in replaced if p.parent == folder)}:
        output.unlink(missing_ok=True)
    write_text(path, json.dumps(now, indent=1))


def _ninja(paths: Paths, name: str, toolchain: Toolchain, folder: Path) -> None:
    # doit sets the number of free cores; by hand all are.
    jobs = os.environ.get("OPMATRIX_JOBS") or str(os.cpu_count() or 1)
    done = run_ninja(toolchain.ninja, folder, jobs=jobs)
    if done.returncode != 0:
        everything = compiler_output.full(done.stdout)
        message, cause = compiler_output.shortened(done.stdout, paths, name)
        if without_colours(message) != everything:  # all of it above the message, in a log as details
            detail(everything) if LOGGED in os.environ else print(everything, end="\n\n", flush=True)
        ended = f"ninja ended with {done.returncode}, and printed nothing"
        shown = message if colours_wanted() else without_colours(message)
        raise CompileError(shown or ended, cause=cause)
    print(without_colours(done.stdout), end="", flush=True)


def _list_headers(
    paths: Paths,
    name: str,
    folder: Path,
    *,
    toolchain: Toolchain,
    third_party: Sequence[Path],
    versioned: Sequence[str],
) -> None:
    """Record the system's headers that the compiler read, and the names that would come before one, for doit. The
    `versioned` ones, of torch and of ONNX Runtime, may be anywhere: their versions and digests are inputs."""
    command = [toolchain.ninja, "-C", str(folder), "-t", "deps"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    read = {os.path.normpath(folder / line.strip()) for line in done.stdout.splitlines() if line.startswith("    ")}
    own = tuple(f"{path}/" for path in (paths.native, paths.include, paths.binding, paths.build, *versioned))
    others = sorted(path for path in read if not path.startswith(own))
    # With the marks of what ninja built: files from a shared cache, put in their place, are newer than ninja's records.
    built = {path.name: mark(str(path)) for pattern in ("*.o", "*.so") for path in folder.glob(pattern)}
    bindings = (paths.binding, paths.binding / "stable", paths.binding / "classic")
    known = [*map(str, (paths.generated(name), paths.include, *bindings))]
    system = [*map(str, third_party), *versioned, *of_compiler(toolchain.compiler)]
    search = list(dict.fromkeys([*known, str(paths.native), *system]))
    absent = [*lacked(read, search, input_folders=[*known, *versioned])]
    marks = {path: mark(path) for path in others} | {path: present(path) for path in absent}
    write_text(folder / OTHERS, json.dumps(marks | built))
    write_list(folder / HEADERS, [*others, *absent], root=paths.root)


def _write_compile_commands(paths: Paths, toolchain: Toolchain, folder: Path) -> None:
    """Write the compile commands of the operator, and those of all operators in one file, for editors."""
    command = [toolchain.ninja, "-C", str(folder), "-t", "compdb", "object", "level"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(re.sub(r"\Aninja: .*\n", "", done.stdout))
    entries = [*{entry["file"]: entry for entry in reversed(found)}.values()]  # one of the levels of a kernel
    for entry in entries:  # without the shell commands that move the object
        entry["command"] = entry["command"].partition(" && ")[0].replace(".o.new", ".o")
    write_text(folder / COMMANDS, json.dumps(entries, indent=1) + "\n")
    every: list[Any] = []
    for path in sorted(folder.parent.glob(f"*/{COMMANDS}")):
        with suppress(ValueError):  # that of another operator is damaged
            every += json.loads(path.read_text(encoding="utf-8"))
    write_text(paths.build / COMMANDS, json.dumps(every, indent=1) + "\n")
