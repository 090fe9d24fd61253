"""No operator has a name that the headers use in namespace opmatrix, in which it has a namespace of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from opmatrix.declaration.validation.operator import CPP_KEYWORDS, NAME, RESERVED
from opmatrix.toolchain.torch_headers import find_torch_build
from tests.support.generated_operators import ort_include
from tests.support.projects import ROOT

NATIVE = ROOT / "native"
HEADERS = [*sorted(NATIVE.glob("include/opmatrix/*.h")), *sorted(NATIVE.glob("binding/*.h"))]


@pytest.mark.compile
@pytest.mark.torch
def test_every_name_of_the_headers_is_reserved(tmp_path: Path) -> None:
    texts = [path.read_text() for path in [*HEADERS, *NATIVE.glob("binding/*/*.h")]]
    words = {word for text in texts for word in re.findall(r"\w+", text) if NAME.fullmatch(word)}
    words -= CPP_KEYWORDS | {"and", "or", "not"}
    lines = [f'#include "{path.relative_to(NATIVE / path.relative_to(NATIVE).parts[0])}"' for path in HEADERS]
    (tmp_path / "all.cc").write_text(
        "\n".join([*lines, *(f"namespace opmatrix::{word} {{}}" for word in sorted(words))])
    )
    places = [f"-I{NATIVE / part}" for part in ("include", "binding", "binding/stable")]
    frameworks = ["-isystem", str(find_torch_build(Path(sys.prefix)).include), "-isystem", str(ort_include())]
    command = ["g++", "-std=c++20", "-fsyntax-only", "-fmax-errors=0", *places, *frameworks, "all.cc"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env={"LC_ALL": "C", "PATH": "/usr/bin"}
    )
    found = set(re.findall(r"'namespace opmatrix::(\w+)", done.stderr))
    found |= {word for text in texts for word in re.findall(r"namespace (?:opmatrix::)?(\w+)", text)}
    assert len(found) > 20 and found <= {name for names in RESERVED.values() for name in names}
