"""What is said where a compiler has no ThreadSanitizer or it does not run, and what is kept of its report. The file of
calls for ThreadSanitizer: what it contains, in which order, and what is too large for it. That the C++ program reads
what is written here is tested in tests/operators/test_races.py.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.basics.errors import SanitizeError
from opmatrix.data.reference import Reference
from opmatrix.ort_checks import races, thread_sanitizer
from opmatrix.ort_checks.thread_sanitizer import UnsupportedError, probe, report, run_program
from opmatrix.search.drawn import DrawnCase, evaluate
from tests.support.double import DYNAMIC, OPERATOR, SPEC, project


def script(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


def compiler(folder: Path, *program: str) -> list[str]:
    """Return a compiler whose programs are a script; the last of its arguments is the program's path."""
    source = script(folder / "source", *program)
    return [str(script(folder / "c++", "for last; do :; done", f'cp "{source}" "$last"'))]


def test_a_compiler_without_it(tmp_path: Path) -> None:
    missing = script(tmp_path / "c++", "echo '/usr/bin/ld: cannot find -ltsan' >&2; exit 1")
    with pytest.raises(
        UnsupportedError, match=r"c\+\+ has no ThreadSanitizer: /usr/bin/ld: cannot find -ltsan. Install"
    ):
        probe([str(missing)], tmp_path)


MAPPING = 'if [ -z "$FIXED" ]; then echo "FATAL: ThreadSanitizer: unexpected memory mapping 0x1-0x2"; exit 66; fi'


def test_a_program_that_runs(tmp_path: Path) -> None:
    assert probe(compiler(tmp_path, "exit 0"), tmp_path) == []


def test_random_addresses_that_it_does_not_expect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program runs without random addresses, where setarch is there and is allowed."""
    bad = compiler(tmp_path, MAPPING)
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    setarch = script(bin_folder / "setarch", "shift", 'FIXED=1 exec "$@"')
    monkeypatch.setenv("PATH", str(bin_folder), prepend=":")
    assert probe(bad, tmp_path) == [str(setarch), "-R"]
    script(setarch, "echo setarch: Operation not permitted; exit 1")
    with pytest.raises(UnsupportedError, match=r"unexpected memory mapping 0x1-0x2. Where .* vm.mmap_rnd_bits=28, or"):
        probe(bad, tmp_path)


REPORT = """\
==================
WARNING: ThreadSanitizer: data race (pid=1)
  Write of size 4 at 0x1 by thread T2:
    #0 void opmatrix::twice::twice<float>() native/twice/kernel.h:14 (races+0x1)
    #1 run<float> build/sanitize/twice/races/races.cc:13 (races+0x1)
    #2 opmatrix::race_driver::Kernel::run(opmatrix::race_driver::Call const&) const native/binding/race_driver.h:255
    #3 std::thread::_Invoker<void>::operator()() /usr/include/c++/12/bits/std_thread.h:259 (races+0x1)
    #4 <null> <null> (libstdc++.so.6+0x1)

  Previous write of size 4 at 0x1 by thread T1:
    #0 void opmatrix::twice::twice<float>() native/twice/kernel.h:14 (races+0x1)

  Thread T2 (tid=3, running) created by main thread at:
    #0 pthread_create

SUMMARY: ThreadSanitizer: data race native/twice/kernel.h:14 in twice
==================
Call: plain, in 4 threads
"""


def test_a_report_keeps_both_stacks_and_the_call() -> None:
    lines = report(f"noise\n{REPORT}").splitlines()
    assert lines[0] == "WARNING: ThreadSanitizer: data race (pid=1)"
    assert sum("kernel.h:14 (" in line for line in lines) == 2 and len(lines) == 9
    assert lines[-2:] == [
        "SUMMARY: ThreadSanitizer: data race native/twice/kernel.h:14 in twice",
        "Call: plain, in 4 threads",
    ]


def test_a_program_that_fails(tmp_path: Path) -> None:
    with pytest.raises(SanitizeError, match="nothing to say\nit ended with 3"):
        run_program([sys.executable, "-c", "print('nothing to say'); raise SystemExit(3)"])
    with pytest.raises(SanitizeError, match="it died of SIGKILL"):
        run_program([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    said = run_program([sys.executable, "-c", "import os; print(1); print(os.environ['TSAN_OPTIONS'])"])
    assert said == thread_sanitizer.OPTIONS["TSAN_OPTIONS"]


def calls(root: Path) -> list[DrawnCase]:
    paths = project(root)
    drawn = evaluate(SPEC, replace(DYNAMIC, name="drawn", cases=DYNAMIC.cases[:1]), Reference(paths, SPEC))
    refused = replace(drawn, expected=None, refusal="no")
    return [*races.stored_calls(OPERATOR, [drawn, refused], Reference(paths, SPEC))]


def test_cases_drawn_inputs_and_a_larger_one(tmp_path: Path) -> None:
    found = calls(tmp_path)
    assert [call.model.name for call in found] == ["drawn", "plain", "special", "empty", "large", "large (repeated)"]
    assert found[-1].arrays[0].size >= 2 * found[-2].arrays[0].size  # as often as the time of the search allows


def test_an_unsupported_model_has_no_calls(tmp_path: Path) -> None:
    operator = replace(OPERATOR, models=(replace(DYNAMIC, unsupported="nothing runs it"),))
    assert [*races.stored_calls(operator, [], Reference(project(tmp_path), SPEC))] == []


def test_one_call_in_the_file(tmp_path: Path) -> None:
    call = replace(calls(tmp_path)[0], model=replace(DYNAMIC, name="one", types={"T": "float64"}))
    call = replace(
        call, arrays=[a.astype("float64") for a in call.arrays], expected=(call.arrays[0].astype("float64"),)
    )
    assert races.write_calls(tmp_path / "calls", SPEC, [call]) == []
    shape = struct.pack("=3q", 2, 2, 3)
    x = call.arrays[0].tobytes()
    assert (tmp_path / "calls").read_bytes() == b"".join([
        struct.pack("=2q", 1, 3), b"one", struct.pack("=q", 1),  # the second dtype
        struct.pack("=2q", 1, 1), shape, struct.pack("=q", 48), x, struct.pack("=q", 0),  # one input of one tensor
        struct.pack("=3qf", 1, 0, 4, 2.0),  # factor, without axes
        struct.pack("=q", 1), shape,
        struct.pack("=q", races.END),
    ])  # fmt: skip


def test_the_largest_are_left_out_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(races, "MOST_BYTES", 100_000)
    assert races.write_calls(tmp_path / "calls", SPEC, calls(tmp_path)) == ["large (repeated)"]
    assert (tmp_path / "calls").read_bytes()[:8] == struct.pack("=q", 5)
