"""Runs of doit whose servers stay from run to run, as `doit watch` keeps them: those of one process of pytest.

``python -m tests.support.kept`` is the process that keeps them. It forks each run, in the folder of its project.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, NoReturn

from opmatrix.basics.processes import die_with_parent
from opmatrix.commands import stages
from opmatrix.engine.fork_server import work_of
from opmatrix.engine.server_pool import KeptServers, Resident
from opmatrix.project.paths import Paths
from opmatrix.project.work_folder import WORK

ROOT = Path(__file__).parents[2]


def environ() -> Mapping[str, str]:
    """Return the environment of a run; pytest names in it the test that runs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}


class Keeper:
    """The process that keeps servers, in an empty folder. It ends with this process."""

    def __init__(self) -> None:
        self.environ = environ()
        self._folder = tempfile.TemporaryDirectory(prefix="kept-")
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.kept"],
            cwd=self._folder.name, env={**self.environ, "PYTHONPATH": path},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        atexit.register(self.close)

    def close(self) -> None:
        self._process.communicate()
        self._folder.cleanup()

    def run(self, root: Path, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run doit in a project."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
            ends = [f"/proc/{os.getpid()}/fd/{file.fileno()}" for file in (out, errors)]
            assert self._process.stdin and self._process.stdout
            with suppress(BrokenPipeError):  # it has ended, and answers nothing
                print(json.dumps([str(root), arguments, ends]), file=self._process.stdin, flush=True)
            answer = self._process.stdout.readline()
            out.seek(0)
            errors.seek(0)
            printed = out.read(), errors.read()
            if not answer:
                keeper.cache_clear()  # other tests get another process
                raise RuntimeError(f"the process that keeps servers has ended:\n{''.join(printed)}")
            return subprocess.CompletedProcess(["doit", *arguments], int(answer), *printed)


keeper = cache(Keeper)


def step(arguments: Sequence[str]) -> int:
    """Run a step in the child of a server, in the project of its log: the server is in the folder of all projects."""
    log = Path("/proc/self/fd/1").readlink()
    _enter(str(log).partition("/build/log/")[0])
    os.environ[WORK] = str(work_of(os.getpid()))
    return stages.main(arguments)


def _enter(root: str) -> None:
    """Go to a project, and let modules come from there instead of from the checkout and the folder of this process."""
    here = str(Path.cwd())
    sys.path[:] = [root if path == here else path for path in sys.path if path != str(ROOT)]
    os.chdir(root)


def _main(requests: IO[str], answers: IO[str]) -> None:
    from opmatrix.commands.watch import _PRELOADS

    for module in _PRELOADS:
        importlib.import_module(module)
    servers = KeptServers(Paths(Path.cwd()), entry="tests.support.kept:step")
    for request in requests:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = os.fork()
        if process == 0:
            ours.close()
            servers.leave()
            _run(Resident(theirs), *json.loads(request))
        theirs.close()
        with ours, suppress(ConnectionError):  # the run has ended
            while True:
                servers.answer(ours)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), file=answers, flush=True)
    servers.close()


def _run(resident: Resident, root: str, arguments: Sequence[str], ends: Sequence[str]) -> NoReturn:
    import doit.__main__

    from opmatrix.commands.run import Run

    die_with_parent()
    for target, path in enumerate(ends, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_APPEND), target)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ["PYTHONPATH"] = os.environ["PYTHONPATH"].removeprefix(str(ROOT)).removeprefix(os.pathsep)
    _enter(root)
    sys.argv[:] = [doit.__main__.__file__, *arguments]
    Run.resident = resident
    code: Any = 1
    try:
        doit.__main__.main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    _main(sys.stdin, os.fdopen(os.dup(1), "w"))
