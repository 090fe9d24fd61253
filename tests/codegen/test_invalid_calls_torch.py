"""What torch reports for wrong calls of group_norm: one sentence with operator, argument and value; no crash. One child
process makes all calls, and must still compute at the end. The bindings of all operators over torch's C++ headers
compile as C++17, the standard for torch before 2.15.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from opmatrix.toolchain.headers import find_torch_build
from tests.support.all_bindings import Bindings, generate
from tests.support.building import build, copy_project
from tests.support.projects import edited
from tests.support.wrong_calls import CALL_ALL, messages

pytestmark = [pytest.mark.compile, pytest.mark.torch]

NAN, INF = "float('nan')", "float('inf')"

# The call, as Python, and the whole message.
CALLS = {
    "op(x.half(), g, s, b)": "group_norm: scale must be float16 as x is, got float32",
    "op(x.long(), g, s, b)": "group_norm: x must be float32, float64, float16 or bfloat16, got int64",
    "op(x.cfloat(), g, s, b)": "group_norm: x must be float32, float64, float16 or bfloat16, got complex64",
    "op(torch.quantize_per_tensor(x, 0.1, 0, torch.quint8), g, s, b)": (
        "group_norm: x must be float32, float64, float16 or bfloat16, got another dtype"
    ),
    "op(x, g.double(), s, b)": "group_norm: num_groups must be float32, got float64",
    "op(x, g, s.double(), b)": "group_norm: scale must be float32 as x is, got float64",
    "op(x.double(), g, s.double(), b)": "group_norm: bias must be float64 as x is, got float32",
    "op(x[0, 0, 0], g, s, b)": "group_norm: x must have shape (N, C, ...), got (7,)",
    "op(x[0, 0, 0, 0], g, s, b)": "group_norm: x must have shape (N, C, ...), got ()",
    "op(x, torch.tensor(3.0), s, b)": "group_norm: num_groups must have shape (1,), got ()",
    "op(x, torch.tensor([3.0, 3.0]), s, b)": "group_norm: num_groups must have shape (1,), got (2,)",
    "op(x, g, s[:5], b)": "group_norm: scale must have shape (C,) with C = 6 as in x, got (5,)",
    "op(x, g, s, b[None])": "group_norm: bias must have shape (C,) with C = 6 as in x, got (1, 6)",
    "op(x, torch.tensor([4.0]), s, b)": "group_norm: num_groups must divide the 6 channels of x, got 4",
    "op(x, torch.tensor([1e30]), s, b)": "group_norm: num_groups must divide the 6 channels of x, got 1e+30",
    f"op(x, torch.tensor([{INF}]), s, b)": "group_norm: num_groups must divide the 6 channels of x, got inf",
    "op(x, torch.tensor([0.0]), s, b)": "group_norm: num_groups must be a whole number greater than 0, got 0",
    "op(x, torch.tensor([-3.0]), s, b)": "group_norm: num_groups must be a whole number greater than 0, got -3",
    "op(x, torch.tensor([1.5]), s, b)": "group_norm: num_groups must be a whole number greater than 0, got 1.5",
    f"op(x, torch.tensor([{NAN}]), s, b)": "group_norm: num_groups must be a whole number greater than 0, got nan",
    "op(x, g, s, b, -1.0)": "group_norm: eps must be at least 0, got -1",
    "op(x, g, s, b, -1e-60)": "group_norm: eps must be at least 0, got -1e-60",  # float32 would make it -0
    f"op(x, g, s, b, {NAN})": "group_norm: eps must be at least 0, got nan",
    "op(x, g, s, b, 1e300)": "group_norm: eps must fit float32, got 1e+300",
    "op(x.to_sparse(), g, s, b)": "group_norm: x must be a dense tensor, got a sparse or otherwise packed one",
    "op(x[0, 0].to_sparse_csr(), g, s, b)": (
        "group_norm: x must be a dense tensor, got a sparse or otherwise packed one"
    ),
    "op(x.to_mkldnn(), g, s, b)": "group_norm: x must be a dense tensor, got a sparse or otherwise packed one",
    "op(x, g, s.to_sparse(), b)": "group_norm: scale must be a dense tensor, got a sparse or otherwise packed one",
    "op(x.to('meta'), g, s, b)": "group_norm: x must be on the CPU, got a tensor on the meta device",
    "op(x, g, s, b.to('meta'))": "group_norm: bias must be on the CPU, got a tensor on the meta device",
    "op(None, g, s, b)": "group_norm: x must be a tensor, got an undefined one",
}
# torch refuses these before it calls the binding, or its allocator does: the messages are torch's.
REFUSED = (
    "op(x, g, s)",
    "op(x, g, s, b, 1e-5, 1)",
    "op(x, 3, s, b)",
    "op(x, g, s, b, epsilon=1e-5)",
    "op(x, g, s, b, 'small')",
    "op([x], g, s, b)",
    "op(torch.nested.nested_tensor([x[0], x[1]]), g, s, b)",
    "op(torch.empty(1).expand(2**20, 2, 2**20), torch.ones(1), s[:2], b[:2])",
)
PROGRAM = (
    """
import ctypes, json, sys, warnings
import torch
warnings.simplefilter("ignore")
path, calls = sys.argv[1], json.loads(sys.argv[2])
torch.ops.load_library(path)
op = torch.ops.mynamespace.custom_group_norm
x, g, s, b = torch.randn(2, 6, 5, 7), torch.tensor([3.0]), torch.randn(6), torch.randn(6)
"""
    + CALL_ALL
    + """torch.testing.assert_close(op(x, g, s, b), torch.nn.functional.group_norm(x, 3, s, b))
torch.testing.assert_close(op(x.mT, g, s, b), torch.nn.functional.group_norm(x, 3, s, b).mT)
print(json.dumps(said))
"""
)

TWICE = """
import ctypes, sys, torch
for path in sys.argv[1:]:
    torch.ops.load_library(path)
    error = ctypes.CDLL(path).opmatrix_error
    error.restype = ctypes.c_char_p
    print(error().decode().splitlines()[:1])
torch.ops.mynamespace.custom_group_norm(torch.randn(1, 2, 3), torch.ones(1), torch.ones(2), torch.ones(2))
"""
THREADS = """
import sys, torch
torch.ops.load_library(sys.argv[1])
x, one = torch.randn(8, 64, 56, 56), torch.ones(64)
results = []
for threads in (1, 4):
    torch.set_num_threads(threads)
    results.append(torch.ops.mynamespace.custom_group_norm(x, torch.tensor([32.0]), one, one))
assert torch.equal(*results)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    paths = copy_project(tmp_path_factory.mktemp("torch"))
    build(paths)
    return paths.torch_library("group_norm")


@pytest.fixture(scope="module")
def said(library: Path) -> dict[str, str]:
    return messages(PROGRAM, library, json.dumps([*CALLS, *REFUSED]))


@pytest.mark.parametrize("call", CALLS)
def test_the_message(call: str, said: dict[str, str]) -> None:
    assert said.get(call) == CALLS[call]


@pytest.mark.parametrize("call", REFUSED)
def test_torch_refuses_it(call: str, said: dict[str, str]) -> None:
    assert said.get(call)


def test_a_second_definition_is_a_message(library: Path, tmp_path: Path) -> None:
    """Without the check, torch would end the process."""
    copy = tmp_path / library.name
    copy.write_bytes(library.read_bytes())
    done = subprocess.run([sys.executable, "-c", TWICE, str(library), str(copy)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "[]" and "custom_group_norm: torch could not define it" in second
    assert "opmatrix: mynamespace::custom_group_norm: torch could not define it" in done.stderr


def test_threads_change_nothing(library: Path) -> None:
    subprocess.run([sys.executable, "-c", THREADS, str(library)], check=True)


OLDEST = "c++17"


@pytest.fixture(scope="module")
def bindings(tmp_path_factory: pytest.TempPathFactory) -> Bindings:
    return generate(tmp_path_factory.mktemp("all"))


def test_the_bindings_over_torchs_headers_compile_as_for_an_old_torch(bindings: Bindings, tmp_path: Path) -> None:
    flags = bindings.classic(find_torch_build(Path(sys.prefix)).include, OLDEST)
    files = bindings.files("torch.cc")
    assert len(files) >= 15
    assert bindings.errors(files, ["g++", "-w", *flags], tmp_path) == ""


@pytest.mark.parametrize(
    ("header", "old", "new", "found"),
    [
        # Each was in value_checks.h, so that no operator with value rules compiled for torch before 2.9.
        ("value_checks.h", "operator()(T before, T value)", "operator()(auto before, auto value)", "auto"),
        ("value_checks.h", "std::is_same_v<Limit, NoLimit>", "std::same_as<Limit, NoLimit>", "same_as"),
        ("value_checks.h", "less_equal(limit, value)", "std::cmp_less_equal(limit, value)", "cmp_less_equal"),
    ],
)
def test_what_the_standard_does_not_have_is_found(
    header: str, old: str, new: str, found: str, bindings: Bindings, tmp_path: Path
) -> None:
    path = bindings.layouts[0].binding / header
    command = ["g++", f"-std={OLDEST}", "-pedantic-errors"]
    assert bindings.errors([path], command, tmp_path) == ""
    with edited(path, old, new):
        assert found in bindings.errors([path], command, tmp_path)
