"""Programs on the emulated processor of tests/support: what they compute, and how each fault ends one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.emulated_processor import COMMAND, ENDED
from tests.support.projects import ROOT

pytestmark = pytest.mark.compile

# The eight lanes of a register of AVX-512, of which a mask leaves out the last.
LANES = """
#include <immintrin.h>
#include <cstdio>

int main(int count, char** arguments) {
  double found[8];
  const __m512d x = _mm512_set1_pd(count);
  _mm512_storeu_pd(found, _mm512_maskz_fmadd_pd(0x7F, x, x, _mm512_set_pd(7, 6, 5, 4, 3, 2, 1, 0)));
  for (const double one : found) std::printf("%g ", one);
  std::printf("%s\\n", arguments[count - 1]);
  return 3;
}
"""
NULL = "int main() { return *static_cast<volatile int*>(nullptr); }"
INVALID = "int main() { __builtin_trap(); }"
FORK = "#include <unistd.h>\nint main() { return fork(); }"
ENDLESS = "#include <cstdlib>\nint main() { for (;;) *static_cast<volatile char*>(std::malloc(1 << 20)) = 1; }"


def run(folder: Path, source: str, *arguments: str, static: bool = True) -> subprocess.CompletedProcess[str]:
    path, program = folder / "program.cc", folder / "program"
    path.write_text(source)
    flags = ("-static",) if static else ()
    subprocess.run(["g++", "-std=c++20", "-O1", "-march=x86-64-v4", *flags, path, "-o", program], check=True)
    return subprocess.run([*COMMAND, program, *arguments], cwd=ROOT, capture_output=True, text=True)


def test_a_program_has_its_arguments_avx_512_and_its_exit_code(tmp_path: Path) -> None:
    done = run(tmp_path, LANES, "last")
    assert (done.returncode, done.stdout, done.stderr) == (3, "4 5 6 7 8 9 10 0 last\n", "")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        pytest.param(NULL, "the program uses address 0x0, where it has no memory", id="null"),
        pytest.param(INVALID, "exception 6 (0x0) at 0x", id="invalid"),
        pytest.param(FORK, "system call 56 is not emulated", id="fork"),
        pytest.param(ENDLESS, "the program uses address 0x0, where it has no memory", id="memory"),
    ],
)
def test_a_fault_ends_the_program(tmp_path: Path, source: str, said: str) -> None:
    done = run(tmp_path, source)
    assert (done.returncode, done.stdout) == (ENDED, "")
    assert done.stderr.startswith(f"emulated processor: {said}") and done.stderr.count("\n") == 1


def test_a_program_that_needs_a_loader_is_refused(tmp_path: Path) -> None:
    done = run(tmp_path, FORK, static=False)
    assert (done.returncode, done.stderr) == (ENDED, f"emulated processor: {tmp_path / 'program'} is not static\n")
