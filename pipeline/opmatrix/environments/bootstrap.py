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
import importlib.util
import os
import platform
import re
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import IO

from opmatrix.basics.interrupts import code_of, interruptible
from opmatrix.basics.step_log import Progress, time_left
from opmatrix.environments import debian_package

LOCK = Path("requirements/main.txt")
TORCH = Path("requirements/torch-cpu.txt")
PROJECT = Path("pyproject.toml")
STAMP = "stamp"  # the folder in .venv that `./run` compares
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
NEEDED_BYTES = 2_000_000_000  # 1.3 GB installed, and the downloads
CONNECT_SECONDS = 10  # for an answer of a package index; pip's own 15 three times are most of a minute

WRONG_FILE, NO_NETWORK, PIP_FAILED, WRONG_MACHINE, NO_COMPILER, DISK_FULL = 65, 69, 70, 71, 73, 74


class SetupError(Exception):
    """The reason why there is no environment, what to do, and the exit code. `brief` is the message in one line."""

    def __init__(self, code: int, message: str, *, brief: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.brief = brief or message.partition("\n")[0]


@dataclass(frozen=True, kw_only=True)
class VenvPaths:
    """The paths of one environment, which all begin with .venv."""

    root: Path
    name: str = ".venv"
    needed: int = NEEDED_BYTES
    pins: tuple[Path, ...] = (LOCK, TORCH)

    @property
    def environment(self) -> Path:
        return self.root / self.name

    @property
    def stamp(self) -> Path:
        return self.environment / STAMP

    @property
    def python(self) -> Path:
        return self.environment / "bin" / "python"

    @property
    def lock(self) -> Path:
        return self.root / f"{self.name}.lock"

    @property
    def log(self) -> Path:
        return self.root / f"{self.name}.log"


def say(text: str) -> None:
    print(f"run: {text}", file=sys.stderr, flush=True)


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
            say(str(_disk_full(paths)))
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


def requirements(text: str) -> set[str]:
    """Return the package names in a lock file, which pins some packages once per version of Python."""
    return set(re.findall(r"^([A-Za-z0-9._-]+)==", text, flags=re.MULTILINE))


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
        raise _disk_full(paths)


def _disk_full(paths: VenvPaths) -> SetupError:
    folders = {str(paths.root): f"{paths.needed / 1e9:.0f} GB", tempfile.gettempdir(): "0.5 GB"}
    free = ", ".join(
        f"'{folder}' has {shutil.disk_usage(folder).free / 1e9:.1f} GB free and needs {needed}"
        for folder, needed in folders.items()
    )
    return SetupError(DISK_FULL, f"the disk is full: {free}. Make room (or set TMPDIR) and run again.")


# pip, and what it installs.


@dataclass(frozen=True, kw_only=True)
class Pip:
    """A pip that installs into the environment. Its output goes to the log, and parts of it into the error."""

    paths: VenvPaths
    command: tuple[str, ...]
    lock: int  # pip inherits it, so that after a kill of this process the next one waits for pip to end
    started: float = field(default_factory=time.monotonic)

    def elapsed(self) -> str:
        return f"{time.monotonic() - self.started:.0f} s"

    def install(self, *arguments: str) -> None:
        """Run `pip install`, and show how far it is. Raises SetupError with the reason that its output gives."""
        command = [*self.command, "install", "--no-input", "--disable-pip-version-check", "--retries", "2", *arguments]
        if not {"PIP_TIMEOUT", "PIP_DEFAULT_TIMEOUT"} & os.environ.keys():
            command += ["--timeout", str(CONNECT_SECONDS)]
        lines: list[str] = []
        with (
            self.paths.log.open("a", encoding="utf-8") as log,
            tempfile.TemporaryDirectory(prefix="opmatrix-downloads-") as folder,
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": folder},  # where the file grows that pip downloads
                pass_fds=(self.lock,),
                process_group=0,  # Ctrl-C reaches this process only, which ends pip and its children
            ) as process,
        ):
            print("$", *map(without_password, command), file=log)
            progress, work = Progress(stream=sys.stderr), PipWork.of(self.paths, Path(folder), arguments)
            try:
                assert process.stdout
                for line in _lines(process.stdout, every=0.2):
                    if line:
                        log.write(line)
                        lines.append(line.rstrip())
                        work.read(line)
                    progress.show(work.shown())
                    if work.lost:
                        os.killpg(process.pid, signal.SIGKILL)  # it would try again for each package
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
            finally:
                progress.clear()
        if process.returncode:
            raise explain(lines, paths=self.paths, arguments=arguments, environ=os.environ)


def without_password(address: str) -> str:
    """Return an address without the user and the password in it, as pip prints one."""
    return re.sub(r"(?<=://)[^/@]*@", "****@", address)


def _lines(stream: IO[bytes], *, every: float) -> Iterator[str]:
    """Yield each line that a process prints, and "" after each `every` seconds without one."""
    rest = b""
    while True:
        if not select.select([stream], [], [], every)[0]:
            yield ""
            continue
        if not (read := os.read(stream.fileno(), 1 << 16)):
            break
        *lines, rest = (rest + read).split(b"\n")
        yield from (f"{line.decode(errors='replace')}\n" for line in lines)
    yield rest.decode(errors="replace")


_FETCHED = re.compile(r"(Downloading|Using cached|Processing) (\S+?)(?:#\S*)?(?: \(([\d.]+) (kB|MB|bytes)\))?$")
_UNITS = {"bytes": 1e-6, "kB": 1e-3, "MB": 1.0, None: 0.0}


@dataclass(kw_only=True)
class PipWork:
    """How far pip is, by its output, by the file that grows in `downloads`, and by what lies in `environment`."""

    downloads: Path
    environment: Path
    packages: int  # that it shall install
    before: int  # that are installed already
    fetched: int = 0
    doing: str = ""
    file: str = ""  # that is downloaded now, and its megabytes
    megabytes: float = 0.0
    began: float = 0.0
    lost: bool = False  # the package index gave no answer before anything was downloaded

    @classmethod
    def of(cls, paths: VenvPaths, downloads: Path, arguments: Sequence[str]) -> PipWork:
        files = [paths.root / after for word, after in pairwise(arguments) if word == "-r"]
        texts = [file.read_text(encoding="utf-8") for file in files if file.is_file()]
        packages = len(set().union(*map(requirements, texts)))
        found = cls(downloads=downloads, environment=paths.environment, packages=packages, before=0)
        return replace(found, before=found.installed())

    def installed(self) -> int:
        return len(list(self.environment.glob("lib/python3.*/site-packages/*.dist-info")))

    def read(self, line: str) -> None:
        """Take a line of pip's output."""
        line = line.strip()
        if found := _FETCHED.match(line):
            _, file, size, unit = found.groups()
            if not file.endswith(".metadata"):
                self.fetched, self.began = self.fetched + 1, time.monotonic()
                self.file, self.megabytes = file.rpartition("/")[2], float(size or 0) * _UNITS[unit]
        elif line.startswith("Collecting "):
            self.doing, self.file = re.split(r" \(from|: ", line)[0].lower(), ""
        elif line.startswith("Installing collected packages"):
            self.doing, self.file = "installing", ""
        elif "Retrying (" in line:  # WARNING: Retrying (Retry(total=1, ...)) after connection broken by ...
            self.doing, self.file = "no answer from the package index; trying again", ""
            self.lost |= "ConnectTimeoutError" in line and not self.fetched

    def shown(self) -> str:
        """Return what pip does and how far it is: ``torch 2.13.0: 74 of 184 MB, about 0:12 left; package 3 of 71``."""
        if self.doing == "installing":
            return f"{self.installed() - self.before} of {self.packages or 1} packages installed"
        if not self.file:
            return self.doing
        name = " ".join(self.file.split("-")[:2])
        have = 0.0
        with contextlib.suppress(OSError):  # pip has just moved it
            sizes = [path.stat().st_size for path in self.downloads.rglob(self.file)]
            have = min(max(sizes, default=0) / 1e6, self.megabytes)
        left = time_left(time.monotonic() - self.began, have, self.megabytes)
        size = f": {have:.0f} of {self.megabytes:.0f} MB{left}" if self.megabytes >= 1 else ""
        return f"{name}{size}; package {self.fetched} of {max(self.packages, self.fetched)}"


def find_pip(paths: VenvPaths, folder: Path) -> tuple[str, ...]:
    """Return a command that runs pip for the environment. The first of:

    1. the wheel that comes with this Python (ensurepip; Debian's python3-pip-whl, Fedora's python-pip-wheel)
    2. a pip that this Python can import
    3. Debian's python3-pip-whl, unpacked into `folder`: a Debian without python3-venv has neither of the above
    """
    for wheels in _wheel_folders():
        for wheel in sorted(wheels.glob("pip-*.whl")):
            return str(paths.python), str(wheel / "pip")
    if importlib.util.find_spec("pip"):
        return sys.executable, "-m", "pip", "--python", str(paths.python)
    say("fetching pip from Debian's package python3-pip-whl")
    try:
        debian_package.unpack("python3-pip-whl", into=folder)
    except debian_package.DebianError as err:
        raise SetupError(
            NO_NETWORK,
            f"this Python has no pip, and Debian's package python3-pip-whl cannot be had ({err}): check the network, "
            "or install pip (Debian, Ubuntu: apt install python3-venv).",
        ) from err
    (wheel,) = folder.glob("usr/share/python-wheels/pip-*.whl")
    return str(paths.python), str(wheel / "pip")


def _wheel_folders() -> Iterator[Path]:
    spec = importlib.util.find_spec("ensurepip")
    if spec and spec.origin:
        yield Path(spec.origin).parent / "_bundled"
    if folder := sysconfig.get_config_var("WHEEL_PKG_DIR"):
        yield Path(folder)
    yield Path("/usr/share/python-wheels")


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


SIGNS = (  # patterns in pip's output, the most specific first
    (DISK_FULL, r"No space left on device|\[Errno 28\]|Disk quota exceeded"),
    (WRONG_FILE, r"DO NOT MATCH THE HASHES"),
    (
        NO_NETWORK,
        r"Failed to establish a new connection|[Nn]ame resolution|Name or service not known|Network is unreachable"
        r"|timed out|Connection (reset|refused|aborted)|ProxyError|SSLError|IncompleteRead",
    ),
)


def explain(
    lines: Sequence[str], *, paths: VenvPaths, arguments: Sequence[str] = (), environ: Mapping[str, str] = os.environ
) -> SetupError:
    """Return the error for pip's output. `arguments`: those of `pip install`."""
    text = "\n".join(lines)
    code = next((code for code, pattern in SIGNS if re.search(pattern, text)), PIP_FAILED)
    last = "".join(f"\n  {line.strip()}" for line in lines if re.match(r"ERROR|error:| +(Expected|Got) ", line))
    log = f"The log is '{paths.log}'."
    if code == DISK_FULL:
        return _disk_full(paths)
    if code == NO_NETWORK:
        return _no_network(text, paths, arguments, environ)
    messages = {
        WRONG_FILE: "a download is not the file that requirements/ pins, so it was not installed. If pip's cache is "
        f"not at fault (pip cache purge), the index gives another file: do not use it. {log}{last}",
        PIP_FAILED: f"pip failed. {log}{last}{_without_index(text, environ)}",
    }
    return SetupError(code, messages[code])


def _without_index(text: str, environ: Mapping[str, str]) -> str:
    """Return what to do about a wheel that is missing where pip may use no index, or ""."""
    if environ.get("PIP_NO_INDEX", "0") in ("0", "") or "No matching distribution" not in text:
        return ""
    links = environ.get("PIP_FIND_LINKS")
    folder = f"{links!r} (PIP_FIND_LINKS)" if links else "a folder that PIP_FIND_LINKS names"
    return f"\n  PIP_NO_INDEX is set: put this wheel into {folder}, or unset it"


def _no_network(text: str, paths: VenvPaths, arguments: Sequence[str], environ: Mapping[str, str]) -> SetupError:
    """Return the error with what was to be downloaded, from where, which setting says so, and what to do."""
    files = [Path(after) for word, after in pairwise(arguments) if word == "-r"]
    configured = re.search(r"Looking in indexes: ([^\s,]+)", text)
    index, setting = "https://pypi.org/simple", "pip's default; PIP_INDEX_URL names another"
    if "--index-url" in arguments:
        index = without_password(arguments[arguments.index("--index-url") + 1])
        setting = "" if "OPMATRIX_TORCH_INDEX" in environ else "the default of "
        setting += "OPMATRIX_TORCH_INDEX"
    elif configured:
        index, setting = configured[1], "PIP_INDEX_URL" if "PIP_INDEX_URL" in environ else "pip's configuration file"
    host = re.search(r"host='([^']+)'", text)
    if host and host[1] not in index:  # another index, or a proxy
        index, setting = host[1], "pip's settings: pip config list"
    wanted = ", ".join(
        f"the {len(requirements((paths.root / file).read_text(encoding='utf-8')))} packages of {_relative(file, paths)}"
        for file in files
        if (paths.root / file).is_file()
    )
    reasons = (
        re.search(pattern, text) for pattern in (r"\[Errno -?\d+\] ([^'\")\]\n]+)", "(timed out)", r"(\w+Error)")
    )
    why = next((found[1] for found in reasons if found), "no answer")
    python = ".".join(map(str, sys.version_info[:2]))
    fetch = f"pip download --no-deps --python-version {python} -d wheels"
    # A server that refuses was reached: what is wrong may be the setting.
    lost = "" if re.search(r"refused|reset|aborted|SSLError", why) else "no network: "
    message = "\n".join(
        [
            f"{lost}pip cannot reach {index} ({why})",
            f"  To download:  {wanted or 'packages'}",
            f"  Index:        {index} ({setting})",
            "  Check the connection and these settings, and a proxy, then run again. For a",
            "  machine without a network, download the wheels on one that has it and the",
            "  same platform:",
            *(f"    {fetch} -r {_relative(file, paths)}" for file in paths.pins[:1]),
            *(f"    {fetch} -r {_relative(file, paths)} --index-url {TORCH_INDEX}" for file in paths.pins[1:]),
            f"  Copy the folder wheels to {paths.root}, and run again there with",
            "  PIP_NO_INDEX=1 PIP_FIND_LINKS=wheels",
            f"  Log: {_relative(paths.log, paths)}",
        ]
    )
    files_of = " and ".join(_relative(file, paths) for file in files) or "packages"
    brief = (
        f"{lost}pip cannot reach {index} ({why}; {setting}). Check the connection and this setting. Without a network: "
        f"run `pip download --no-deps -d wheels -r {files_of}` on a machine with one (with this file, Python {python} "
        "and this platform), copy the folder wheels here, and run again with PIP_NO_INDEX=1 PIP_FIND_LINKS=wheels"
    )
    return SetupError(NO_NETWORK, message, brief=brief)


def _relative(file: Path, paths: VenvPaths) -> str:
    return str(file.relative_to(paths.root) if file.is_relative_to(paths.root) else file)


# The lock, and interruption.


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
