"""Render build.ninja, the flags and rules by which an operator's libraries are compiled, and run ninja.

doit decides whether to run ninja, ninja decides what to compile, and equal bytes end the run. The text is the
configuration of the compile step, so no flag is in any other place.
"""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path

from ninja import ninja_syntax

from opmatrix.basics.files import digests_by_path, write_text
from opmatrix.basics.step_log import LOGGED, detail
from opmatrix.codegen import generated_files
from opmatrix.project import cpu_levels
from opmatrix.project.paths import Paths
from opmatrix.signature import signature
from opmatrix.spec import OpSpec
from opmatrix.toolchain.find import Toolchain
from opmatrix.toolchain.headers import TorchBuild

TORCH_TARGET = "2.9"
STUB = "stub/libtorch_cpu.so"
PLACES = "places.ninja"  # the paths of this machine, which no other file contains
IDENTITY = "identity.txt"
TORCH = "torch.txt"
# The objects of the kernel, which all libraries of an operator share.
KERNEL_OBJECTS = ("kernel.o", "runtime.o")
ORT_LIBRARY = "ort_library.cc"
OBJECTS = ("kernel", "ort")  # of an operator, in a library for ONNX Runtime

_LANGUAGE = ("-std=c++20", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden")
# -Wpsabi warns of vectors passed between functions of different ABI; a kernel passes none.
# Always, so that the flags are the same in a terminal and in a pipe.
_COLOURS = "-fdiagnostics-color=always"
_WARNINGS = ("-Wall", "-Wextra", "-Wshadow", "-Werror", "-Wno-psabi")
# Kernels: vectorised, fused multiply-add where a processor has it, no errno from <cmath>. Never -ffast-math (it breaks
# NaN), and -march only for the levels of `OpSpec.cpu_levels`, of which the library chooses one when it runs.
_ARITHMETIC = ("-ffp-contract=fast", "-fno-math-errno")
_KERNEL = ("-O2", "-ftree-vectorize", *_ARITHMETIC)
_KERNEL_OF_GCC = ("-fvect-cost-model=dynamic",)  # clang 14 refuses the flag
# The object of a level: its symbols cannot become local as STB_GNU_UNIQUE.
_LEVEL_OF_GCC = ("-fno-gnu-unique",)
# bfd alone dissolves the groups of sections in which inline functions are.
_RELOCATABLE = ("-nostdlib", "-r", "-fuse-ld=bfd")
# Without a PLT: a smallest call through torch makes a dozen calls of its C interface for each tensor.
_BINDING = ("-O1", "-fno-plt")
# Handwritten bindings may warn, and need no visibility attributes: the version script sets what they export.
_OWN = ("-O2", "-fvisibility=default", "-Wno-error", "-Wno-extra", "-Wno-shadow")
# GCC 12 warns of code inlined from torch 2.9's headers. The same torch.cc is compiled with all warnings for the stable
# ABI.
_QUIET = ("-w",)
_DEBUG = ("-Og", "-g")
_SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_SANITIZED = ("-O1", "-g", "-fno-omit-frame-pointer", *_ARITHMETIC, *_SANITIZERS)  # results stay the same
# No warnings: the libraries are compiled with them. No clones: the function that selects one runs before
# ThreadSanitizer is ready, so that a program with one dies of SIGSEGV (GCC 12).
_RACES = ("-w", "-O1", "-g", "-fno-omit-frame-pointer", *_ARITHMETIC, "-Dtarget_clones(...)=unused", "-pthread",
          "-fsanitize=thread")  # fmt: skip
# The flags of handwritten bindings.
_OWN_FLAGS = {signature.OWN_TORCH: "$own $torch", signature.OWN_ORT: "$own $ort"}
_COMPLETE = "-Wl,-z,defs"  # the linker reports each undefined symbol
# Replace an output at once, and only if it differs: with restat, ninja then stops after an edited comment.
_KEEP = "if cmp -s $out.new $out; then rm $out.new; else mv $out.new $out; fi"


def build_ninja(
    paths: Paths, spec: OpSpec, *, toolchain: Toolchain, written: Set[str] = signature.ONLY_KERNEL, debug: bool = False
) -> str:
    """Return the text of the operator's build.ninja; `written` are the names of its handwritten files.

    It includes `PLACES` from the same folder, and contains no absolute path itself: so it is the same on another
    machine, and in another folder. Objects depend on `IDENTITY`, the versions of compiler and headers, because ninja
    compares time stamps of sources alone. A handwritten torch.cc also depends on `TORCH`, the torch that it is compiled
    for.
    """
    name = spec.name
    comment = f"How the libraries of {name} are compiled. Written by `python -m opmatrix compile {name}`."
    ninja = _BuildFile(comment, paths, spec, toolchain=toolchain, debug=debug)
    ninja.objects(written)
    kernel = KERNEL_OBJECTS if signature.has_kernel_object(spec, written) else ()
    if signature.is_own(signature.OWN_TORCH, spec, written):
        ninja.installed_torch_library(kernel, script="own_torch.map")
    elif signature.has_torch_library(spec):
        ninja.torch_library(paths.torch_library(name).name, ("kernel.o", "torch.o", "runtime.o"))
    if signature.is_own(signature.OWN_ORT, spec, written):
        ninja.library(paths.ort_library(name).name, ("ort.o", *kernel), script="ort.map")
    elif signature.has_ort_library(spec):
        # Paths are relative so that a library has equal bytes in any folder. Other steps compile these objects.
        folders = [f"../{used}/" for used in spec.uses] or [""]
        objects = (*(f"{folder}{stem}.o" for folder in folders for stem in OBJECTS), "ort_library.o", "runtime.o")
        ninja.library(paths.ort_library(name).name, objects, script="ort.map", more=_COMPLETE)
    return ninja.text.getvalue()


def cpp_abi_ninja(
    paths: Paths, spec: OpSpec, *, toolchain: Toolchain, written: Set[str] = signature.ONLY_KERNEL, debug: bool = False
) -> str:
    """Return the text of build.ninja for the torch library of one version of torch.

    The text is the same for all versions: `PLACES` has the paths. It compiles the binding alone and takes the
    kernel's objects from the parent folder. The binding and the kernel pass each other no class of the standard
    library, whose symbol names would depend on the ABI.
    """
    name, own = spec.name, signature.is_own(signature.OWN_TORCH, spec, written)
    comment = f"How {name} is compiled for one torch: `python -m opmatrix compile {name} --torch-root PLACE`."
    ninja = _BuildFile(comment, paths, spec, toolchain=toolchain, debug=debug)
    source = paths.handwritten(name, signature.OWN_TORCH) if own else paths.generated(name) / signature.OWN_TORCH
    includes = "-I" + _quoted(paths, paths.binding / "classic")
    ninja.object(source, "$own $torch" if own else f"$binding $classic {_shell(*_QUIET)} {includes} $torch")
    ninja.newline()
    kernel = tuple(f"../{file}" for file in KERNEL_OBJECTS) if signature.has_kernel_object(spec, written) else ()
    ninja.installed_torch_library(kernel, script="own_torch.map" if own else "torch.map")
    return ninja.text.getvalue()


def linked_ninja(paths: Paths, specs: Sequence[OpSpec], libraries: Mapping[str, Path], *, toolchain: Toolchain) -> str:
    """Return the text of build.ninja that links several operators into one library per side.

    `libraries` are paths in one folder, by side: ``torch`` and ``ort``. All `specs` have kernels; their compile steps
    have made the objects.
    """
    folder = libraries["ort"].parent
    comment = f"How {', '.join(s.name for s in specs)} are linked together."
    ninja = _BuildFile(comment, paths, specs[0], toolchain=toolchain, debug=False)
    ninja.build(["ort_library.o"], "object", [ORT_LIBRARY], implicit=[IDENTITY], variables={"more": "$binding $ort"})
    ninja.newline()

    def objects(of: Sequence[OpSpec], binding: str) -> tuple[str, ...]:
        made = [(spec, stem) for spec in of for stem in ("kernel", binding)]
        made.append((specs[0], "runtime"))  # the same for all
        return tuple(os.path.relpath(paths.compile_folder(spec.name) / f"{stem}.o", folder) for spec, stem in made)

    if "torch" in libraries:
        of = [spec for spec in specs if signature.has_torch_library(spec)]
        ninja.torch_library(libraries["torch"].name, objects(of, "torch"))
    ninja.library(libraries["ort"].name, (*objects(specs, "ort"), "ort_library.o"), script="ort.map", more=_COMPLETE)
    return ninja.text.getvalue()


class _BuildFile(ninja_syntax.Writer):
    """A build.ninja of an operator, which begins with variables and rules."""

    def __init__(self, comment: str, paths: Paths, spec: OpSpec, *, toolchain: Toolchain, debug: bool) -> None:
        self.text = io.StringIO()
        super().__init__(self.text, width=120)  # type: ignore[arg-type]  # typed as str, used as a file
        self._paths, self._spec, self._is_gcc = paths, spec, toolchain.is_gcc
        self.comment(comment)
        self.variable("ninja_required_version", "1.5")
        self.variable("builddir", ".")
        self.include(PLACES)
        self.newline()
        of_operator = _of_operator(paths, spec, debug=debug, place=_quoted)
        # Else each dtype of a template repeats an error, and others follow from it. A compiler of another name gets
        # neither: g++ refuses clang's.
        is_clang = any("clang" in Path(word).name for word in toolchain.compiler)
        first_error = ["-fmax-errors=1"] if toolchain.is_gcc else ["-ferror-limit=1"] if is_clang else []
        flags = [_shell(*_LANGUAGE, _COLOURS, *first_error, *_WARNINGS), *of_operator]
        self.variable("flags", " ".join([*flags, *(["$headers"] if spec.headers else [])]))
        special = _SANITIZED if paths.sanitized else _DEBUG if debug else None
        kernel = (*_KERNEL, *_KERNEL_OF_GCC) if toolchain.is_gcc else _KERNEL
        self.variable("kernel", _shell(*(special or kernel)))
        self.variable("binding", _shell(*(special or _BINDING)))
        self.variable("own", _shell(*_OWN, *(special or ())))
        self.variable("ort", "-isystem $ort_include")
        linker = [f"-fuse-ld={toolchain.linker}"] if toolchain.linker else []
        runtime = _SANITIZERS if paths.sanitized else ()
        self.variable("link", _shell("-shared", *linker, *runtime, *([] if special else ["-Wl,-s"])))
        self.newline()
        # -MD, not -MMD, which would leave out headers found through -isystem: ONNX Runtime's.
        compiled = f"$cxx $flags $more -MD -MF $out.d -MQ $out -c $in -o $out.new && {_KEEP}"
        self.rule("object", command=compiled, depfile="$out.d", deps="gcc", restat=True)
        linked = f"$cxx $link $more -Wl,-soname,$soname -o $out.new $in $libraries && {_KEEP}"
        self.rule("library", command=linked, restat=True)
        self.newline()

    def objects(self, written: Set[str]) -> None:
        """Compile the operator's sources, of which some are `written` by hand."""
        paths, spec = self._paths, self._spec
        generated = paths.generated(spec.name)
        more = {
            "kernel.cc": "$kernel",
            "torch.cc": f"$binding -I{_quoted(paths, paths.binding / 'stable')}",
            "ort.cc": "$binding $ort",
            "ort_library.cc": "$binding $ort",
        }
        sources = {generated / file: more[file] for file in generated_files.cpp_files(spec, written) if file in more}
        if sources:
            sources[paths.binding / "runtime.cc"] = "$binding"
        own = {file: flags for file, flags in _OWN_FLAGS.items() if signature.is_own(file, spec, written)}
        sources |= {paths.handwritten(spec.name, file): flags for file, flags in own.items()}
        if spec.cpu_levels and (kernel := generated / "kernel.cc") in sources:
            del sources[kernel]
            self._level_objects(kernel)
        for source, flags in sources.items():
            self.object(source, flags)
        self.newline()

    def object(self, source: Path, flags: str) -> None:
        implicit = [IDENTITY, *([TORCH] if "$torch" in flags else [])]
        inputs, variables = [_path(self._paths, source)], {"more": flags}
        self.build([f"{source.stem}.o"], "object", inputs, implicit=implicit, variables=variables)

    def _level_objects(self, source: Path) -> None:
        """Compile the kernel once for each level of x86-64, and join the objects.

        In the object of a level only `compute` is global. A linker keeps one copy of an inline function for all
        objects: of the standard library, too, which would be that of any level.
        """
        relocatable = f"$cxx {_shell(*_RELOCATABLE)}"
        command = (
            "$cxx $flags $more -MD -MF $out.d -MQ $out -c $in -o $out.whole && "
            f"{relocatable} -Wl,--force-group-allocation -o $out.new $out.whole && "
            f"$objcopy --wildcard $global $out.new && rm $out.whole && {_KEEP}"
        )
        self.rule("level", command=command, depfile="$out.d", deps="gcc", restat=True)
        self.rule("join", command=f"{relocatable} -o $out.new $in && {_KEEP}", restat=True)
        name = self._spec.name
        space = f"_ZN8opmatrix{len(name)}{name}"  # the mangled beginning of opmatrix::<name>::
        objects = []
        for level in cpu_levels.NUMBERS:
            kept = [f"{space}7level_{level}7computeE*"]
            kept += [f"{space}7computeE*"] if level == cpu_levels.NUMBERS[0] else []
            flags = [f"-march={cpu_levels.name(level)}", f"-DOPMATRIX_CPU_LEVEL={level}"]
            flags += _LEVEL_OF_GCC if self._is_gcc else ()
            symbols = _shell(*(f"--keep-global-symbol={k}" for k in kept))
            variables = {"more": f"$kernel {_shell(*flags)}", "global": symbols}
            objects.append(f"kernel_v{level}.o")
            inputs = [_path(self._paths, source)]
            self.build(objects[-1:], "level", inputs, implicit=[IDENTITY], variables=variables)
        self.build(["kernel.o"], "join", objects, implicit=[IDENTITY])

    def torch_library(self, path: str, objects: Sequence[str]) -> None:
        self.comment(
            "An empty library in libtorch_cpu.so's name: ours then asks for that name, whatever torch is there."
        )
        self.library(STUB, (), more="-nostdlib -x c /dev/null")
        self.library(path, objects, script="torch.map", libraries=f"-Wl,--no-as-needed {STUB}", implicit=(STUB,))

    def installed_torch_library(self, kernel: Sequence[str], *, script: str) -> None:
        """Link with an installed torch, so that the linker reports each symbol which that torch lacks."""
        path = self._paths.torch_library(self._spec.name).name
        more = "" if self._paths.sanitized else _COMPLETE  # the process defines the sanitizer's functions
        objects = ("torch.o", *kernel)
        self.library(path, objects, script=script, more=more, libraries="$torch_libraries", implicit=(TORCH,))

    def library(
        self,
        path: str,
        objects: Sequence[str],
        *,
        script: str = "",
        more: str = "",
        libraries: str = "",
        implicit: Sequence[str] = (),
    ) -> None:
        scripts = [self._paths.binding / script] if script else []
        # -Wl would split a path at its commas.
        options = [f"-Xlinker --version-script={_quoted(self._paths, script)}" for script in scripts]
        needed = [*(_path(self._paths, script) for script in scripts), *implicit, IDENTITY]
        flags = " ".join(filter(None, [*options, more]))
        variables = {"soname": Path(path).name, "more": flags, "libraries": libraries}
        self.build([path], "library", [*objects], implicit=needed, variables=variables)


def _of_operator(paths: Paths, spec: OpSpec, *, debug: bool, place: Callable[[Paths, Path], str]) -> list[str]:
    """Return the flags that depend on the project: names of folders in the output, and where headers are.

    `place` writes a path.
    """
    # All of native/ comes last: of it a compile step reads only the operator's own folder.
    includes = (paths.generated(spec.name), paths.include, paths.binding, paths.native)
    # Short names in a library, so that equal content gives equal bytes in any folder. A debugger needs the real paths.
    short = {paths.root: "."} | {folder: f"opmatrix/{folder.name}" for folder in _installed(paths).values()}
    prefixes = {} if debug else {place(paths, folder): name for folder, name in short.items()}
    return [*(f"-ffile-prefix-map={folder}={name}" for folder, name in prefixes.items()),
            *(f"-I{place(paths, folder)}" for folder in includes)]  # fmt: skip


def _installed(paths: Paths) -> dict[str, Path]:
    """Return the folders of opmatrix's headers that are installed and not in the project, by their variable."""
    names = {"include": "kernel_headers", "binding": "bindings"}  # "include" is a keyword of ninja
    return {names[name]: folder for name, folder in paths.installed_headers.items()}


def race_flags(paths: Paths, spec: OpSpec, headers: Sequence[Path]) -> list[str]:
    """Return the flags of the program for ThreadSanitizer; `headers` are third parties'."""
    of_operator = _of_operator(paths, spec, debug=False, place=lambda _, path: str(path))
    return [*_LANGUAGE, *_RACES, *of_operator, *_system(headers)]


def shared_objects(spec: OpSpec, written: Set[str] = signature.ONLY_KERNEL) -> tuple[str, ...]:
    """Return the objects of an operator with a kernel that libraries of other operators are linked from."""
    torch = signature.has_torch_library(spec) and not signature.is_own(signature.OWN_TORCH, spec, written)
    return ("kernel", "ort", "runtime", *(["torch"] if torch else []))


def places_ninja(
    paths: Paths,
    toolchain: Toolchain,
    ort_include: Path,
    *,
    torch: TorchBuild | None = None,
    headers: Sequence[Path] = (),
    objcopy: str = "",
) -> str:
    """Return the text of the file `PLACES`.

    `torch` is for bindings over its C++ headers, `headers` are third parties', `objcopy` is for a kernel with levels.
    With GCC a generated binding uses the threads of that torch.
    """
    lines = [f"cxx = {_shell(*toolchain.compiler)}", f"ort_include = {_shell(str(ort_include))}"]
    if objcopy:
        lines.append(f"objcopy = {_shell(objcopy)}")
    for name, folder in {"root": paths.root, **_installed(paths)}.items():
        # A build line of ninja needs the path itself, a command the word for the shell.
        lines += [f"{name} = {ninja_syntax.escape(str(folder))}", f"{name}_quoted = {_shell(str(folder))}"]
    if torch:
        threads = ["-fopenmp"] if toolchain.is_gcc and torch.openmp else []
        abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.cxx11_abi)}"
        lines += [
            f"classic = {_shell(f'-std={torch.standard}', *threads)}",
            f"torch = {_shell(abi, *_system(torch.includes))}",
            f"torch_libraries = {_shell(*map(str, torch.libraries))}",
        ]
    if headers:
        lines.append(f"headers = {_shell(*_system(headers))}")
    return "".join(f"{line}\n" for line in lines)


def _system(folders: Sequence[Path]) -> list[str]:
    """Return third-party header options: no warnings; short folders, as checks compile paths into the library."""
    return [w for f in folders for w in ("-isystem", str(f), f"-ffile-prefix-map={f}={f.parent.name}/{f.name}")]


def _shell(*words: str) -> str:
    """Return words quoted for the shell and escaped for ninja."""
    return str(ninja_syntax.escape(shlex.join(words)))


def _quoted(paths: Paths, path: Path) -> str:
    """Return a path of the project, or of opmatrix's headers, as a word of a command."""
    return _path(paths, path, suffix="_quoted")


def _path(paths: Paths, path: Path, *, suffix: str = "") -> str:
    """Return a path of the project, or of opmatrix's headers, for a build line."""
    folders = {**_installed(paths), "root": paths.root}
    name, folder = next((name, folder) for name, folder in folders.items() if path.is_relative_to(folder))
    within = path.relative_to(folder)
    # The writer escapes spaces and colons of a build line, but not the dollar; names of operators have none of them.
    return "${" + name + suffix + "}" + (f"/{within}" if within.parts else "")


MADE = "made.json"  # the digests of the objects and libraries after ninja last ran
_OUTPUTS = ("*.o", "*.so", "stub/*.so")


def run_ninja(ninja: str, folder: Path, *, jobs: str) -> subprocess.CompletedProcess[str]:
    """Remove each object and library that changed since ninja last ran, print the command, and run it.

    ninja compares only time stamps. It would keep and link a damaged file that is newer than its sources.
    """
    record, made = folder / MADE, dict[str, str]()
    with suppress(OSError, ValueError):
        made = json.loads(record.read_text(encoding="utf-8"))
    for path, digest in _digests(folder).items():
        if made.get(path) != digest:
            (folder / path).unlink()
    command = [ninja, "--quiet", "-j", jobs, "-C", str(folder)]
    shown = f"$ {shlex.join(command)}"
    detail(shown) if LOGGED in os.environ else print(shown, flush=True)
    # ninja keeps the compiler's colours; messages are in English, which `compiler_output` reads, and in UTF-8.
    environment = {**os.environ, "CLICOLOR_FORCE": "1", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    write_text(record, json.dumps(_digests(folder), indent=1) + "\n")
    return done


def _digests(folder: Path) -> dict[str, str]:
    paths = sorted(path for pattern in _OUTPUTS for path in folder.glob(pattern))
    return digests_by_path(paths, folder)
