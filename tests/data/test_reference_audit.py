"""A reference that runs what it should judge, or returns another kind of numbers, is refused."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.basics.errors import DataError
from opmatrix.data import reference_audit, write_data
from opmatrix.data.reference import Reference
from opmatrix.declaration.load import Operator
from opmatrix.judge import cases
from opmatrix.project.paths import Paths
from opmatrix.records.verdict import read_check
from opmatrix.search import draw_inputs
from tests.support import double
from tests.support.projects import with_reference, write_files

LIBRARY = "build/compile/double/libdouble_ort.so"
KERNEL = "native/double/kernel.h"


def project(root: Path, reference: str) -> Paths:
    """Make a project with a reference that may read {root}; files that it must not open have no content that counts."""
    paths = with_reference(root, "double", reference.replace("{root}", str(root)))
    write_files(root, {LIBRARY: "no library", KERNEL: "// no kernel\n"})
    return paths


def message(root: Path, reference: str) -> str:
    """Return what the stage `data` says of a reference."""
    paths = project(root, reference)
    with pytest.raises(DataError) as raised:
        write_data.run(paths, double.OPERATOR)
    return str(raised.value)


@pytest.mark.parametrize("module", reference_audit.REFUSED)
def test_an_import_of_a_runtime(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, module, raising=False)  # as in the step, which has imported neither
    found = message(tmp_path, f"import {module}\n{double.REFERENCE}")
    assert f"ops/double/reference.py:1: NotIndependentError: imports {module}: it runs the " in found
    other = ', or with reference="torch" in spec.py' if module == "torch" else ""
    assert found.endswith(f"Write the reference in NumPy, from the definition{other}")
    assert module not in sys.modules


BODY = "def double(x, *, factor):\n    {}\n    return x * factor\n"
OPENS = {
    "ctypes": ("import ctypes; ctypes.CDLL({!r})", "loads"),
    "numpy": ("import numpy; numpy.ctypeslib.load_library({!r}, '/')", "loads"),
    "a file": ("open({!r}, 'rb').read()", "opens"),
}


@pytest.mark.parametrize("way", OPENS)
def test_it_opens_a_library_of_this_build(way: str, tmp_path: Path) -> None:
    statement, verb = OPENS[way]
    found = message(tmp_path, BODY.format(statement.format(str(tmp_path / LIBRARY))))
    assert f"ops/double/reference.py:2: {verb} {LIBRARY}, which this build made, so it agrees with any fault. " in found


# What a reference does, and what the message says of it. Each answers as the kernel would, if there were one.
# At 71b51ad8: each was accepted, but "a library in a map" and "a copy of the library" were refused.
RUNS_IT: dict[str, tuple[str, str]] = {
    "a compiler in subprocess": (
        "import subprocess; subprocess.run(['c++', '-shared', '{root}/native/double/kernel.h'], capture_output=True)",
        "starts a process (c++ -shared ",
    ),
    "os.system": ("import os; os.system('true {root}/native/double/kernel.h')", "starts a process ('true "),
    "os.popen": ("import os; os.popen('true').read()", "starts a process (/bin/sh -c true)"),
    "os.posix_spawn": (
        "import os; os.waitpid(os.posix_spawn('/bin/true', ['true'], {}), 0)",
        "starts a process (/bin/true)",
    ),
    "os.fork": ("import os; os.fork() or os._exit(0)", "starts a process (os.fork)"),
    "pty": ("import os, pty; pty.fork()[0] or os._exit(0)", "starts a process (os.forkpty)"),
    "a fork of multiprocessing": (
        "import multiprocessing; multiprocessing.get_context('fork').Process(target=print).start()",
        "starts a process (os.fork)",
    ),
    "system() of C": ("import ctypes; ctypes.CDLL(None).system(b'true')", "calls system() of C"),
    "dlopen() of C": ("import ctypes; ctypes.CDLL(None).dlopen(b'/a.so', 2)", "calls dlopen() of C"),
    "the kernel's text": ("open('{root}/native/double/kernel.h').read()", "opens native/double/kernel.h, which is "),
    "the kernel's text by os.open": (
        "import os; os.open('{root}/native/double/kernel.h', os.O_RDONLY)",
        "opens native/double/kernel.h, which is the code under test, so it agrees with any fault. ",
    ),
    "the kernel's text by pathlib": (
        "import pathlib; pathlib.Path('{root}/ops/../native/double/kernel.h').read_bytes()",
        "opens native/double/kernel.h, which is the code under test",
    ),
    "the kernel's text in another folder": (
        "import os; os.chdir('{root}/native'); open('double/kernel.h')",
        "opens native/double/kernel.h, which is the code under test",
    ),
    "a folder's descriptor": (
        "import os; folder = os.open('{root}', os.O_RDONLY); os.open('native/double/kernel.h', 0, dir_fd=folder)",
        "opens native/double/kernel.h, which is the code under test",
    ),
    "a library in a map": (
        "import numpy; numpy.memmap('{root}/build/compile/double/libdouble_ort.so')",
        f"opens {LIBRARY}, which this build made",
    ),
    "a copy of the library": (
        "import shutil; shutil.copy('{root}/build/compile/double/libdouble_ort.so', '/dev/null')",
        f"opens {LIBRARY}, which this build made",
    ),
    "a link to the library": (
        "import os; os.link('{root}/build/compile/double/libdouble_ort.so', '{root}/mine.so')",
        f"opens {LIBRARY}, which this build made",
    ),
    "a library of its own": (
        "import ctypes; ctypes.CDLL('{root}/mine.so')",
        "mine.so, allowed: libraries of the system and of installed packages. ",
    ),
    "an extension module of its own": (
        "import importlib.util as u; u.module_from_spec(u.spec_from_file_location('mine', '{root}/mine.so'))",
        "mine.so, allowed: libraries of the system and of installed packages. ",
    ),
    "a thread": (
        "import ctypes, threading; t = threading.Thread(target=lambda: ctypes.CDLL('{root}/mine.so'))\n"
        "    threading.excepthook = lambda *_: None; t.start(); t.join()",
        "mine.so, allowed: libraries of the system and of installed packages. ",
    ),
    "a thread of a pool": (
        "import concurrent.futures as c; c.ThreadPoolExecutor().submit(open, '{root}/native/double/kernel.h').result()",
        "opens native/double/kernel.h, which is the code under test",
    ),
    "a thread of C": (
        "import _thread, os; ended = _thread.allocate_lock(); ended.acquire()\n    def ask():\n"
        "        try: os.system('true')\n        finally: ended.release()\n"
        "    _thread.start_new_thread(ask, ()); ended.acquire()",
        "starts a process (true)",
    ),
    "a socket": (
        "import socket; socket.socket(socket.AF_UNIX).connect_ex('{root}/asked')",
        "asks another process (socket.connect), which may run the kernel. ",
    ),
    "an address of the web": (
        "import urllib.request; urllib.request.urlopen('http://127.0.0.1:9/')",
        "asks another process (socket.connect), which may run the kernel. ",
    ),
    "a named pipe": (
        "import os; os.mkfifo('{root}/asked'); os.open('{root}/asked', os.O_RDWR)",
        "asked, a pipe to another process, which may run the kernel. ",
    ),
}  # fmt: skip
WHAT_TO_DO = 'Write the reference in NumPy, from the definition, or declare dependent_reference="why" in spec.py, which'


def runs_it(way: str) -> str:
    """Return a reference that does this and is right."""
    statement = RUNS_IT[way][0].replace("\n", "\n    ")
    return BODY.replace("{}", f"try:\n        {statement}\n    except Exception: pass")


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of files and sockets that stay open
@pytest.mark.parametrize("way", RUNS_IT)
def test_it_runs_the_kernel(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = message(tmp_path, runs_it(way))
    assert found.startswith("ops/double/reference.py"), found
    assert RUNS_IT[way][1] in found
    assert WHAT_TO_DO in found
    gc.collect()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")  # of a fork among threads
@pytest.mark.parametrize("way", RUNS_IT)
def test_without_the_audit_it_would_be_accepted(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So what each of them does is all that is wrong with it."""
    monkeypatch.chdir(tmp_path)
    paths = project(tmp_path, runs_it(way))
    write_data.run(paths, Operator(spec=replace(double.SPEC, dependent_reference="a test"), models=(double.DYNAMIC,)))
    assert paths.data_manifest("double").is_file()
    gc.collect()
    for dropped in [*subprocess._active]:  # while its process ran; another test would get the warning
        dropped.wait()
    subprocess._cleanup()
    gc.collect()


def test_an_installed_copy_of_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a wheel that `doit dist` made: what is loaded from a package is a library of this build."""
    installed = tmp_path.with_name(f"{tmp_path.name}_packages") / "my_ops/libmy_ops.so"
    write_files(installed.parent, {installed.name: "no library"})
    monkeypatch.setattr(reference_audit, "_python_folders", lambda: (installed.parents[1],))
    found = message(tmp_path, BODY.format(f"import ctypes; ctypes.CDLL({str(installed)!r})"))
    assert f"loads {installed}, a copy of {LIBRARY}, which this build made, so it agrees with any fault. " in found


def test_it_starts_a_process_when_it_is_imported(tmp_path: Path) -> None:
    found = message(tmp_path, f"import os\nos.system('true')\n{double.REFERENCE}")
    assert "ops/double/reference.py:2: " in found
    assert "starts a process (true), which may run the kernel. " in found


def test_a_thread_of_its_import_works_between_its_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread opens the library after the import, while no function of the reference is in any stack."""
    go, done = threading.Event(), threading.Event()
    monkeypatch.setattr("builtins.events", (go, done), raising=False)
    opens = f"go, done = events\ngo.wait()\nopen({str(tmp_path / LIBRARY)!r}).close()\ndone.set()"
    paths = project(
        tmp_path, f"import threading\nthreading.Thread(target=exec, args=({opens!r},)).start()\n{double.REFERENCE}"
    )
    loaded = Reference(paths, double.SPEC)
    go.set()
    done.wait()
    with pytest.raises(DataError, match=r"ops/double/reference\.py: opens build/compile/double"):
        loaded.require_independent()


@pytest.mark.parametrize("how", ["import asker", "import importlib; asker = importlib.import_module('asker')"])
def test_a_module_that_it_uses(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "asker", raising=False)
    write_files(
        tmp_path, {"asker.py": "import os\ndef double(x, *, factor):\n    os.system('true')\n    return x * 2\n"}
    )
    found = message(tmp_path, f"{how}\ndouble = asker.double\n")
    monkeypatch.delitem(sys.modules, "asker")
    assert "ops/double/reference.py, in asker.py:3: starts a process (true)" in found


ALLOWED = {
    "a library of the system": "import ctypes; ctypes.CDLL('libm.so.6').cos",
    "a library that Python finds": "import ctypes, ctypes.util; ctypes.CDLL(ctypes.util.find_library('m'))",
    "a module of NumPy that is loaded late": "import numpy.fft; numpy.fft.fft([1.0])",
    "threads of its own": "import concurrent.futures as c; c.ThreadPoolExecutor(2).submit(abs, -1).result()",
    "a table next to it": "import pathlib; pathlib.Path(__file__).with_name('table.txt').write_text('1')",
    "a temporary file": "import tempfile; tempfile.TemporaryFile().close()",
    "a pair of sockets": "import socket; [one.close() for one in socket.socketpair()]",
}


@pytest.mark.parametrize("way", ALLOWED)
def test_what_a_reference_may_use(way: str, tmp_path: Path) -> None:
    paths = project(tmp_path, BODY.format(ALLOWED[way]))
    write_data.run(paths, double.OPERATOR)


@pytest.mark.parametrize("stage", [write_data, cases, draw_inputs], ids=lambda stage: stage.__name__.rpartition(".")[2])
def test_each_stage_that_keeps_what_it_computes(stage: object, tmp_path: Path) -> None:
    paths = with_reference(tmp_path, "double", double.REFERENCE)
    write_data.run(paths, double.OPERATOR)
    paths.reference("double").write_text(BODY.format("try: import os; os.system('true')\n    except Exception: pass"))
    with pytest.raises(DataError, match="starts a process"):
        stage.run(paths, double.OPERATOR)  # type: ignore[attr-defined]  # a module


def test_a_declared_one_is_shown_in_the_record_of_its_cases(tmp_path: Path) -> None:
    spec = replace(double.SPEC, dependent_reference="calls the original library")
    operator = Operator(spec=spec, models=(double.DYNAMIC,))
    paths = project(
        tmp_path, BODY.format("import os; os.system('true'); open('{root}/native/double/kernel.h').close()")
    )
    write_data.run(paths, operator)
    with pytest.raises(DataError, match=r"cases\.py"):  # the test has too few
        cases.run(paths, operator)
    record = read_check(paths.cases_record("double"))
    assert record.weak == ("reference: not independent: calls the original library",)
    assert '"reference": "numpy, not independent"' in paths.data_manifest("double").read_text()


def test_only_code_of_the_reference_is_refused_what_this_build_made(tmp_path: Path) -> None:
    paths = with_reference(tmp_path, "double", double.REFERENCE)
    write_data.run(paths, double.OPERATOR)
    assert paths.data_manifest("double").read_text()


def test_it_catches_the_exception(tmp_path: Path) -> None:
    statement = f"try: open({str(tmp_path / LIBRARY)!r})\n    except Exception: pass"
    assert f"ops/double/reference.py:2: opens {LIBRARY}, which" in message(tmp_path, BODY.format(statement))


DTYPES = {
    "int64": "np.rint(x).astype(np.int64)",
    "bool": "x > 0",
    "float16": "x.astype(np.float16)",
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_another_kind_or_a_narrower_dtype_than_declared(dtype: str, tmp_path: Path) -> None:
    body = f"with np.errstate(all='ignore'):\n        return {DTYPES[dtype]}"
    reference = f"import numpy as np\ndef double(x, *, factor):\n    {body}\n"
    assert f"output 'y' is {dtype}, declared: float32. Return that, or a wider dtype of the same kind" in message(
        tmp_path, reference
    )


def test_a_wider_float_is_rounded(tmp_path: Path) -> None:
    paths = with_reference(
        tmp_path,
        "double",
        "import numpy as np\ndef double(x, *, factor):\n    return x.astype(np.longdouble) * factor\n",
    )
    write_data.run(paths, double.OPERATOR)
