"""Faults that only a compiler, torch or ONNX Runtime can show."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.incremental.conftest import hear_interrupts, processes
from tests.incremental.real import KERNEL, RealProject, expand
from tests.support.projects import Project as Copied

pytestmark = [pytest.mark.incremental, pytest.mark.compile, pytest.mark.torch, pytest.mark.ort]

PLANTED = "#pragma once\n#error planted\n"


@pytest.mark.parametrize("place", ["native/group_norm/opmatrix/check.h", "native/opmatrix/check.h"])
def test_a_new_header_earlier_in_the_include_path(real: RealProject, place: str) -> None:
    """The first comes before native/include/opmatrix/check.h, the second after it and is never read."""
    assert real.run().returncode == 0
    header = real.root / place
    header.parent.mkdir()
    header.write_text(PLANTED)
    try:
        done = real.run("compile")
    finally:
        shutil.rmtree(header.parent)
    in_front = place.startswith("native/group_norm/")
    assert (done.returncode == 1 and "#error planted" in done.stdout) == in_front
    assert real.run("compile").returncode == 0


def test_a_header_of_onnx_runtime_is_edited(real: RealProject, tmp_path: Path) -> None:
    """They are outside the checkout, where the step sdk found them."""
    assert real.run().returncode == 0
    found = Path(json.loads(real.layout.ort_headers.read_text())["path"])
    folder = shutil.copytree(found, tmp_path / "headers")
    environment = {"OPMATRIX_ORT_INCLUDE": str(folder)}
    assert real.run("compile", **environment).returncode == 0
    with (folder / "onnxruntime_c_api.h").open("a") as header:
        header.write("// more\n")
    assert real.ran(real.run("compile", **environment)) == {"headers", "compile"}


@pytest.fixture
def with_vendor_header(real: RealProject, tmp_path: Path) -> Iterator[Path]:
    """The kernel includes a header of the compiler's include path, outside the project; the project is shared."""
    kernel = (real.root / KERNEL).read_text()
    header = tmp_path / "vendor.h"
    header.write_text("inline constexpr double kVendor = 1;\n")
    assert real.run("compile").returncode == 0
    real.replace(KERNEL, "#pragma once\n", "#pragma once\n#include <vendor.h>\n")
    real.replace(KERNEL, "return {mean, offset", "return {mean * kVendor, offset")
    yield header
    (real.root / KERNEL).write_text(kernel)


def test_a_header_of_the_system_is_replaced(real: RealProject, with_vendor_header: Path) -> None:
    """As a package upgrade does it: with the time stamp of the day on which the package was built."""
    header = with_vendor_header
    environment = {"CPATH": str(header.parent)}
    assert "compile" in real.ran(real.run("compile", **environment))
    assert real.ran(real.run("compile", **environment)) == set()
    before = real.layout.ort_library("group_norm").read_bytes()
    header.write_text("inline constexpr double kVendor = 2;\n")
    os.utime(header, (1, 1))
    assert f"compile:group_norm: {header} " in real.run("why", "compile", **environment).stdout
    assert real.ran(real.run("compile", **environment)) == {"compile"}
    assert real.layout.ort_library("group_norm").read_bytes() != before
    assert real.ran(real.run("compile", **environment)) == set()


def test_a_variable_that_the_compiler_reads(real: RealProject, tmp_path: Path) -> None:
    assert real.run("compile").returncode == 0
    assert "compile" in real.would_run(CPATH=str(tmp_path)) and real.would_run() == set()


def test_other_content_of_a_kernel_with_an_older_time_stamp(real: RealProject) -> None:
    assert real.run().returncode == 0
    before = real.layout.ort_library("group_norm").read_bytes()
    real.replace(KERNEL, "#pragma once\n", "#pragma once\ninline const volatile int older = 1;\n")
    os.utime(real.root / KERNEL, (1, 1))
    assert "compile" in real.ran(real.run("compile"))
    assert real.layout.ort_library("group_norm").read_bytes() != before


def test_a_path_with_spaces_and_umlauts(tmp_path: Path, real: RealProject) -> None:
    """Also with a dollar and a comma; the libraries equal those of any other folder."""
    assert real.run().returncode == 0
    odd = Copied.copy(tmp_path / "mein Ördner, für $x")
    for part in ("native", "ops", "pipeline"):
        shutil.rmtree(odd.root / part, ignore_errors=True)
        shutil.copytree(real.root / part, odd.root / part)
    shutil.copy(real.root / "LICENSE", odd.root)
    done = odd.doit("compile", "opsets=18")
    assert done.returncode == 0, done.stdout + done.stderr
    assert odd.layout.ort_library("group_norm").read_bytes() == real.layout.ort_library("group_norm").read_bytes()
    assert odd.doit("compile", "opsets=18").stdout.endswith("all up to date\n")


def test_killed_at_random_moments_of_real_stages(real: RealProject) -> None:
    """While it compiles, imports torch, exports or verifies: the next run finishes the rest."""
    dice = random.Random(0)
    assert real.run().returncode == 0
    shutil.rmtree(real.root / "build/export")
    real.replace(KERNEL, "#pragma once\n", "#pragma once\ninline const volatile int killed = 1;\n")
    finished: set[str] = set()
    for number in (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        process = subprocess.Popen(
            [sys.executable, "-m", "doit", "-n", "2", "opsets=18"],
            cwd=real.root, env=os.environ | {"PYTHONPATH": str(real.root / "pipeline")},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=hear_interrupts,
        )  # fmt: skip
        time.sleep(dice.uniform(0.5, 3))
        process.send_signal(number)
        output, _ = process.communicate(timeout=20)
        began = time.monotonic()
        while (left := processes(real.root)) and time.monotonic() - began < 3:
            time.sleep(0.01)
        assert not left, f"after {signal.Signals(number).name}: {left}"
        ran = real.ran(subprocess.CompletedProcess([], 0, output))
        assert not ran & finished, "what had finished was repeated"
        finished |= ran
    done = real.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert not real.ran(done) & finished
    assert expand("compile, export custom, export decomposed, verify custom") <= finished | real.ran(done)
    assert real.run().stdout.endswith("all up to date\n")
