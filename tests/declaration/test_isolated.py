"""Any fault in the files of an operator ends in one message, and the other operators are read."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from opmatrix.basics.interrupts import interruptible
from opmatrix.basics.processes import children
from opmatrix.declaration import isolated
from opmatrix.declaration.isolated import read_operators
from opmatrix.declaration.load import load_operators
from opmatrix.project.paths import Paths
from opmatrix.spec import as_data
from tests.declaration.test_load import CASES, SPEC, project

ROOT = Path(__file__).parents[2]
OTHER = SPEC.replace("group_norm", "other").replace("mydomain", "other").replace("mygroupnorm", "Other")
ONLY = "while it was read. It only has to define values"
# Makes the first model's only input something else, at the end of cases.py.
WITH_INPUT = """
from dataclasses import replace
MODELS = (replace(MODELS[0], cases=(replace(MODELS[0].cases[0], inputs=MODELS[0].cases[0].inputs | {{"x": {0}}}),)),)
"""


def prepend(path: Path, code: str) -> None:
    path.write_text(f"{code}\n{path.read_text()}")


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    """A project of two operators: group_norm, which comes first, and `other`."""
    project(tmp_path, name="other", spec=OTHER)
    return project(tmp_path)


# What a file does before it never ends, in the project: its own working folder goes with it.
HANGS = "open(__file__.partition('/ops/')[0] + '/hangs', 'w').write(str(__import__('os').getpid()))\n"


@pytest.fixture(autouse=True)
def clock(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes only while a file of group_norm hangs: 50 s at each look, and none because the machine is busy."""
    monkeypatch.chdir(paths.root)
    now, writers = [0.0], []

    def hangs() -> bool:
        for fifo in paths.op("group_norm").glob("*.py"):
            if fifo.is_fifo():
                with suppress(OSError):  # nobody reads it
                    writers.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
                    return True
        with suppress(FileNotFoundError):
            return Path("/proc", Path("hangs").read_text() or "0").exists()
        return False

    def monotonic() -> float:
        now[0] += 50 * hangs()
        return now[0]

    monkeypatch.setattr(isolated, "time", SimpleNamespace(monotonic=monotonic))


def mistakes(paths: Paths, *, megabytes: float = 200) -> list[str]:
    """Return the mistakes of group_norm; the other operator is read, and no process is left."""
    before = children(os.getpid())
    found = read_operators(paths, seconds=300, megabytes=megabytes)
    assert [o.name for o in found.operators] == ["other"]
    assert children(os.getpid()) == before
    (name,) = found.failed
    assert name == "group_norm"
    return [*found.failed["group_norm"]]


@pytest.mark.parametrize("file", ["spec.py", "cases.py"])
@pytest.mark.parametrize(
    ("code", "expected"),
    [
        pytest.param("raise SystemExit", ":1: SystemExit", id="SystemExit"),
        pytest.param("raise KeyboardInterrupt('now')", ":1: KeyboardInterrupt: now", id="KeyboardInterrupt"),
        pytest.param("def f(): f()\nf()", ":1: RecursionError: maximum recursion depth exceeded", id="recursion"),
        pytest.param("[0] * 10**13", ":1: MemoryError", id="MemoryError"),
        pytest.param("x = " + "-" * 100_000 + "1", ":1: MemoryError", id="deep_source"),
        pytest.param(f"{HANGS}while True: pass", f": did not end within 300 s {ONLY}", id="endless"),
        pytest.param(f"{HANGS}import time; time.sleep(999)", f": did not end within 300 s {ONLY}", id="asleep"),
        pytest.param("x = []\nwhile True: x.append(bytearray(10**7))", f": took more than 200 MB of memory {ONLY}",
                     id="memory"),
        pytest.param("import ctypes; ctypes.string_at(0)", f": died of SIGSEGV {ONLY}", id="crash"),
        pytest.param("input()", ":1: EOFError: EOF when reading a line", id="input"),
        pytest.param("import os\nfor n in range(3, 99):\n  try: os.write(n, bytes(7) + b'\\1xyz')\n  except OSError: 0",
                     f": wrote into the pipe of opmatrix {ONLY}", id="pipe"),
        pytest.param("import os, pickle, struct\nclass C:\n  def __reduce__(self): return os._exit, (0,)\n"
                     "d = pickle.dumps(C())\nfor n in range(3, 99):\n"
                     "  try: os.write(n, struct.pack('>Q', len(d)) + d)\n  except OSError: 0",
                     f": wrote into the pipe of opmatrix {ONLY}", id="forged"),
        pytest.param("import os\nwhile True:\n  for n in range(3, 99):\n    try: os.write(n, b'\\xff' * 10**6)\n"
                     "    except OSError: 0", f": wrote into the pipe of opmatrix {ONLY}", id="flood"),
        pytest.param(f"{HANGS}import os, pickle, struct\nd = pickle.dumps('ops/group_norm/FILE')\n"
                     "d = struct.pack('>Q', len(d)) + d\n"
                     "while True:\n  for n in range(3, 99):\n    try: os.write(n, d * 1000)\n    except OSError: 0",
                     f": did not end within 300 s {ONLY}", id="forged_flood"),
        pytest.param("import os, pickle, struct\nd = pickle.dumps(5)\nfor n in range(3, 99):\n"
                     "  try: os.write(n, struct.pack('>Q', len(d)) + d)\n  except OSError: 0",
                     f": wrote into the pipe of opmatrix {ONLY}", id="no_result"),
        pytest.param("import os; os.kill(os.getpid(), 40)", f": died of signal 40 {ONLY}", id="unnamed_signal"),
        pytest.param("class E(Exception):\n  def __str__(self): raise E\nraise E",
                     ":3: E: its message cannot be made: E", id="no_message"),
        pytest.param("raise ValueError('\\x1b[31m' + 'y' * 10**6)", ":1: ValueError: \\x1b[31myyyy", id="long_message"),
    ],
)  # fmt: skip
def test_code_that_ends_hangs_or_takes_all(paths: Paths, file: str, code: str, expected: str) -> None:
    prepend(paths.op("group_norm") / file, code.replace("FILE", file))
    (found,) = mistakes(paths)
    assert found.startswith(f"ops/group_norm/{file}{expected}") and len(found) < 4100 and found.isprintable()


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("print('x' * 10**7)", id="prints"),
        pytest.param("import os, sys; sys.stderr.write('x' * 10**7); os.fork()", id="forks"),
        pytest.param("import subprocess; subprocess.Popen(['sleep', '60'])", id="leaves_a_process"),
    ],
)
def test_code_that_does_no_harm(paths: Paths, capfd: pytest.CaptureFixture[str], code: str) -> None:
    prepend(paths.spec("group_norm"), code)
    before = children(os.getpid())
    found = read_operators(paths)
    assert ([o.name for o in found.operators], found.failed) == (["group_norm", "other"], {})
    assert capfd.readouterr() == ("", "") and children(os.getpid()) == before


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("(b'x',)", "MODELS[0].cases[0].inputs: found {"),
        ("Values(values=(b'x',))", ".values[0]: found b'x', allowed: numbers, texts, tuples, dicts and classes of"),
        ("Values(values=(2**64,))", ".values[0]: found an int of 65 bits, allowed: one that int64 or uint64 can hold"),
        ("Values(values=(10**5000,))", ".values[0]: found an int of 16610 bits, allowed: one that int64 or uint64"),
        ("Values(values=('\\udce9',))", ".values[0]: found '\\udce9', allowed: text that UTF-8 can encode"),
        ("eval('Values(values=' + '(' * 90 + '1.0' + ',)' * 90 + ')')", ": tuples in tuples, more than 80 deep"),
        ("type('Mine', (Random,), {})(shape=(2, 4, 3))", "found a Mine, allowed: numbers, texts, tuples, dicts and"),
    ],
)
def test_a_value_that_no_key_can_hold(paths: Paths, value: str, expected: str) -> None:
    paths.cases("group_norm").write_text(CASES + WITH_INPUT.format(value))
    assert any(line.startswith("ops/group_norm") and expected in line for line in mistakes(paths))


def test_values_within_themselves_are_refused(paths: Paths) -> None:
    paths.cases("group_norm").write_text(f"{CASES}\nd = {{}}\nd['x'] = d\n" + WITH_INPUT.format("Random(shape=d)"))
    assert any("cannot be checked: RecursionError" in line or "deep" in line for line in mistakes(paths))


# Of a file, by what stands in its place: the target of a link, or something else.
NO_FILES: dict[str, tuple[str | Callable[[Path], object], str]] = {
    "loop": ("FILE", "cannot be read: Too many levels of symbolic"),
    "broken_link": ("nowhere", "missing; it defines"),
    "endless_file": ("/dev/zero", "took more than 200 MB of memory"),
    "pipe": (os.mkfifo, "did not end within 300 s"),
    "no_utf8": (lambda path: path.write_bytes(b"\xff"), ":1: SyntaxError: (unicode error)"),
}


@pytest.mark.parametrize("file", ["spec.py", "cases.py"])
@pytest.mark.parametrize("kind", NO_FILES)
def test_a_file_that_is_no_file(paths: Paths, file: str, kind: str) -> None:
    made, expected = NO_FILES[kind]
    path = paths.op("group_norm") / file
    path.unlink()
    if isinstance(made, str):
        path.symlink_to(made.replace("FILE", file))
    else:
        made(path)
    (found,) = mistakes(paths)
    assert found.startswith(f"ops/group_norm/{file}:") and expected in found


def test_a_reference_that_is_a_folder_and_a_folder_that_is_a_link_to_itself(paths: Paths) -> None:
    for file in ("reference.py", "lowering.py"):
        (paths.op("group_norm") / file).mkdir()
        wrong = f"ops/group_norm/{file}: found no file but a folder, a pipe or a broken link; replace it"
        assert mistakes(paths) == [wrong]
        (paths.op("group_norm") / file).rmdir()
    shutil.rmtree(paths.op("group_norm"))
    paths.op("group_norm").symlink_to("group_norm")
    assert "ops/group_norm/spec.py: cannot be read: Too many levels of symbolic links" in mistakes(paths)[0]


def test_what_arrives_is_what_was_declared() -> None:
    """Also `Model.around`: a step's key has the code of the function."""
    paths = Paths(ROOT / "tests/projects/existing")
    for folder in (Paths(ROOT), paths):
        here, there = load_operators(folder), read_operators(folder)
        assert there.failed == {} and [o.name for o in here] == [o.name for o in there.operators]
        for a, b in zip(here, there.operators, strict=True):
            assert as_data(a.spec) == as_data(b.spec) and as_data(a.models) == as_data(b.models)
            assert (a.handwritten_files, a.published) == (b.handwritten_files, b.published)


def test_a_number_of_numpy_arrives_as_a_plain_one(paths: Paths) -> None:
    paths.cases("group_norm").write_text(
        CASES + "from numpy import float64\nMODELS[0].attributes['epsilon'] = float64(0.5)"
    )
    found = next(o for o in read_operators(paths).operators if o.name == "group_norm")
    assert [*map(type, found.models[0].attributes.values())] == [float]


def test_ctrl_c_ends_the_reading(paths: Paths) -> None:
    waits = f"open('/proc/{os.getpid()}/stat').read().rpartition(')')[2].split()[0] == 'S'"
    press = f"import os, signal\nwhile not {waits}: 0\nos.kill({os.getpid()}, signal.SIGINT)\nwhile True: pass"
    paths.spec("group_norm").write_text(press)
    there = children(os.getpid())
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    try:
        with pytest.raises(KeyboardInterrupt), interruptible():  # in a callback of the fork, Python drops it
            read_operators(paths)
    finally:
        signal.signal(signal.SIGINT, before)
    assert children(os.getpid()) == there


LEAVE = "import os, subprocess, sys; p = subprocess.Popen(['sleep', '1000'], start_new_session={0}).pid\n"
NOTE = "open(__file__.partition('/ops/')[0] + '/left', 'a').write(f'{p} ')\n"
DAEMON = """import os
left = __file__.partition('/ops/')[0] + '/left'
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(left, 'a').write(f'{os.getpid()} ')
        for n in range(3): os.close(n)
        while True: __import__('time').sleep(100)
    os._exit(0)
os.wait()
while not os.path.exists(left) or not open(left).read(): __import__('time').sleep(0.01)
"""


# At 71b51ad8: what each started went on.
@pytest.mark.parametrize("file", ["spec.py", "cases.py"])
@pytest.mark.parametrize(
    ("code", "usable"),
    [
        pytest.param(LEAVE.format(True) + NOTE, True, id="a_session_of_its_own"),
        pytest.param(LEAVE.format("False, process_group=0") + NOTE, True, id="a_group_of_its_own"),
        pytest.param(DAEMON, True, id="a_daemon"),
        pytest.param(LEAVE.format(True) + NOTE + "os._exit(0)\n", False, id="and_exits"),
        pytest.param(LEAVE.format(True) + NOTE + "os.abort()\n", False, id="and_crashes"),
        pytest.param(DAEMON + "os._exit(0)\n", False, id="a_daemon_and_exits"),
        pytest.param(LEAVE.format(True) + NOTE + HANGS + "while True: 0\n", False, id="and_hangs"),
        pytest.param("".join((LEAVE.format(True), NOTE)) * 20, True, id="many"),
        pytest.param(LEAVE.format(True) + NOTE + "raise SystemExit\n", False, id="and_raises"),
    ],
)
def test_what_a_file_starts_ends_with_the_reading(paths: Paths, file: str, code: str, usable: bool) -> None:
    prepend(paths.op("group_norm") / file, code)
    if usable:
        assert read_operators(paths).failed == {}
    else:
        mistakes(paths, megabytes=4000)  # forks count as much as this process
    left = Path("left").read_text().split()
    assert left and not [process for process in left if Path("/proc", process).exists()]


def test_what_a_file_starts_ends_with_a_killed_command(paths: Paths) -> None:
    paths.spec("group_norm").write_text(LEAVE.format(True) + NOTE + HANGS + "while True: __import__('time').sleep(9)")
    process = os.fork()
    if process == 0:
        read_operators(paths)
        os._exit(0)
    while not Path("hangs").is_file() or not Path("hangs").read_text():
        time.sleep(0.01)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    while [one for one in (*Path("left").read_text().split(), Path("hangs").read_text()) if is_alive(one)]:
        time.sleep(0.01)


def is_alive(process: str) -> bool:
    with suppress(OSError):
        return Path("/proc", process, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


# At 71b51ad8: those that end were accepted; the three without an end were not stopped in 25 s.
@pytest.mark.parametrize("file", ["spec.py", "cases.py"])
@pytest.mark.parametrize(
    "code",
    [
        pytest.param("print('x' * 2 * 10**8)", id="one_text"),
        pytest.param("for _ in range(1000): print('x' * 10**6)", id="many_texts"),
        pytest.param("import sys\nsys.stderr.write('x' * 2 * 10**8)", id="stderr"),
        pytest.param("import os\nwhile os.write(1, b'x' * 10**6): 0", id="without_python"),
        pytest.param("import subprocess\nsubprocess.run(['yes'])", id="of_a_program"),
        pytest.param("try:\n  print('x' * 2 * 10**8)\nexcept OSError: 0", id="caught"),
    ],
)
def test_a_file_that_prints_without_end_is_named(paths: Paths, file: str, code: str) -> None:
    prepend(paths.op("group_norm") / file, code)
    assert mistakes(paths, megabytes=2000) == [f"ops/group_norm/{file}: printed more than 100 MB {ONLY}"]


def test_an_operator_at_which_a_child_died_is_read_once(paths: Paths) -> None:
    """By doit and by the steps that are forked from it, until its files change: it may hang."""
    log = paths.root / "log"
    count = f"open({str(log)!r}, 'a').write('read ')\n"
    paths.spec("group_norm").write_text(f"{count}{HANGS}while True: pass\n")
    died = [f"ops/group_norm/spec.py: did not end within 300 s {ONLY}"]
    assert mistakes(paths) == mistakes(paths) == died
    assert log.read_text() == "read "
    paths.cases("group_norm").write_text("raise KeyError\n")
    assert mistakes(paths) == died and log.read_text() == "read read ", "another file of it changed"
    paths.spec("group_norm").write_text(f"{count}{SPEC}")
    assert mistakes(paths) == ["ops/group_norm/cases.py:1: KeyError"] == mistakes(paths)
    assert log.read_text() == "read read read read ", "only a death is kept"


def test_operators_that_clash_fail_and_the_others_do_not(paths: Paths) -> None:
    project(paths.root, name="second", spec=SPEC.replace('name="group_norm"', 'name="second"'))
    found = read_operators(paths)
    assert [o.name for o in found.operators] == ["other"]
    assert found.failed["group_norm"] == found.failed["second"]
    assert found.failed["second"][0].endswith("'mydomain::mygroupnorm' is taken by ops/group_norm/spec.py; rename one")


@pytest.mark.parametrize(
    ("spec", "used", "expected"),
    [
        ("1 / 0", "other", "'other' cannot be used: ops/other/spec.py:1: ZeroDivisionError: division by zero"),
        (OTHER, "othr", "no operator 'othr' in ops/; did you mean 'other'?"),
        (OTHER, "group_norm", "'group_norm' has no node of its own, because it uses others"),
    ],
)
def test_an_operator_that_uses_what_cannot_be_used(paths: Paths, spec: str, used: str, expected: str) -> None:
    using = SPEC.replace("cpu_levels=True,", "").replace("tolerances=", f"uses=({used!r},), tolerances=", 1)
    paths.spec("group_norm").write_text(using)
    paths.spec("other").write_text(spec)
    assert f"ops/group_norm/spec.py: uses: {expected}" in read_operators(paths).failed["group_norm"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ops/group_norm/refernce.py", "did you mean 'reference.py'?"),
        ("ops/group_norm/kernel.h", "; C++ belongs to native/group_norm/"),
        ("native/group_norm/torch.cpp", "did you mean 'torch.cc'?"),
    ],
)
def test_a_file_that_nothing_reads(paths: Paths, name: str, expected: str) -> None:
    (paths.root / name).touch()
    (found,) = mistakes(paths)
    assert found.startswith(f"{name}: nothing reads it, allowed: ") and found.endswith(expected)


def test_files_that_somebody_reads(paths: Paths) -> None:
    for name in ("README.md", "notes.txt", "a.png", "LICENSE", "test_it.py", "conftest.py", "__init__.py", "bench.py",
                 "tables.py", "mutants.toml", ".#spec.py"):  # fmt: skip
        (paths.op("group_norm") / name).touch()
    (paths.reference("group_norm")).write_text("from ops.group_norm.tables import X")
    (paths.kernel("group_norm")).write_text('#include "more.h"')
    paths.handwritten("group_norm", "more.h").touch()
    assert read_operators(paths).failed == {}


@pytest.mark.parametrize("where", ["ops/group_norm", "native/group_norm"])
def test_a_file_name_that_is_not_utf8(paths: Paths, where: str) -> None:
    (paths.root / where / os.fsdecode(b"caf\xe9.txt")).touch()
    assert mistakes(paths) == [f"{where}/caf\\udce9.txt: its name is not UTF-8, or has a control character; rename it"]


@pytest.mark.parametrize(
    ("name", "step"),
    [(b"gro\xfcp", "gro?p"), (b"a=b", "a?b"), (b"two words", "two?words"), (b"g" * 200, "g" * 97 + "...")],
)
def test_a_folder_name_that_no_operator_can_have(paths: Paths, name: bytes, step: str) -> None:
    paths.op("group_norm").rename(paths.ops / os.fsdecode(name))
    found = read_operators(paths)
    assert ([o.name for o in found.operators], [*found.failed]) == (["other"], [step])
    (line,) = found.failed[step]
    allowed = "allowed: at most 100 lower-case letters, digits and _, a letter first. Rename it"
    assert line.isprintable() and allowed in line


WRITES = "open('left', 'w').close(); open('{marker}', 'w').close(); assert open('ops/other/spec.py').read()\n"
# At 71b51ad8: the file stayed in the project, each time.
ENDS = {
    "at the end": "",
    "by an exception": "raise RuntimeError\n",
    "by a crash": "import os; os.kill(os.getpid(), 11)\n",
    "by an exit": "import os; os._exit(0)\n",
    "by the time limit": f"{HANGS}import time; time.sleep(1000)\n",
    "with a process left": "import subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True)\n",
}


@pytest.mark.parametrize("file", ["spec", "cases"])
@pytest.mark.parametrize("how", ENDS)
def test_what_a_file_writes_by_a_relative_path_goes(how: str, file: str, paths: Paths) -> None:
    marker, path = paths.root / "written", getattr(paths, file)("group_norm")
    path.write_text(WRITES.format(marker=marker) + ENDS[how] + path.read_text())
    read_operators(paths)
    assert marker.exists()
    assert {p.name for p in paths.root.iterdir()} - {"hangs"} == {"build", "native", "ops", "written"}
    assert [*paths.work("").iterdir()] == []
