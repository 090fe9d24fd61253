"""Torch schemas and ONNX nodes drawn from their grammars, for `doit new`, and checks of libraries of new operators."""

from __future__ import annotations

import keyword
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, helper, numpy_helper

from opmatrix.codegen import write_code
from opmatrix.declaration.load import load_operator
from opmatrix.declaration.validation.operator import CPP_KEYWORDS
from opmatrix.project.paths import Paths
from opmatrix.scaffold import render
from opmatrix.scaffold import render as write
from opmatrix.scaffold.draft import Draft
from opmatrix.toolchain import ort_headers
from opmatrix.toolchain.headers import find_torch_build
from tests.support.projects import ROOT, Project

_PLAIN = "x y scale weight bias index axis dim mode eps alpha input other mask out result values n k size shape".split()  # noqa: SIM905
_HANDED = "bytes count create_kernel_v2 text strings self class None lambda for is not".split()  # noqa: SIM905
_ODD = [
    "errno", "NULL", "EOF", "stdin", "linux", "_In_", "__x__", "a__b", "_", "_0", "np", "Any", "NDArray", "range", "T",
    "INT_MAX", "I", "x_", "x_float", "y_sizes", "made_y", "math", "string", "Tensor", "True", "L" * 60, "nan", "inf",
    "str", "len", "list", "ml_dtypes", "op", "overloads", "load_library", "__class__", "x_data",
]  # fmt: skip


@cache
def words() -> list[str]:
    """Return names: plain ones, keywords, macros, and every identifier in the headers and templates of bindings."""
    files = [*ROOT.glob("native/**/*.h"), *ROOT.glob("pipeline/opmatrix/*/templates/*.j2")]
    found = {word for path in files for word in re.findall(r"[A-Za-z_]\w*", path.read_text())}
    return sorted(found | {*keyword.kwlist, *CPP_KEYWORDS, *_HANDED, *_ODD})


def name(random: Random) -> str:
    return random.choice(_PLAIN) if random.random() < 0.4 else random.choice(words())


_INTS = ["0", "-1", "1", "7", "-9223372036854775808", "9223372036854775807", "-9223372036854775807"]
_FLOATS = ["0.5", "-0.0", "1e-5", "1e38", "-3.4e38", "1e-46", "1e-40", "7", ".5", "9223372036854775807"]
# Of which torch or ONNX holds none.
_WRONG = [
    "9223372036854775808",
    "3.5e38",
    "1e400",
    "5e-324",
    "inf",
    "nan",
    "None",
    "'\\x41'",
    "'\\000'",
    "[None]",
    "foo",
]
_STRINGS = [
    "''", "'sum'", "'a\"b'", "'\\\\'", "'??/'", "'\\n'", "'\\001'", "'é'", '"\'"', "'%s {0}'", "'*/'", "'\"\"\"'",
]  # fmt: skip
_DEFAULTS = {
    "int": _INTS, "float": _FLOATS, "bool": ["True", "False"], "str": _STRINGS, "Scalar": ["1", *_FLOATS],
    "int[]": ["[]", "[1, -9223372036854775808]"], "float[]": ["[]", "[0.5, 1e38]", "[1e-46, 3]"],
    "int[2]": ["1", "[1, 2]", "[-1, 0]"], "SymInt": _INTS, "str[]": ["[]"],
}  # fmt: skip
_TENSORS = ["Tensor"] * 9 + ["Tensor?"] * 3 + ["Tensor[]", "Tensor(a!)", "Tensor(b!)", "Tensor(a)", "Tensor?[]"]
_OTHER = ["ScalarType?", "Generator?", "Device", "MemoryFormat?", "complex", "(int, int)", "Layout", "Any", "double"]
_RESULTS = ["Tensor"] * 16 + [
    "(Tensor, Tensor)",
    "Tensor[]",
    "(Tensor run, Tensor y)",
    "()",
    "Tensor(a!)",
    "int",
    "Tensor out",
]


def schema(random: Random) -> str:
    """Return a schema, most of them legal; its parts are drawn independently."""
    arguments = [
        f"{random.choice(_TENSORS) if n else 'Tensor'} {name(random)}" for n in range(random.choice((1, 1, 2, 3)))
    ]
    defaults = False
    for _ in range(random.choice((0, 1, 2, 3, 4))):
        kind = random.choice(_OTHER if random.random() < 0.05 else [*_DEFAULTS])
        if random.random() < 0.06 and "*" not in arguments:
            arguments.append("*")
        optional = "?" * (random.random() < 0.15)
        usual = ["None"] if optional else _DEFAULTS.get(kind, ["None"])
        default = random.choice(_WRONG if random.random() < 0.03 else usual)
        defaults = defaults or random.random() < 0.6
        arguments.append(f"{kind}{optional} {name(random)}" + f"={default}" * defaults)
    overload = f".{name(random)}" * (random.random() < 0.05)
    namespace = name(random) if random.random() < 0.05 else "my"
    return f"{namespace}::{name(random)}{overload}({', '.join(arguments)}) -> {random.choice(_RESULTS)}"


DOMAINS = ("my.dom", "a-b", "Ünï", "9", "_", "..", "my.dom")
OP_TYPES = ("", "", "", "Ünï", "__a__", "class")

_KINDS: dict[str, list[Any]] = {
    "float": [0.5, float("inf"), float("nan"), 1e-46, 3e38], "int": [0, -(2**63), 2**63 - 1], "floats": [[0.1, 2.0]],
    "ints": [[1, -(2**63)]], "strings": [["a", "ü"]],
    "string": ["sum", b"", b'"', b"??/", b"\n", b"\x01", b"\xff", b"a\x00b", "é", "{0}%s", "*/", '"""', "\\"],
    "tensor": [numpy_helper.from_array(np.zeros((2, 2), np.float32)), numpy_helper.from_array(np.array(7, np.uint8))],
}  # fmt: skip
_DTYPES = [1, 1, 1, 1, 7, 9, 8, 10, 16, 11, 2, 22, 14, 17]


def node(random: Random, number: int) -> tuple[NodeProto, GraphProto]:
    """Return a node, and a graph with its inputs and outputs."""
    graph = GraphProto(name="g")
    inputs = [
        f"{random.choice(('', 'a.', 'b/'))}{name(random)}.{number}.{n}" for n in range(random.choice((1, 1, 2, 3, 5)))
    ]
    if random.random() < 0.5:
        inputs = [*dict.fromkeys(value.split(".")[0].rpartition("/")[2] or f"v{n}" for n, value in enumerate(inputs))]
    for value in inputs:
        shape = random.choice(([3, 4], ["N", 4], [], [2], None))
        graph.input.append(helper.make_tensor_value_info(value, random.choice(_DTYPES), shape))
    given = {name(random): random.choice(_KINDS[random.choice([*_KINDS])]) for _ in range(random.choice((0, 1, 2, 4)))}
    outputs = [f"{name(random)}" for _ in range(random.choice((1, 1, 2)))]
    outputs = [output for n, output in enumerate(outputs) if output not in (*inputs, *outputs[:n])] or ["result_0"]
    for output in outputs:
        graph.output.append(
            helper.make_tensor_value_info(output, random.choice(_DTYPES), random.choice(([3, 4], [], None)))
        )
    domain = random.choice((*DOMAINS, "x y"))
    made = helper.make_node(name(random), inputs, outputs, domain=domain)
    made.attribute.extend(helper.make_attribute(key, value) for key, value in given.items())
    graph.node.append(made)
    return made, graph


@dataclass(frozen=True, kw_only=True)
class Library:
    """New operators in a project, each with a name of its own."""

    paths: Paths
    drafts: Sequence[Draft]

    def write(self) -> None:
        """Write the operators as `doit new` does, and their generated code, after the declarations are read again."""
        for draft in self.drafts:
            for path, text in render.render(draft).items():
                (self.paths.root / path).parent.mkdir(parents=True, exist_ok=True)
                (self.paths.root / path).write_text(text)
            operator = load_operator(self.paths, draft.spec.name)
            assert operator.spec == draft.spec
            write_code.run(self.paths, operator)

    def type_errors(self) -> str:
        """Return what mypy says of the declarations, and the syntax errors of the generated modules."""
        for path in self.paths.root.glob("build/generated/*/*.py"):
            compile(path.read_text(), str(path), "exec")
        folder = self.paths.root / "typed"  # where each has another name, as mypy needs it
        folder.mkdir()
        for path in self.paths.root.glob("ops/*/*.py"):
            (folder / f"{path.parent.name}_{path.name}").write_text(path.read_text())
        command = [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            f"--cache-dir={ROOT / '.mypy_cache/generated'}",
            str(folder),
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        return "" if done.returncode == 0 else done.stdout + done.stderr

    def compile_errors(self, folder: Path, *, linked: bool) -> str:
        """Return the errors and warnings of the kernels with their bindings: all compiled as one file for each, and
        `linked` as one library for each framework, or only read by the compiler."""
        places = [f"-I{ROOT / 'native' / part}" for part in ("include", "binding", "binding/stable")]
        places += [f"-I{self.paths.native}", "-isystem", str(find_torch_build(Path(sys.prefix)).include)]
        places += ["-isystem", str(ort_include())]
        flags = ["-std=c++20", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-Wno-psabi", "-fPIC"]
        flags += ["-O0", "-c"] if linked else ["-fsyntax-only"]
        names = ["kernel.cc", "torch.cc", "ort.cc"]
        for name in names:
            files = sorted(self.paths.root.glob(f"build/generated/*/{name}"))
            (folder / name).write_text("".join(f'#include "{path}"\n' for path in files))
        sources = [*names, str(ROOT / "native/binding/runtime.cc")]
        commands = [[*flags, *places, source] for source in sources]
        if linked:
            link = ["-shared", "kernel.o", "runtime.o"]
            commands += [[*link, "torch.o", "-o", "torch.so"], [*link, "ort.o", "-Wl,-z,defs", "-o", "ort.so"]]
        done = (subprocess.run(["g++", *words], cwd=folder, capture_output=True, text=True) for words in commands)
        return "".join(one.stderr for one in done)


def outcomes(project: Project, drafts: Iterable[Draft], *choice: str) -> dict[tuple[str, str], str]:
    """Write operators as `doit new` does, run doit, and return each outcome by operator and exporter."""
    for draft in drafts:
        write.write(project.paths, render.render(draft))
    done = project.doit(*choice)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr
    return {(r["op"], r["exporter"]): r["outcome"] for r in project.records().values()}


def ort_include() -> Path:
    """Return the folder of ONNX Runtime's headers."""
    return ort_headers.folder(os.environ)


def unlike(drafts: Iterator[Draft]) -> list[Draft]:
    """Return the first operator of each name."""
    found: dict[str, Draft] = {}
    for draft in drafts:
        found.setdefault(draft.spec.name, draft)
    return [*found.values()]
