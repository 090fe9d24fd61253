"""pip, which installs into an environment: where one comes from, how far it is, and why it failed.

Standard library only, because nothing is installed yet. Of a Debian package that has pip, apt checks the signature.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import IO

from opmatrix.basics.step_log import Progress, time_left

LOCK = Path("requirements/main.txt")
TORCH = Path("requirements/torch-cpu.txt")
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
NEEDED_BYTES = 2_000_000_000  # 1.3 GB installed, and the downloads
CONNECT_SECONDS = 10  # for an answer of a package index; pip's own 15 three times are most of a minute

WRONG_FILE, NO_NETWORK, PIP_FAILED, DISK_FULL = 65, 69, 70, 74


class SetupError(Exception):
    """The reason why there is no environment, what to do, and the exit code. `brief` is the message in one line."""

    def __init__(self, code: int, message: str, *, brief: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.brief = brief or message.partition("\n")[0]


def _named(path: str) -> cached_property[Path]:
    """Return a property: the path with the environment's name for ``{}``."""
    return cached_property(lambda paths: Path(paths.root, path.format(paths.name)))


@dataclass(frozen=True, kw_only=True)
class VenvPaths:
    """The paths of one environment, which all begin with .venv."""

    root: Path
    name: str = ".venv"
    needed: int = NEEDED_BYTES
    pins: tuple[Path, ...] = (LOCK, TORCH)

    environment = _named("{}")
    stamp = _named("{}/stamp")  # which `./run` compares
    python = _named("{}/bin/python")
    lock = _named("{}.lock")
    log = _named("{}.log")


def say(text: str) -> None:
    print(f"run: {text}", file=sys.stderr, flush=True)


def requirements(text: str) -> set[str]:
    """Return the package names in a lock file, which pins some packages once per version of Python."""
    return set(re.findall(r"^([A-Za-z0-9._-]+)==", text, flags=re.MULTILINE))


def disk_full(paths: VenvPaths) -> SetupError:
    folders = {str(paths.root): f"{paths.needed / 1e9:.0f} GB", tempfile.gettempdir(): "0.5 GB"}
    free = ", ".join(
        f"'{folder}' has {shutil.disk_usage(folder).free / 1e9:.1f} GB free and needs {needed}"
        for folder, needed in folders.items()
    )
    return SetupError(DISK_FULL, f"the disk is full: {free}. Make room (or set TMPDIR) and run again.")


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
            progress, wanted = Progress(stream=sys.stderr), set[str]()
            for file in filter(Path.is_file, _files(self.paths, arguments)):
                wanted |= requirements(file.read_text(encoding="utf-8"))
            work = PipWork(downloads=Path(folder), environment=self.paths.environment, packages=len(wanted))
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


def _files(paths: VenvPaths, arguments: Sequence[str]) -> list[Path]:
    """Return the files of requirements among the arguments of `pip install`."""
    return [paths.root / after for word, after in pairwise(arguments) if word == "-r"]


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
    before: int = field(init=False)  # that are installed already
    fetched: int = 0
    doing: str = ""
    file: str = ""  # that is downloaded now, and its megabytes
    megabytes: float = 0.0
    began: float = 0.0
    lost: bool = False  # the package index gave no answer before anything was downloaded

    def __post_init__(self) -> None:
        self.before = self.installed()

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
        unpack_debian("python3-pip-whl", into=folder)
    except DebianError as err:
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


class DebianError(Exception):
    """This machine has no apt, or apt cannot download the package."""


def unpack_debian(package: str, *, into: Path) -> None:
    """Get `package` from apt's sources into `into`. Raises DebianError."""
    for tool in ("apt-get", "dpkg"):
        if not shutil.which(tool):
            raise DebianError(f"{tool} is not on PATH")
    with tempfile.TemporaryDirectory(prefix="opmatrix-apt-") as name:
        folder = Path(name)
        for private in ("state", "cache"):  # apt creates the folders below them
            (folder / private).mkdir()
        apt = [
            "apt-get",
            *("-o", f"Dir::State={folder}/state"),
            *("-o", f"Dir::Cache={folder}/cache"),
            *("-o", "APT::Sandbox::User=root"),  # else root's apt switches to a user who cannot enter `folder`
            *("-o", "Acquire::Retries=1"),
            *("-o", "Acquire::http::Timeout=20"),
        ]
        # A failed update is no error: the source that failed may be a third party's.
        log = _run([*apt, "update"], folder, check=False)
        log += _run([*apt, "download", package], folder, hint=log)
        _run(["dpkg", "-x", str(next(folder.glob("*.deb"))), str(into)], folder)


def _run(command: list[str], folder: Path, *, check: bool = True, hint: str = "") -> str:
    """Run, and return stdout and stderr. DebianError has the first error line of `hint` and the output."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "LC_ALL": "C"},  # the error prefixes below are English
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if check and done.returncode:
        lines = [line for line in (hint + done.stdout).splitlines() if line.startswith(("E:", "W: Failed"))]
        raise DebianError(f"{' '.join([command[0], *command[-2:]])}: {lines[0] if lines else 'no error message'}")
    return done.stdout


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
    if code == DISK_FULL:
        return disk_full(paths)
    if code == NO_NETWORK:
        return _no_network(text, paths, arguments, environ)
    reason = "pip failed."
    if code == WRONG_FILE:
        reason = ("a download is not the file that requirements/ pins, so it was not installed. If pip's cache is not "
                  "at fault (pip cache purge), the index gives another file: do not use it.")  # fmt: skip
    last = "".join(f"\n  {line.strip()}" for line in lines if re.match(r"ERROR|error:| +(Expected|Got) ", line))
    if environ.get("PIP_NO_INDEX", "0") not in ("0", "") and "No matching distribution" in text:
        links = environ.get("PIP_FIND_LINKS")
        folder = f"{links!r} (PIP_FIND_LINKS)" if links else "a folder that PIP_FIND_LINKS names"
        last += f"\n  PIP_NO_INDEX is set: put this wheel into {folder}, or unset it"
    return SetupError(code, f"{reason} The log is '{paths.log}'.{last}")


def _no_network(text: str, paths: VenvPaths, arguments: Sequence[str], environ: Mapping[str, str]) -> SetupError:
    """Return the error with what was to be downloaded, from where, which setting says so, and what to do."""
    files = _files(paths, arguments)
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
        f"the {len(requirements(file.read_text(encoding='utf-8')))} packages of {_relative(file, paths)}"
        for file in files
        if file.is_file()
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
