"""No operator has a name that the headers use in namespace opmatrix, in which it has a namespace of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from opmatrix.declaration.validation.operator import CPP_KEYWORDS, NAME, RESERVED
from opmatrix.scaffold.draft import is_variable
from opmatrix.toolchain.torch_headers import find_torch_build
from tests.support.generated_operators import ort_include
from tests.support.projects import ROOT

NATIVE = ROOT / "native"
HEADERS = [*sorted(NATIVE.glob("include/opmatrix/*.h")), *sorted(NATIVE.glob("binding/*.h"))]

INCLUDED = [f'#include "{path.relative_to(NATIVE / path.relative_to(NATIVE).parts[0])}"' for path in HEADERS]
PLACES = [f"-I{NATIVE / part}" for part in ("include", "binding", "binding/stable")]


def compiled(folder: Path, lines: Iterable[str], *flags: str) -> subprocess.CompletedProcess[str]:
    """Compile lines with the headers of both frameworks."""
    (folder / "all.cc").write_text("\n".join(lines))
    frameworks = ["-isystem", str(find_torch_build(Path(sys.prefix)).include), "-isystem", str(ort_include())]
    command = ["g++", "-std=c++20", *flags, *PLACES, *frameworks, "all.cc"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env={"LC_ALL": "C", "PATH": "/usr/bin"})


@pytest.mark.compile
@pytest.mark.torch
def test_no_macro_of_the_headers_can_be_a_name(tmp_path: Path) -> None:
    lines = [*INCLUDED, "#include <torch/library.h>", "#include <sys/sysmacros.h>"]
    found = re.findall(r"#define (\w+)", compiled(tmp_path, lines, "-dM", "-E").stdout)
    assert len(found) > 2000 and [name for name in found if is_variable(name)] == []


# At 71b51ad8: 20 of these 34 names could be an operator's, whose bindings then did not compile: fail, simd, one_of, ...
@pytest.mark.compile
@pytest.mark.torch
def test_every_name_of_the_headers_is_reserved(tmp_path: Path) -> None:
    texts = [path.read_text() for path in [*HEADERS, *NATIVE.glob("binding/*/*.h")]]
    words = {word for text in texts for word in re.findall(r"\w+", text) if NAME.fullmatch(word)}
    words -= CPP_KEYWORDS | {"and", "or", "not"}
    lines = [*INCLUDED, *(f"namespace opmatrix::{word} {{}}" for word in sorted(words))]
    done = compiled(tmp_path, lines, "-fsyntax-only", "-fmax-errors=0")
    found = set(re.findall(r"'namespace opmatrix::(\w+)", done.stderr))
    found |= {word for text in texts for word in re.findall(r"namespace (?:opmatrix::)?(\w+)", text)}
    assert len(found) > 20 and found <= {name for names in RESERVED.values() for name in names}
