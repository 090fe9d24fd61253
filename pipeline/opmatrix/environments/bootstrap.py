"""Make the project's environment in .venv: what `./run` calls when that is missing or out of date.

    python -m opmatrix.environments.bootstrap    in the checkout, by the Python that the environment is for

Standard library only, because nothing is installed yet. The stamp, copies of the files that the environment is made
from, is written last, and `./run` compares it on every call: an environment without one, or of other pins, is removed
and made again. The exit codes are listed in `./run`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import shutil
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping
from pathlib import Path

from opmatrix.basics.interrupts import code_of, interruptible
from opmatrix.environments.pip_install import (
    DISK_FULL,
    LOCK,
    PIP_FAILED,
    TORCH,
    TORCH_INDEX,
    Pip,
    SetupError,
    VenvPaths,
    disk_full,
    find_pip,
    requirements,
    say,
)

PROJECT = Path("pyproject.toml")
WRONG_MACHINE, NO_COMPILER = 71, 73  # exit codes, besides those of pip_install


def main() -> int:
    paths = VenvPaths(root=Path.cwd())
    try:
        with interruptible(), only_one(paths.lock) as lock:
            bring_up_to_date(paths, os.environ, lock=lock)
    except SetupError as failure:
        say(str(failure))
        return failure.code
    except KeyboardInterrupt as error:
        say("interrupted; the next ./run starts clean")
        return code_of(error)
    except OSError as err:
        if err.errno == errno.ENOSPC:
            say(str(disk_full(paths)))
            return DISK_FULL
        say(f"the environment could not be made: {err}")
        return PIP_FAILED
    return 0


def bring_up_to_date(paths: VenvPaths, environ: Mapping[str, str], *, lock: int) -> None:
    """Install what changed since the stamp was written: only opmatrix, or the whole environment."""
    wanted = stamp(paths.root, environ)
    found = read_stamp(paths)
    if found == wanted:  # another ./run made it while this one waited for the lock
        return
    check_machine()
    check_compiler(environ)
    if found and {**found, PROJECT.name: b""} == {**wanted, PROJECT.name: b""}:
        say("pyproject.toml changed: installing opmatrix again")
        install_project(Pip(paths=paths, command=(str(paths.python), "-m", "pip"), lock=lock))
    else:
        make(paths, environ, lock=lock)
    write_stamp(paths, wanted)


def make(paths: VenvPaths, environ: Mapping[str, str], *, lock: int) -> None:
    """Make the whole environment."""
    make_room(paths)
    python = f"Python {platform.python_version()}"
    say(f"making the environment in .venv ({python}): 0.3 GB to download, 1.3 GB on disk")
    venv.create(paths.environment, symlinks=True)
    with tempfile.TemporaryDirectory(prefix="opmatrix-pip-") as folder:
        pip = Pip(paths=paths, command=find_pip(paths, Path(folder)), lock=lock)
        say(f"installing the {len(requirements(LOCK.read_text(encoding='utf-8')))} packages of {LOCK}")
        # --no-deps: the lock file is complete, except for what main.in leaves out on purpose.
        pip.install("--require-hashes", "--no-deps", "-r", str(LOCK))
        install_torch(pip, environ.get("OPMATRIX_TORCH_INDEX"))
        install_project(pip)
    say(f"the environment is ready ({pip.elapsed()})")


def make_room(paths: VenvPaths) -> None:
    """Remove an incomplete environment or one of other pins. Raises SetupError for a full disk."""
    paths.log.unlink(missing_ok=True)
    if paths.environment.exists():
        say(f"removing {paths.name}, which is incomplete or made from other pins")
        shutil.rmtree(paths.environment)
    check_disk(paths)


def stamp(root: Path, environ: Mapping[str, str]) -> dict[str, bytes]:
    """Return what the environment depends on: its pins, the project's metadata, its path and its Python."""
    files = {path.name: (root / path).read_bytes() for path in (LOCK, TORCH, PROJECT)}
    made = f"{root}\n{environ.get('OPMATRIX_PYTHON', '')}\n"
    return {**files, "made": os.fsencode(made)}


def read_stamp(paths: VenvPaths) -> dict[str, bytes]:
    """Return the stamp of a complete environment, or nothing."""
    return {path.name: path.read_bytes() for path in paths.stamp.glob("*")} if paths.python.exists() else {}


def write_stamp(paths: VenvPaths, content: Mapping[str, bytes]) -> None:
    """Write the whole stamp or nothing: without a stamp, the next call starts clean."""
    temporary = paths.stamp.with_name("stamp.new")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    for name, data in content.items():
        (temporary / name).write_bytes(data)
    shutil.rmtree(paths.stamp, ignore_errors=True)
    temporary.rename(paths.stamp)


# Requirements of the machine.


def check_machine() -> None:
    """Raise SetupError unless this is Linux x86-64 with glibc 2.28, which torch's and ONNX Runtime's wheels need."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise SetupError(
            WRONG_MACHINE,
            f"opmatrix runs on Linux x86-64, and this is {platform.system()} {platform.machine()}: "
            "use a Linux x86-64 machine or container.",
        )
    library, version = platform.libc_ver()
    if library != "glibc" or tuple(map(int, version.split("."))) < (2, 28):
        raise SetupError(
            WRONG_MACHINE,
            f"opmatrix needs glibc 2.28 or newer, and this system has {library or 'another libc'} {version}: "
            "use a newer system or container (Debian 12, say).",
        )


def check_compiler(environ: Mapping[str, str]) -> None:
    """Raise SetupError without a C++ compiler, before the long download."""
    setting = environ.get("CXX", "").strip()
    names = [setting.split()[0]] if setting else ["g++", "clang++"]
    if any(shutil.which(name, path=environ.get("PATH")) for name in names):
        return
    message = (
        f"CXX is {setting!r}, which is not a program: set it to the path of g++ or clang++."
        if setting
        else "no C++ compiler: neither g++ nor clang++ is on PATH. Install one (Debian, Ubuntu: apt install g++), "
        "or set CXX to its path."
    )
    raise SetupError(NO_COMPILER, message)


def check_disk(paths: VenvPaths) -> None:
    if shutil.disk_usage(paths.root).free < paths.needed:
        raise disk_full(paths)


def install_torch(pip: Pip, index: str | None) -> None:
    """Install torch's CPU build from pip's configured sources (a mirror, PIP_FIND_LINKS), else from PyTorch's index.

    `index` replaces PyTorch's index; the empty string forbids it. Only torch is requested from it: requests for all
    packages take seconds, and minutes without a connection.
    """
    say("installing torch, the CPU build (200 MB)")
    arguments = ("--require-hashes", "--no-deps", "-r", str(TORCH))
    try:
        pip.install(*(("--index-url", index) if index else ()), *arguments)
    except SetupError as failure:
        if index is not None or failure.code != PIP_FAILED:
            raise
        say(f"pip's own sources do not have it: asking {TORCH_INDEX} (OPMATRIX_TORCH_INDEX names another)")
        pip.install("--index-url", TORCH_INDEX, *arguments)


def install_project(pip: Pip) -> None:
    """Install opmatrix editable, without the network: hatchling is in the lock file."""
    pip.install("--no-index", "--no-deps", "--no-build-isolation", "-e", ".")


@contextlib.contextmanager
def only_one(path: Path) -> Iterator[int]:
    """Hold the lock, so that two first calls do not write one environment."""
    with path.open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another ./run makes the environment: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


if __name__ == "__main__":
    sys.exit(main())
