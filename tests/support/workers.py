"""A dask scheduler and workers as their users start them: programs of their own, each worker in a folder of its own."""

from __future__ import annotations

import glob
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.incremental.conftest import running, wait_for

PIPELINE = Path(__file__).parents[2] / "pipeline"
_HERE = ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0")


class Cluster:
    """A scheduler, and its workers by their names. `security`: options for the certificates of both, if it has TLS."""

    def __init__(self, folder: Path, *, protocol: str = "tcp", security: Sequence[str] = ()) -> None:
        self._folder, self._security, self._protocol = folder, tuple(security), protocol
        self.packages = folder / "packages"
        self.packages.mkdir(parents=True)
        told = folder / "scheduler.json"
        self.scheduler = self._start("scheduler", "scheduler", "--port", "0", "--protocol", protocol, *_HERE,
                                     "--scheduler-file", str(told))  # fmt: skip
        wait_for(lambda: told.is_file() and told.read_text() != "")
        self.address = str(json.loads(told.read_text())["address"])
        self.workers: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self, name: str, *options: str, before: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        """Start a worker, with further options of `dask worker`, and return when it has connected."""
        folder = self._folder / name
        folder.mkdir()
        self.workers[name] = self._start(
            name, "worker", self.address, "--no-nanny", "--nthreads", "1", "--name", name, *_HERE, "--protocol",
            self._protocol, "--local-directory", str(folder), *options, before=before, environment=environment,
        )  # fmt: skip
        wait_for(lambda: "Registered to" in self.log(name))

    @property
    def pythonpath(self) -> str:
        """Where Python finds modules here: opmatrix, and what a test installs in `packages`."""
        return f"{PIPELINE}:{self.packages}"

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()

    def folder(self, name: str) -> Path:
        """The folder that a worker got."""
        return self._folder / name

    def ran(self, name: str) -> list[str]:
        """Return the targets of the steps that a worker ran since the last call."""
        lines = self.peek(name).splitlines()
        for path in self._projects(name, "ran"):
            path.unlink(missing_ok=True)
        return [Path(line.split()[1]).name for line in lines]

    def peek(self, name: str) -> str:
        """Return which steps a worker began, as its log of them."""
        return "".join(map(_read, self._projects(name, "ran")))

    def servers(self, name: str) -> set[int]:
        """Return the processes of the servers of the project that a worker got last."""
        newest = max(self._projects(name), key=lambda path: path.stat().st_ctime)
        return {process for process, command in running(newest).items() if "server_main" in command}

    def let_go(self, name: str) -> None:
        """Let the steps end that wait for the file `go`."""
        for path in self._projects(name):
            (path / "go").touch()

    def slow_step(self, name: str) -> Path:
        """Return the folder in /proc of the newest step that waits for that file."""
        wait_for(lambda: any(map(_read, self._projects(name, "slow.pid"))))
        newest = max(self._projects(name, "slow.pid"), key=lambda path: path.stat().st_mtime)
        return Path("/proc", newest.read_text())

    def kill(self, name: str) -> None:
        """Kill a worker, as when its machine loses power."""
        self.workers[name].send_signal(signal.SIGKILL)
        self.workers[name].wait()

    def close(self) -> None:
        for process in (*self.workers.values(), self.scheduler):
            process.kill()
            process.wait()

    def _projects(self, name: str, file: str = "") -> list[Path]:
        """Return the folders that a worker has for projects, or a file of each. It may remove one meanwhile, which
        `Path.glob` of Python 3.11 does not take."""
        return [Path(found) for found in glob.glob(f"{self._folder / name}/**/opmatrix/*/{file}", recursive=True)]  # noqa: PTH207

    def _start(
        self,
        name: str,
        program: str,
        *options: str,
        before: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        paths = {"PYTHONPATH": self.pythonpath, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [*before, sys.executable, "-m", f"distributed.cli.dask_{program}", *options, *self._security]
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command, env={**os.environ, **paths, **(environment or {})}, stdout=log, stderr=log)


def _read(path: Path) -> str:
    with suppress(FileNotFoundError):
        return path.read_text()
    return ""


@contextmanager
def cluster(folder: Path, *names: str, protocol: str = "tcp", security: Sequence[str] = ()) -> Iterator[Cluster]:
    """Yield a cluster with workers of these names."""
    found = Cluster(folder, protocol=protocol, security=security)
    try:
        for name in names:
            found.start(name)
        yield found
    finally:
        found.close()
