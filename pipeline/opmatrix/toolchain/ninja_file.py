"""The text of build.ninja: how the libraries of an operator are compiled. Pure.

Who owns staleness: doit decides whether to ask, ninja decides what to compile, equal bytes stop the wave. The text is
the configuration of the compile step, so no flag stands anywhere else.
"""

from __future__ import annotations

import io
import os
import shlex
from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from ninja import ninja_syntax

from opmatrix.codegen import generated_files
from opmatrix.declaration.torch_signature import (
    ONLY_KERNEL,
    OWN_ORT,
    OWN_TORCH,
    has_kernel_object,
    has_ort_library,
    has_torch_library,
    is_own,
)
from opmatrix.project.paths import Paths
from opmatrix.spec import OpSpec
from opmatrix.toolchain.find_tools import Toolchain
from opmatrix.toolchain.torch_headers import TorchBuild

TORCH_TARGET = "2.9"
STUB = "stub/libtorch_cpu.so"
SDK = "sdk.ninja"
IDENTITY = "identity.txt"
TORCH = "torch.txt"
# The object that holds the arithmetic, and what it uses: one for all libraries of an operator.
KERNEL_OBJECTS = ("kernel.o", "runtime.o")
ORT_LIBRARY = "ort_library.cc"
OBJECTS = ("kernel", "ort")  # what an operator gives to a library for ONNX Runtime

# C++20, without the extensions of a compiler's own dialect.
_LANGUAGE = ("-std=c++20", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden")
# -Wpsabi speaks of vectors passed between functions of different ABI; a kernel passes none.
_WARNINGS = ("-Wall", "-Wextra", "-Wshadow", "-Werror", "-Wno-psabi")
# Kernels: vectorised, fused multiply-add where a processor has it, no errno from <cmath>. Never -ffast-math (it breaks
# NaN) and never -march (a library runs on every x86-64).
_ARITHMETIC = ("-ffp-contract=fast", "-fno-math-errno")
_KERNEL = ("-O2", "-ftree-vectorize", "-fvect-cost-model=dynamic", *_ARITHMETIC)
_BINDING = ("-O1",)
# What people bring as it is may warn, and need not say what it shows: the version script does.
_OWN = ("-O2", "-fvisibility=default", "-Wno-error", "-Wno-extra", "-Wno-shadow")
# What a compiler suspects of torch's headers, once they are inlined (GCC 12 in those of 2.9), is not ours to mend; the
# same torch.cc is compiled with all warnings for the stable interface.
_QUIET = ("-w",)
_DEBUG = ("-Og", "-g")
_SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
_SANITIZED = ("-O1", "-g", "-fno-omit-frame-pointer", *_ARITHMETIC, *_SANITIZERS)  # the same numbers come out
# How bindings that are written by hand are compiled.
_OWN_FLAGS = {OWN_TORCH: "$own $torch", OWN_ORT: "$own $ort"}
# An output appears whole, and only if it differs: with restat, ninja then stops where a comment was edited.
_KEEP = "if cmp -s $out.new $out; then rm $out.new; else mv $out.new $out; fi"


def build_ninja(
    layout: Paths, spec: OpSpec, *, toolchain: Toolchain, written: Set[str] = ONLY_KERNEL, debug: bool = False
) -> str:
    """Return the text of the operator's build.ninja; `written` are its own files that have a meaning by their name.

    Where headers of others are is in `SDK` beside it: those of ONNX Runtime are known only once the sdk stage has run.
    `IDENTITY` there holds what the compiler and the headers are, for ninja looks at time stamps of sources alone, and
    `Layout.torch_version` which torch a torch.cc of its own is compiled for.
    """
    name = spec.name
    text = io.StringIO()
    comment = f"How the libraries of {name} are compiled. Written by `python -m opmatrix compile {name}`."
    ninja = _begin(text, comment, layout, spec, toolchain=toolchain, debug=debug)
    _objects(ninja, layout, spec, written)
    kernel = KERNEL_OBJECTS if has_kernel_object(spec, written) else ()
    if is_own(OWN_TORCH, spec, written):
        _installed_torch_library(ninja, layout, name, kernel, script="own_torch.map")
    elif has_torch_library(spec):
        stable = layout.torch_library(name).name
        _torch_library(ninja, layout, stable, objects=("kernel.o", "torch.o", "runtime.o"))
    if is_own(OWN_ORT, spec, written):
        _library(ninja, layout.ort_library(name).name, objects=("ort.o", *kernel), script=layout.binding / "ort.map")
    elif has_ort_library(spec):
        # Relative, as ninja's folder is: a library is then of the same bytes in any folder. Compiled by another ninja.
        folders = [f"../{used}/" for used in spec.uses] or [""]
        objects = (*(f"{folder}{stem}.o" for folder in folders for stem in OBJECTS), "ort_library.o", "runtime.o")
        _ort_library(ninja, layout, layout.ort_library(name).name, objects=objects)
    return text.getvalue()


def cpp_abi_ninja(
    layout: Paths, spec: OpSpec, *, toolchain: Toolchain, written: Set[str] = ONLY_KERNEL, debug: bool = False
) -> str:
    """Return the text of build.ninja for the torch library of one version of torch.

    Which one is said by `SDK` beside it, so that this text is the same for all. Only the binding is compiled anew: the
    objects of the kernel are those of the folder above, since nothing of the standard library's classes, whose names
    depend on the ABI, stands in what they show each other.
    """
    name, own = spec.name, is_own(OWN_TORCH, spec, written)
    text = io.StringIO()
    comment = f"How {name} is compiled for one torch: `python -m opmatrix compile {name} --torch-root PLACE`."
    ninja = _begin(text, comment, layout, spec, toolchain=toolchain, debug=debug)
    source = layout.own(name, OWN_TORCH) if own else layout.generated(name) / OWN_TORCH
    ours = _shell("-I" + str(layout.binding / "classic"))
    flags = "$own $torch" if own else f"$binding $classic {_shell(*_QUIET)} {ours} $torch"
    ninja.build(["torch.o"], "object", [_path(source)], implicit=[IDENTITY, TORCH], variables={"more": flags})
    ninja.newline()
    kernel = tuple(f"../{file}" for file in KERNEL_OBJECTS) if has_kernel_object(spec, written) else ()
    _installed_torch_library(ninja, layout, name, kernel, script="own_torch.map" if own else "torch.map")
    return text.getvalue()


def _begin(
    text: io.StringIO, comment: str, layout: Paths, spec: OpSpec, *, toolchain: Toolchain, debug: bool
) -> ninja_syntax.Writer:
    """Write what every build.ninja begins with: variables and rules."""
    ninja = ninja_syntax.Writer(text, width=120)  # type: ignore[arg-type]  # typed as str, used as a file
    ninja.comment(comment)
    ninja.variable("ninja_required_version", "1.5")
    ninja.variable("builddir", ".")
    ninja.include(SDK)
    ninja.newline()
    _variables(ninja, layout, spec, toolchain=toolchain, debug=debug)
    _rules(ninja)
    return ninja


def _variables(ninja: ninja_syntax.Writer, layout: Paths, spec: OpSpec, *, toolchain: Toolchain, debug: bool) -> None:
    generated = layout.generated(spec.name)
    # All of native/ comes last: of it a compile step reads an operator's own folder alone.
    ours = (generated, layout.include, layout.binding, layout.native)
    # Equal content gives equal bytes in any folder. A debugger wants the real paths.
    prefixes = [] if debug else [f"-ffile-prefix-map={folder}={short}" for folder, short in _short(layout).items()]
    ninja.variable("cxx", _shell(*toolchain.compiler))
    flags = _shell(*_LANGUAGE, *_WARNINGS, *prefixes, *(f"-I{folder}" for folder in ours))
    ninja.variable("flags", flags + (" $headers" if spec.headers else ""))
    special = _SANITIZED if layout.sanitized else _DEBUG if debug else None
    ninja.variable("kernel", _shell(*(special or _KERNEL)))
    ninja.variable("binding", _shell(*(special or _BINDING)))
    ninja.variable("own", _shell(*_OWN, *(special or ())))
    ninja.variable("ort", "-isystem $ort_include")
    linker = [f"-fuse-ld={toolchain.linker}"] if toolchain.linker else []
    runtime = _SANITIZERS if layout.sanitized else ()
    ninja.variable("link", _shell("-shared", *linker, *runtime, *([] if special else ["-Wl,-s"])))
    ninja.newline()


def _short(layout: Paths) -> dict[Path, str]:
    """Return what a folder is called in a library, by its path here."""
    installed = [folder for folder in (layout.include, layout.binding) if not folder.is_relative_to(layout.root)]
    return {layout.root: "."} | {folder: f"opmatrix/{folder.name}" for folder in installed}


def _rules(ninja: ninja_syntax.Writer) -> None:
    ninja.rule(
        "object",
        # -MD, not -MMD, which would leave out what comes through -isystem: ONNX Runtime's headers.
        command=f"$cxx $flags $more -MD -MF $out.d -MQ $out -c $in -o $out.new && {_KEEP}",
        depfile="$out.d",
        deps="gcc",
        restat=True,
    )
    ninja.rule(
        "library", command=f"$cxx $link $more -Wl,-soname,$soname -o $out.new $in $libraries && {_KEEP}", restat=True
    )
    ninja.newline()


def _objects(ninja: ninja_syntax.Writer, layout: Paths, spec: OpSpec, written: Set[str]) -> None:
    generated = layout.generated(spec.name)
    more = {
        "kernel.cc": "$kernel",
        "torch.cc": f"$binding {_shell('-I' + str(layout.binding / 'stable'))}",
        "ort.cc": "$binding $ort",
        "ort_library.cc": "$binding $ort",
    }
    sources = {generated / file: more[file] for file in generated_files.cpp_files(spec, written) if file in more}
    if sources:
        sources[layout.binding / "runtime.cc"] = "$binding"
    own = {file: flags for file, flags in _OWN_FLAGS.items() if is_own(file, spec, written)}
    sources |= {layout.own(spec.name, file): flags for file, flags in own.items()}
    for source, flags in sources.items():
        known = [IDENTITY, *([TORCH] if "$torch" in flags else [])]
        ninja.build([f"{source.stem}.o"], "object", [_path(source)], implicit=known, variables={"more": flags})
    ninja.newline()


def _torch_library(ninja: ninja_syntax.Writer, layout: Paths, path: str, *, objects: Sequence[str]) -> None:
    ninja.comment("An empty library in libtorch_cpu.so's name: ours then asks for that name, whatever torch is there.")
    _library(ninja, STUB, objects=(), more="-nostdlib -x c /dev/null")
    _library(
        ninja,
        path,
        objects=objects,
        script=layout.binding / "torch.map",
        libraries=f"-Wl,--no-as-needed {STUB}",
        further=(STUB,),
    )


def _installed_torch_library(
    ninja: ninja_syntax.Writer, layout: Paths, name: str, kernel: Sequence[str], *, script: str
) -> None:
    """Link against an installed torch itself: what that lacks, the linker names."""
    _library(
        ninja,
        layout.torch_library(name).name,
        objects=("torch.o", *kernel),
        script=layout.binding / script,
        more="" if layout.sanitized else "-Wl,-z,defs",  # a sanitizer's own functions come with the process
        libraries="$torch_libraries",
        further=(TORCH,),
    )


def _ort_library(ninja: ninja_syntax.Writer, layout: Paths, path: str, *, objects: Sequence[str]) -> None:
    _library(ninja, path, objects=objects, script=layout.binding / "ort.map", more="-Wl,-z,defs")


def shared(spec: OpSpec, written: Set[str] = ONLY_KERNEL) -> tuple[str, ...]:
    """Return the objects of an operator with a kernel that other libraries than its own are linked of."""
    torch = has_torch_library(spec) and not is_own(OWN_TORCH, spec, written)
    return ("kernel", "ort", "runtime", *(["torch"] if torch else []))


def linked_ninja(layout: Paths, specs: Sequence[OpSpec], libraries: Mapping[str, Path], *, toolchain: Toolchain) -> str:
    """Return the text of build.ninja for libraries of several operators, by their side, ``torch`` and ``ort``, in one
    folder, linked of the objects that the operators' own compile steps have made. All of `specs` have kernels."""
    folder, text = libraries["ort"].parent, io.StringIO()
    comment = f"How {', '.join(s.name for s in specs)} are linked together."
    ninja = _begin(text, comment, layout, specs[0], toolchain=toolchain, debug=False)
    ninja.build(["ort_library.o"], "object", [ORT_LIBRARY], implicit=[IDENTITY], variables={"more": "$binding $ort"})
    ninja.newline()

    def objects(of: Sequence[OpSpec], binding: str) -> tuple[str, ...]:
        """Relative, as ninja's folder is: a library is then of the same bytes in any folder."""
        made = [(spec, stem) for spec in of for stem in ("kernel", binding)]
        made.append((specs[0], "runtime"))  # the same for all
        return tuple(os.path.relpath(layout.compiled(spec.name) / f"{stem}.o", folder) for spec, stem in made)

    if "torch" in libraries:
        of = [spec for spec in specs if has_torch_library(spec)]
        _torch_library(ninja, layout, libraries["torch"].name, objects=objects(of, "torch"))
    _ort_library(ninja, layout, libraries["ort"].name, objects=(*objects(specs, "ort"), "ort_library.o"))
    return text.getvalue()


def _library(
    ninja: ninja_syntax.Writer,
    path: str,
    *,
    objects: Sequence[str],
    script: Path | None = None,
    more: str = "",
    libraries: str = "",
    further: Sequence[str] = (),
) -> None:
    scripts = [script] if script else []
    # -Wl would split a path at its commas.
    options = " ".join([_shell("-Xlinker", f"--version-script={s}") for s in scripts] + ([more] if more else []))
    ninja.build(
        [path],
        "library",
        list(objects),
        implicit=[*map(_path, scripts), *further, IDENTITY],
        variables={"soname": Path(path).name, "more": options, "libraries": libraries},
    )


def sdk_ninja(
    ort_include: Path, *, torch: TorchBuild | None = None, openmp: bool = False, headers: Sequence[Path] = ()
) -> str:
    """Return the text of the file `SDK`; `torch` is for bindings over its C++ headers, `headers` are third parties'.

    With `openmp` a generated binding uses the threads of that torch.
    """
    lines = [f"ort_include = {_shell(str(ort_include))}"]
    if torch:
        threads = ["-fopenmp"] if openmp and torch.openmp else []
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
    """Return the options for headers of others: what they warn of is not ours to mend, and their checks name the file,
    which would bring the place of the environment into a library."""
    return [w for f in folders for w in ("-isystem", str(f), f"-ffile-prefix-map={f}={f.parent.name}/{f.name}")]


def _shell(*words: str) -> str:
    """Return words for the shell that runs a command, as ninja reads them."""
    return str(ninja_syntax.escape(shlex.join(words)))


def _path(path: Path) -> str:
    """Return a path for a build line; the writer escapes blanks and colons, but no dollar."""
    return str(path).replace("$", "$$")
