"""`doit doctor`: each test plants one thing that is broken, and reads the finding and its remedy."""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from opmatrix.basics.finding import Finding
from opmatrix.commands import doctor, doctor_project
from opmatrix.commands.main import main
from opmatrix.engine.lock import hold
from opmatrix.environments import bootstrap, pip_install
from opmatrix.environments.pip_install import VenvPaths
from opmatrix.project.paths import Paths
from opmatrix.scaffold import new_project
from opmatrix.toolchain import ort_headers
from tests.incremental.conftest import wait_for

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Paths:
    """A new project, which is the current folder."""
    folder = tmp_path / "my_ops"
    new_project.write(folder, new_project.render("my_ops"))
    monkeypatch.chdir(folder)
    return Paths(folder)


def texts(found: Iterable[Finding], mark: str) -> str:
    """Return the findings with one mark, each with its remedy, as lines."""
    return "\n".join(f"{one.question}: {one.text} -> {one.remedy}" for one in found if one.mark == mark)


def found_by(check: str, *arguments: Mapping[str, str]) -> list[Finding]:
    """Return what a check of the machine finds, also as the error that ends it."""
    return [*doctor.findings(check, getattr(doctor, check)(*arguments))]


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


# The system and Python.


def test_a_glibc_or_a_python_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.17"))
    (found,) = found_by("system")
    assert found.mark == "wrong" and "needs glibc 2.28 or newer, and this system has glibc 2.17" in found.text
    monkeypatch.setattr(sys, "version_info", (3, 10, 9, "final", 0))
    assert "allowed: CPython 3.11 or newer -> Install one" in texts(doctor.python(), "wrong")
    monkeypatch.setattr(sys, "version_info", (3, 15, 0, "final", 0))
    assert not texts(doctor.python(), "wrong")


# The compiler, ninja and headers.


ANOTHER = "Set CXX to a C++ compiler, or unset it to have g++ or clang++ found."


@pytest.mark.parametrize(
    ("check", "environ", "text", "remedy"),
    [
        ("compiler", {"PATH": "/"}, "no C++ compiler (g++ or clang++) on PATH '/'",
         "Install one (Debian: apt install g++), or set CXX to its path."),
        ("compiler", {"PATH": "/", "CXX": "/nonesuch/g++"},
         "CXX is '/nonesuch/g++', and '/nonesuch/g++' is not a program on PATH '/'", ANOTHER),
        ("compiler", {"CXX": "g++ '"}, 'CXX is "g++ \'", which is not a command: No closing quotation', ANOTHER),
        ("ninja", {"PATH": "", "NINJA": "/nonesuch/ninja"}, "NINJA is '/nonesuch/ninja', which is not a program",
         "Set it to ninja's path, or unset it."),
        ("headers", {"OPMATRIX_ORT_INCLUDE": "/"},
         "OPMATRIX_ORT_INCLUDE is '/', which contains no usable onnxruntime_c_api.h", "Set it to the folder that does"),
    ],
)  # fmt: skip
def test_a_tool_that_is_missing(check: str, environ: dict[str, str], text: str, remedy: str) -> None:
    (found,) = found_by(check, {"PATH": os.environ["PATH"], **environ})
    assert (found.mark, found.text) == ("wrong", text) and found.remedy.startswith(remedy)


def test_a_ninja_that_does_not_run_and_headers_that_are_there(tmp_path: Path) -> None:
    broken = program(tmp_path / "ninja", "echo 'Illegal instruction'; exit 132")
    (found,) = found_by("ninja", {"PATH": "", "NINJA": str(broken)})
    assert (found.mark, found.text) == ("wrong", f"{broken} does not run: Illegal instruction")
    (found,) = found_by("headers", {})
    assert (found.mark, found.text) == ("ok", f"ONNX Runtime {ort_headers.VERSION}, {ort_headers.INCLUDED}")


@pytest.mark.compile
def test_a_compiler_the_variables_that_it_reads_and_one_without_the_standard_library() -> None:
    found = found_by("compiler", {**os.environ, "CPATH": "/opt/include"})
    assert texts(found, "wrong") == ""
    assert re.search(r"compiler: .*\+\+ .* compiles and links C\+\+20", texts(found, "ok"))
    assert "reads CPATH=/opt/include" in texts(found, "note")
    without = texts(found_by("compiler", {**os.environ, "CXX": "g++ -nostdinc++"}), "wrong")
    assert "does not compile a small C++20 library: program.cc:1:10: fatal error: cstdint: No such file" in without
    assert "-> Install a newer GCC or Clang with its standard library (Debian: apt install g++)" in without


def test_an_old_compiler_without_sanitizers(tmp_path: Path) -> None:
    script = "case $* in *--version*) echo 'g++ (Old) 4.8.5'; exit ;; esac\n"
    script += "echo \"g++: error: unrecognized command line option '-std=c++20'\"; exit 1"
    old = program(tmp_path / "g++", script)
    (found,) = (one for one in found_by("compiler", {"PATH": str(tmp_path)}) if one.mark == "wrong")
    assert found.text == (
        f"g++ 4.8.5 ({old}) does not compile a small C++20 library: "
        "g++: error: unrecognized command line option '-std=c++20'"
    )
    program(old, "case $* in *-fsanitize*) echo 'cannot find -lasan'; exit 1 ;; esac\necho 'g++ 12'")
    assert "sanitizers: address,undefined and thread: the compiler has none" in texts(
        found_by("compiler", {"PATH": str(tmp_path)}), "note"
    )


# The disk.


def test_a_full_disk_and_one_of_which_no_library_can_be_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=30_000_000))
    assert texts(doctor.disk({"build": tmp_path / "build"}), "wrong") == (
        f"disk: the disk of build is full: '{tmp_path}' has 0.0 GB free -> Remove files, or move the project"
    )
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=500_000_000))
    assert "the disk of build is nearly full" in texts(doctor.disk({"build": tmp_path}), "note")
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC))
    assert "is mounted with noexec" in texts(doctor.disk({"build": tmp_path, "cache": tmp_path}), "wrong")


def test_a_disk_that_cannot_be_written(project: Paths) -> None:
    """A limit on the size of files stands for a full disk: each write raises OSError."""
    script = f"ulimit -f 0; exec {sys.executable} -m opmatrix doctor"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "build in '" in done.stdout and "cannot be written: File too large" in done.stdout
    assert "-> Is the folder writable, and is there space left?" in done.stdout


# The packages.


def with_versions(monkeypatch: pytest.MonkeyPatch, **planted: str | None) -> list[Finding]:
    """Return what is found about packages of other versions; one of version None is not installed."""
    real = metadata.version

    def other(name: str) -> str:
        found = planted.get(name.replace("-", "_"), "")
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found or real(name)

    monkeypatch.setattr(metadata, "version", other)
    return [*doctor.packages("INSTALL")]


def test_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    found = with_versions(monkeypatch, torch=None, onnxruntime_gpu="1.20.0")
    assert texts(found, "wrong") == f"packages: not installed for {sys.executable}: torch -> INSTALL"


def test_versions_that_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    found = with_versions(
        monkeypatch, onnx="1.14.1", doit="0.38.0", onnxruntime="1.15.1", tox=None, onnxruntime_gpu="1"
    )
    problems = texts(found, "wrong")
    assert "onnx 1.14.1 is too old: opmatrix needs >=1.19 -> pip install 'onnx>=1.19'" in problems
    assert re.search(r"doit 0\.38\.0 is too new: opmatrix needs .*<0\.38", problems)
    assert "onnxruntime 1.15.1 is too old: opmatrix needs >=1.21 -> pip install 'onnxruntime>=1.21'" in problems
    assert "without tox, needed only for: choose cells with tox" in texts(found, "note")
    for version, limits in (("2.13.0+cpu", ">=2.9"), ("0.37", "<0.38,>=0.37"), ("1.21.0rc1", ">=1.21")):
        assert doctor.too_old_or_new(version, limits) == ""


def test_an_installation_of_torch_that_was_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    found = texts(doctor.packages("INSTALL"), "wrong")
    assert f"lacks lib/libtorch_cpu.so in {tmp_path}/torch -> pip install --force-reinstall" in found


def test_a_check_that_fails_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken() -> Iterator[Finding]:
        raise PermissionError(13, "Permission denied", "/proc")
        yield

    monkeypatch.setattr(doctor, "system", broken)
    monkeypatch.setattr(doctor, "compiler", lambda _: ())
    found = [*doctor.examine(tmp_path, os.environ)]
    assert "system: cannot be examined: PermissionError: [Errno 13] Permission denied" in texts(found, "wrong")
    assert "none in this folder. Make one: opmatrix new --project DIR" in texts(found, "note")


def test_a_python_without_any_package(project: Paths, tmp_path: Path) -> None:
    """python -m opmatrix doctor needs neither doit nor rich."""
    python = tmp_path / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", python], check=True)
    command = [str(python / "bin/python"), "-m", "opmatrix", "doctor"]
    environ = os.environ | {"PYTHONPATH": str(ROOT / "pipeline")}
    done = subprocess.run(command, cwd=project.root, env=environ, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, "")
    assert "✗ opmatrix    it is not installed for" in done.stdout
    assert re.search(r"✗ packages    not installed for .*: torch, onnx, .*\n +-> pip install torch", done.stdout)
    assert done.stdout.splitlines()[-1].startswith("2 problems: opmatrix, packages")


# The project.


@pytest.mark.compile
def test_a_project_whose_settings_cannot_be_read(
    project: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = project.root / "pyproject.toml"
    settings.write_text(settings.read_text().replace("dynamo = [18, 20, 23]", "dynamo = [99]"))
    assert "pyproject.toml: [tool.opmatrix.opsets]: dynamo: " in texts(doctor_project.project(project), "wrong")
    settings.write_text("broken = = 1\n")
    monkeypatch.setattr(sys, "argv", ["opmatrix", "doctor"])
    assert main() == 1
    assert "✗ project     pyproject.toml: Invalid value" in capsys.readouterr().out
    monkeypatch.setattr(sys, "argv", ["opmatrix", "list"])
    assert main() == 2
    assert capsys.readouterr().err == "pyproject.toml: Invalid value (at line 1, column 10)\n"


# Locks and the state.


def test_a_free_lock_and_one_that_a_run_or_processes_of_a_killed_run_hold(project: Paths) -> None:
    assert texts(doctor_project.lock(project), "ok") == "lock: build/lock is free -> "
    with hold(project.lock):
        found = texts(doctor_project.lock(project), "note")
        assert f"another run is at work in {project.build}: process {os.getpid()} (" in found
        assert f"stop it with: kill {os.getpid()}" in found
    assert "build/lock is free; the file itself locks nothing" in texts(doctor_project.lock(project), "ok")
    run = """
import fcntl, os, subprocess, time
file = open("build/lock", "w")
fcntl.flock(file, fcntl.LOCK_EX)
child = subprocess.Popen(["sleep", "600"], pass_fds=[file.fileno()])
print(os.getpid(), file=file, flush=True)
print(child.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", run], stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout
        child = int(killed.stdout.readline())
        killed.kill()
        killed.wait()
        try:
            # The kernel sets the arguments of a process after it has told its parent that the program begins.
            wait_for(lambda: Path(f"/proc/{child}/cmdline").read_bytes() != b"")
            assert texts(doctor_project.lock(project), "wrong") == (
                f"lock: run {killed.pid} has ended, and a process that it started still holds build/lock: "
                f"process {child} (sleep 600) -> Stop with: kill {child}"
            )
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_damaged_state(project: Paths) -> None:
    assert [*doctor_project.state(project)] == []
    project.build.mkdir()
    project.state.write_bytes(b"no database" * 1000)
    found = texts(doctor_project.state(project), "note")
    assert "build/state.db is damaged (file is not a database); the next run moves it aside" in found
    project.state.unlink()
    with sqlite3.connect(project.state) as database:
        database.execute("create table step (name text primary key, key text, detail text)")
        database.execute("insert into step values ('data:one', 'key', '')")
    assert "1 step recorded in build/state.db" in texts(doctor_project.state(project), "ok")


# Environments.


def test_environments_of_the_matrix(project: Paths) -> None:
    """One that is complete, of other pins, without its Python, half made, being made, and of no row."""
    python, stamp = project.python("ort1.18"), project.stamp("ort1.18")
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    venv = VenvPaths(root=project.root, name=".venv-matrix/ort1.18")
    bootstrap.write_stamp(venv, {pins.name: pins.read_bytes() for pins in project.pins("ort1.18")})

    def found(mark: str = "note") -> str:
        return texts(doctor_project.environments(project), mark)

    assert found("ok").startswith("matrix: complete: ort1.18; others are made")
    (stamp / "ort1.18.txt").write_text("onnxruntime==1.18.0\n")
    assert "has other versions than ort1.18.txt pins now" in found()
    python.unlink()
    python.symlink_to("/nonesuch/python3")
    assert "has no Python any more (/nonesuch/python3 is gone)" in found()
    shutil.rmtree(stamp)
    assert ".venv-matrix/ort1.18 is incomplete, as of an installation that was interrupted" in found()
    assert "python -m opmatrix environment ort1.18" in found()
    with bootstrap.only_one(venv.lock):
        assert f"ort1.18 is being made by process {os.getpid()} (" in found()
    folder = project.environment("ort1.18")
    folder.rename(folder.with_name("ort 1.2"))
    assert ".venv-matrix/ort 1.2 is of no version in the matrix. Remove it: rm -r '.venv-matrix/ort 1.2'" in found()


def test_the_environment_of_a_checkout(tmp_path: Path) -> None:
    for path in (pip_install.LOCK, pip_install.TORCH, bootstrap.PROJECT):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(f"# {path}\n")
    venv = VenvPaths(root=tmp_path)

    def found() -> str:
        found = [*doctor_project.main_environment(tmp_path, {})]
        return texts(found, "note") or texts(found, "ok")

    assert "is not made yet" in found()
    venv.python.parent.mkdir(parents=True)
    venv.python.symlink_to(sys.executable)
    assert "is incomplete; the next ./run removes it" in found()
    bootstrap.write_stamp(venv, bootstrap.stamp(tmp_path, {}))
    assert "complete, with the pins of requirements/" in found()
    (tmp_path / pip_install.LOCK).write_text("# changed\n")
    assert "has other pins" in found()
    with bootstrap.only_one(venv.lock):
        assert "is being made by process" in found()


def test_sizes_are_counted_for_a_limited_time_and_arguments_are_refused(
    project: Paths, capsys: pytest.CaptureFixture[str]
) -> None:
    project.build.mkdir()
    (project.build / "file").write_bytes(bytes(2_000_000))
    assert "build 2 MB" in texts(doctor_project.sizes(project, project.root / "none"), "ok")
    assert doctor_project.size_of(project.build, until=0) == "more than 0 MB"
    assert doctor.main(["torch"]) == 2
    assert capsys.readouterr().err == "doctor takes no arguments, found 'torch'\n"


# The command.


@pytest.mark.compile
@pytest.mark.incremental
def test_doit_doctor_is_quick_and_imports_no_framework(project: Paths) -> None:
    script = """
import sys
from opmatrix.commands.main import Program
code = Program().run(["doctor"])
heavy = {"torch", "onnx", "onnxruntime", "numpy", "rich"} & {*sys.modules}
sys.exit(str(heavy) if heavy else code)
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=project.root, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1].startswith("OK: everything that doit needs is here")
    assert not project.build.exists(), "doctor changes nothing"


@pytest.mark.incremental
def test_doit_names_doctor_where_the_machine_is_at_fault(project: Paths, tmp_path: Path) -> None:
    for folder in ("ops", "native"):
        shutil.copytree(ROOT / folder / "custom_op_one", project.root / folder / "custom_op_one")
    command = [sys.executable, "-m", "doit", "list"]
    environ = os.environ | {"PATH": str(tmp_path)}
    done = subprocess.run(command, cwd=project.root, env=environ, capture_output=True, text=True)
    assert done.returncode == 5
    assert done.stderr.splitlines()[-1] == "More: `doit doctor` lists what this machine lacks, with each remedy"
