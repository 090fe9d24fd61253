"""Objects that are linked together: two different definitions of one name in two kernels are found."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from opmatrix.basics.errors import CompileError
from opmatrix.toolchain.find import find_toolchain
from opmatrix.toolchain.link import check_one_definition

pytestmark = pytest.mark.compile

KERNEL = """
#include <vector>
#include <algorithm>
{helper}
namespace {name} {{
float compute(float x) {{
  std::vector<float> all{{x, 1.0f, 2.0f}};
  std::sort(all.begin(), all.end());
  return scaled(x) + all[0];
}}
}}
"""


def compiled(folder: Path, name: str, helper: str) -> Path:
    source, made = folder / f"{name}.cc", folder / f"{name}.o"
    source.write_text(KERNEL.format(name=name, helper=helper))
    compiler = find_toolchain(os.environ).compiler
    subprocess.run([*compiler, "-std=c++20", "-O2", "-fPIC", "-c", str(source), "-o", str(made)], check=True)
    return made


def helper(body: str, before: str = "[[gnu::noinline]] inline") -> str:
    return f"float more(float); float less(float);\n{before} float scaled(float x) {{ {body} }}"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("return 2.5f * x;", "return 3.5f * x;"),  # the same instructions, another constant
        ("return 2.5f * x;", "return 2.5f * x + x;"),
        ("return more(x);", "return less(x);"),  # the same instructions, another function
    ],
)
def test_two_different_definitions_are_found(tmp_path: Path, first: str, second: str) -> None:
    objects = {"a": compiled(tmp_path, "a", helper(first)), "b": compiled(tmp_path, "b", helper(second))}
    with pytest.raises(
        CompileError, match=r"native/a/ and native/b/ both define '(scaled\(float\)|_Z6scaledf)', and not"
    ):
        check_one_definition(objects)


@pytest.mark.parametrize("before", ["[[gnu::noinline]] inline", "[[gnu::noinline]] static", "inline"])
def test_equal_and_separate_definitions_are_accepted(tmp_path: Path, before: str) -> None:
    same = helper("return 2.5f * x;", before)
    check_one_definition({"a": compiled(tmp_path, "a", same), "b": compiled(tmp_path, "b", same)})
    if "static" in before:
        other = helper("return 3.5f * x;", before)
        check_one_definition({"a": compiled(tmp_path, "a", same), "b": compiled(tmp_path, "b", other)})
