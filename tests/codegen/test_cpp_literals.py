"""C++ literals of extreme values: each compiles without a warning as C++17, and has the value and the bytes."""

from __future__ import annotations

import math
import struct
import subprocess
from pathlib import Path

import pytest

from opmatrix.codegen.cpp import literal, quoted
from opmatrix.signature.signature import to_float32

# At 71b51ad8: those with \n, ??, \x00 and \r did not compile; the one that is not UTF-8 was a UnicodeEncodeError.
TEXTS = [
    "", 'a"b', "back\\slash", "two\nlines", "tab\t\x01\x7f", "??/ ??' ???", "\x001", "ü€😀", "not \udcff UTF-8", "%s\r",
]  # fmt: skip
# At 71b51ad8: -2**63, infinities, NaN, and for float what float32 holds as an infinity or as 0 did not compile.
INTS = [-(2**63), -(2**63) + 1, 2**63 - 1, 0, -1]
FLOATS = [
    math.inf,
    -math.inf,
    math.nan,
    3.4028234663852886e38,
    1e39,
    -1e300,
    1e-40,
    1e-46,
    -1e-300,
    -0.0,
    1e16,
    0.1,
    5e-324,
]


def as_float32(value: float) -> float:
    return math.copysign(math.inf, value) if 3.5e38 < abs(value) < math.inf else to_float32(value)


@pytest.mark.compile
@pytest.mark.parametrize("compiler", ["g++", pytest.param("clang++", marks=pytest.mark.clang)])
def test_every_literal_compiles_and_has_its_bytes(compiler: str, tmp_path: Path) -> None:
    kinds = [*(("std::int64_t", n) for n in INTS), *((kind, x) for kind in ("double", "float") for x in FLOATS)]
    lines = [
        f"  constexpr {kind} v{n} = {literal(value, 'f' * (kind == 'float'))}; put(&v{n}, sizeof v{n});"
        for n, (kind, value) in enumerate(kinds)
    ]
    lines += [f"  put({quoted(text)}, sizeof {quoted(text)} - 1);" for text in TEXTS]
    head = "#include <cstdint>\n#include <cstdio>\nvoid put(const void* at, std::size_t size) {\n" \
        "  for (std::size_t i = 0; i < size; ++i) std::printf(\"%02x\", static_cast<const unsigned char*>(at)[i]);\n" \
        "  std::puts(\"\");\n}\n"  # fmt: skip
    (tmp_path / "all.cc").write_text(head + "int main() {\n" + "\n".join(lines) + "\n}\n")
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Wtrigraphs", "-Werror", "all.cc", "-o", "all"]
    done = subprocess.run([compiler, *flags], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = subprocess.run([tmp_path / "all"], capture_output=True, text=True, check=True).stdout.split("\n")
    bits = {"std::int64_t": "<q", "double": "<d", "float": "<f"}
    wanted = [struct.pack(bits[k], as_float32(v) if k == "float" else v).hex() for k, v in kinds]
    wanted += [text.encode("utf-8", "surrogateescape").hex() for text in TEXTS]
    assert found[:-1] == wanted
