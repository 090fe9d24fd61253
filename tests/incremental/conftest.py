"""A small project with fake steps: doit and opmatrix.engine are real, everything else is fake."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from opmatrix.shared_cache import entry
from tests.incremental.real import RealProject

REPOSITORY = Path(__file__).parents[2]

PYPROJECT = (REPOSITORY / "pyproject.toml").read_text() + '\n[tool.doit.plugins.command]\nrun = "fake:Run"\n'

DODO = """
import json, sys
from contextlib import suppress
from pathlib import Path
from opmatrix.basics.errors import UsageError
from opmatrix.project.cells import Cell
from opmatrix.commands.dodo import resume_in
from opmatrix.engine.tasks import doit_tasks
from opmatrix.records.step import Step

ROOT = Path(__file__).parent
resume_in(ROOT, sys.argv[1:])

def task_steps():
    from doit import get_var
    get_var("opsets", "default")
    steps = []
    for step in json.loads((ROOT / "steps.json").read_text()):
        for field in ("reads", "writes", "declared"):
            step[field] = tuple(str(ROOT / p) for p in step.get(field, ()))
        for field in {"verdict", "discovered_inputs"} & step.keys():
            step[field] = str(ROOT / step[field])
        of, _, cell = step["name"].partition("@")
        operator, _, lowering = of.partition("-")
        step["operator"], step["lowering"] = operator, lowering or None
        with suppress(UsageError):
            step["cell"] = Cell.parse(cell if step["group"] == "verify" else f"{cell}-ort1.31")
        steps.append(Step(**{"seconds": 3600} | step | {"command": tuple(step["command"])}))  # on a busy machine
    return doit_tasks(steps)
"""

FAKE = """
import ctypes, itertools, mmap, os, subprocess, sys, tempfile, time
from contextlib import suppress
from pathlib import Path
from threading import Thread
from opmatrix.commands.run import Run as RealRun

class Run(RealRun):
    entry = "fake:main"

    def _open_shared(self, *arguments, **options):  # a busy machine makes any store slow
        from opmatrix.shared_cache import client
        client.PATIENCE = float(os.environ.get("FAKE_PATIENCE", 500))
        return super()._open_shared(*arguments, **options)

def main(arguments):
    with open("ran", "a") as log:
        print(arguments[0], arguments[-1], file=log)
    return globals()["do_" + arguments[0]](*arguments[1:]) or 0

def do_copy(source, target):
    text = Path(source).read_text()
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    Path(target).write_text(text.upper())

def do_upper(source, target):  # cuts comments off
    do_copy(source, target)
    Path(target).write_text(Path(target).read_text().partition("#")[0])

def do_split(source, folder):
    for line in Path(source).read_text().split():
        Path(folder, line).parent.mkdir(parents=True, exist_ok=True)
        Path(folder, line).write_text(line)

def do_edit(source, target):  # the input is edited while the step runs
    do_copy(source, target)
    Path(source).write_text("edited meanwhile")

def do_and_back(source, target):
    text = Path(source).read_text()
    Path(source).write_text("for a moment")
    do_copy(source, target)
    Path(source).write_text(text)

def do_slow(source, target):
    Path("slow.pid").write_text(str(os.getpid()))
    while not Path("go").exists(): time.sleep(0.01)
    do_copy(source, target)

def do_gobble(source, target):
    print("last words", flush=True)
    kept = []
    while True: kept.append(bytearray(os.urandom(1 << 20)) * 8)

def do_gobble_below(source, target):
    print("last words", flush=True)
    subprocess.run([sys.executable, "-c", "kept = []\\nwhile True: kept.append(b'x' * (8 << 20))"])

def do_fill(how, source, target):
    print("last words", flush=True)
    parts = [b"x" * (1 << 20)]
    endless = itertools.repeat(parts[0])
    if how == "one":
        with open("filler", "wb") as file:
            file.writelines(endless)
    if how == "elsewhere":
        with tempfile.TemporaryFile() as file:
            while True: file.seek(0); file.writelines(parts)
    if how == "again":
        while True: Path(target).write_bytes(parts[0])
    if how == "program":
        subprocess.run(["sh", "-c", "while :; do head -c 1000000 /dev/zero > filler; done"])
    if how == "fork":
        if os.fork():
            os.wait()
        while True: Path("filler").write_bytes(parts[0])
    if how == "without python":
        file = os.open("filler", os.O_WRONLY | os.O_CREAT)
        while True: os.pwrite(file, parts[0], 0)

def do_share(how, source, target):  # eight processes, or threads, with 150 MB that are the same for all
    size = 150 << 20
    if how in ("forks", "daemons", "sessions"): kept = bytearray(b"x") * size
    if how == "threads": kept, threads = b"x" * size, [Thread(target=time.sleep, args=(2,)) for _ in range(8)]
    if how == "shared memory": kept = mmap.mmap(-1, size)
    if how == "a mapped file":
        file = tempfile.TemporaryFile()
        file.truncate(size)
        kept = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    for _ in range(0 if how == "threads" else 8):
        if os.fork(): continue
        if how in ("daemons", "sessions"): os.setsid()
        if how == "daemons" and os.fork(): os._exit(0)
        sum(memoryview(kept)[::4096])  # where each page is asked for
        time.sleep(1000)
    if how == "threads":
        for thread in threads: thread.start()
    else: time.sleep(2)
    do_copy(source, target)

def do_pollute(source, target):
    import random, resource, signal, onnx
    os.environ["OMP_NUM_THREADS"], os.environ["POLLUTED"] = "64", "1"
    os.umask(0o077)
    os.nice(5)
    sys.path.insert(0, "/polluted")
    random.seed(1)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
    onnx.defs.register_schema(onnx.defs.OpSchema("Polluted", "polluted", 1))
    onnx.polluted = True
    do_copy(source, target)
    os.chdir("/")

def do_inspect(source, target):
    import resource, signal, onnx
    mask = os.umask(0)
    os.umask(mask)
    variables = sorted((name, value) for name, value in os.environ.items() if name != "OPMATRIX_WORK")
    found = [variables, os.getcwd(), mask, os.nice(0), sys.path, signal.getsignal(signal.SIGUSR1)]
    found += [onnx.defs.has("Polluted", "polluted"), hasattr(onnx, "polluted")]
    found += [resource.getrlimit(resource.RLIMIT_NOFILE)]
    Path(target).write_text(repr(found))

def do_core(source, target, least="1"):  # takes the cores that it was given until steps have taken so many at once
    jobs = int(os.environ["OPMATRIX_JOBS"])
    with open("cores", "a") as log: print(jobs, file=log)
    while max(itertools.accumulate(map(int, Path("cores").read_text().splitlines()))) < int(least): time.sleep(0.01)
    time.sleep(0.2)  # in which others take what is free
    with open("cores", "a") as log: print(-jobs, file=log)
    do_copy(source, target)

def do_nap(source, target, seconds="0.1"):
    time.sleep(float(seconds))
    do_copy(source, target)

def do_count(source, target):  # is in its middle until the file go is there
    from opmatrix.basics.step_log import Progress
    progress = Progress()
    while not Path("go").exists():
        progress.show("5 of 10 parts", 5, 10)
        time.sleep(0.05)
    do_copy(source, target)

def do_burn(source, target):  # 0.2 CPU s of its own, and as many of a process that it starts
    busy = "import time\\nwhile time.process_time() < 0.2: pass"
    subprocess.run([sys.executable, "-c", busy])
    begun = time.process_time()
    while time.process_time() < begun + 0.2: pass
    do_copy(source, target)

def do_half(source, target):  # killed in the middle of writing
    text = Path(source).read_text().upper()
    with open(target, "w") as file:
        file.write(text[: len(text) // 2])
        file.flush()
        Path("slow.pid").write_text(str(os.getpid()))
        time.sleep(1000)

def do_meddle(source, target):  # writes what another step has written
    do_copy(source, target)
    Path("build/a.g").write_text("meddled with")

def do_end(source, target):  # code of a step ends its process, as C's exit(0), with an old output in its place
    print("# at case seed", flush=True)
    os._exit(0)

def do_system_exit(source, target):
    raise SystemExit

def do_flood(source, target):
    print("# at case seed", flush=True)
    while True: os.write(1, (b"flood" * 200 + b"\\n") * 1000)

def do_keep(source, target):  # as ninja, which leaves what is newer than its source
    if not Path(target).exists() or os.stat(target).st_mtime_ns < os.stat(source).st_mtime_ns:
        do_copy(source, target)

def do_big(source, target):
    with open(target, "wb") as file:
        file.write(bytes(4 << 20))

def do_say(source, target):
    print("the kernel differs at (0, 17): expected 0.1243, got 0.1250", file=sys.stderr)
    return 10

def do_throw(source, target):
    raise RuntimeError("out of cheese")

def do_abort(source, target):
    print("last words")
    os.abort()

def do_segfault(source, target):
    print("last words")
    ctypes.string_at(0)

def do_hang(source, target):
    Path("slow.pid").write_text(str(os.getpid()))
    print("last words")
    time.sleep(1000)

def do_spawn(source, target):
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    Path("left.pid").write_text(str(process.pid))
    Path("slow.pid").write_text(str(os.getpid()))
    time.sleep(1000)

def do_leave(source, target):
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    Path("left.pid").write_text(str(process.pid))
    do_copy(source, target)

def do_nothing(source, target):
    pass

def do_report(*verdicts):
    bad = [v for v in verdicts[:-1] if '"outcome": "verified"' not in Path(v).read_text()]
    Path(verdicts[-1]).write_text(" ".join(bad))
    print("TABLE of", len(verdicts) - 1, "cells,", len(bad), "bad")
    for v in bad:
        print(Path(v).read_text())
    return 11 if bad else 0

def do_report_all(*asked):
    covered = Path("build/report/verdicts.txt").read_text().split()
    wrong = [v for v in covered if '"verified"' not in Path(v).read_text()]
    counts = '"counts": {"mismatched": 0, "failed": %d}' % len(wrong)
    Path("build/report/report.json").write_text("{\\n" + counts + "\\n}\\n")
    bad = [v for v in asked if '"verified"' not in Path(v).read_text()]
    print("TABLE of", len(asked), "cells,", len(bad), "bad")
    return 11 if bad else 0

def do_verify(source, verdict):
    Path(verdict).parent.mkdir(parents=True, exist_ok=True)
    outcome = "mismatched" if "wrong" in Path(source).read_text() else "verified"
    Path(verdict).write_text('{"outcome": "%s"}' % outcome)
    if outcome == "mismatched":
        print("2 of 64 elements differ", file=sys.stderr)
        return 10
"""


class Project:
    """A folder with a dodo.py, in which tests run doit."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name, text in {"pyproject.toml": PYPROJECT, "dodo.py": DODO, "fake.py": FAKE}.items():
            (root / name).write_text(text)
        self.steps: list[dict[str, Any]] = []
        self._started: list[subprocess.Popen[str]] = []

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def read(self, name: str) -> str:
        return (self.root / name).read_text()

    def json(self, name: str) -> Any:
        return json.loads(self.read(name))

    def step(self, task: str, command: str, source: str, target: str, **fields: Any) -> dict[str, Any]:
        """Add a step that makes `target` from `source`; the step gets both as arguments."""
        group, _, name = task.partition(":")
        step = {"group": group, "name": name, "command": [command, source, target], "reads": [source]}
        self.steps.append(step | {"writes": [target]} | fields)
        return self.steps[-1]

    def report(self, command: str, *, written: str = "build/report/report.json", **fields: Any) -> dict[str, Any]:
        """Add a report of all verdicts; it gets them as arguments."""
        verdicts = [step["verdict"] for step in self.steps if "verdict" in step]
        step = {"group": "report", "name": "", "command": [command, *verdicts], "reads": verdicts, "writes": [written]}
        self.steps.append(step | fields)
        return self.steps[-1]

    def set_command(self, command: str, *, of: int = -1) -> None:
        """Let a step, the last one by default, run another command with its arguments."""
        self.steps[of]["command"][0] = command

    def doit(self, *arguments: str, folder: str = ".", **environment: str) -> subprocess.CompletedProcess[str]:
        self._write_steps()
        where, variables = self.root / folder, self._environment(environment)
        return subprocess.run(_command(arguments), cwd=where, env=variables, capture_output=True, text=True)

    def popen(
        self, *arguments: str, before: Sequence[str] = (), stderr: int = subprocess.STDOUT, **environment: str
    ) -> subprocess.Popen[str]:
        self._write_steps()
        process = subprocess.Popen(
            [*before, *_command(arguments)], cwd=self.root, env=self._environment(environment),
            stdout=subprocess.PIPE, stderr=stderr, text=True, preexec_fn=hear_interrupts,
        )  # fmt: skip
        self._started.append(process)
        return process

    def start(self, *arguments: str, before: Sequence[str] = ()) -> subprocess.Popen[str]:
        """Start doit and return when its slow step runs."""
        (self.root / "slow.pid").unlink(missing_ok=True)
        process = self.popen(*arguments, before=before)
        self.slow_step()
        return process

    def slow_step(self) -> int:
        """Wait until a slow step runs, and return its process."""
        wait_for(lambda: (self.root / "slow.pid").is_file() and self.read("slow.pid") != "")
        return int(self.read("slow.pid"))

    def ran(self) -> list[str]:
        """Return the targets of the steps that ran since the last call."""
        log = self.root / "ran"
        lines = log.read_text().splitlines() if log.exists() else []
        log.unlink(missing_ok=True)
        return [Path(line.split()[1]).name for line in lines]

    def runs(self, *arguments: str) -> list[str]:
        """Run doit, and return the targets of the steps that it runs."""
        self.doit(*arguments)
        return self.ran()

    def processes(self) -> list[str]:
        return processes(self.root)

    def close(self) -> None:
        """End what a test that failed has left."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
                process.communicate()
        for name in ("slow.pid", "left.pid"):
            if (self.root / name).is_file():
                with suppress(ProcessLookupError, ValueError):
                    os.kill(int(self.read(name)), signal.SIGKILL)

    def _write_steps(self) -> None:
        self.write("steps.json", json.dumps(self.steps))

    def _environment(self, more: dict[str, str]) -> dict[str, str]:
        return os.environ | {"PYTHONPATH": str(REPOSITORY / "pipeline"), "PYTHONDONTWRITEBYTECODE": "1"} | more


ALL = ["a.g", "a.h", "a.npz", "a.onnx"]


class Clone(Project):
    """A clone of a project with a chain of three steps, and a fourth that stays on each machine."""

    def __init__(self, root: Path, url: str) -> None:
        root.mkdir(parents=True)
        super().__init__(root)
        self.url = url
        self.write("a.txt", "hello # a remark")
        self.step("codegen:a", "upper", "a.txt", "build/a.g")
        self.step("data:a", "copy", "build/a.g", "build/a.npz")
        self.step("export:a", "copy", "build/a.npz", "build/a.onnx", links=[])
        self.step("report:a", "copy", "a.txt", "build/a.h")

    def run(self, *arguments: str, mode: str = "write", **environment: str) -> str:
        done = self.doit(*arguments, **{"OPMATRIX_CACHE": self.url, "OPMATRIX_CACHE_MODE": mode} | environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def runs(self, *arguments: str) -> list[str]:
        self.run(*arguments)
        return sorted(self.ran())


def replace_blobs(store: Path, change: Callable[[bytes], bytes]) -> None:
    """Replace each blob of a shared cache by what `change` returns, and its entry accordingly, so that it is taken."""
    for action in (store / "ac").iterdir():
        digest, _, told = entry.decode(action.read_bytes())
        if (store / "cas" / digest).exists():
            blob = change((store / "cas" / digest).read_bytes())
            name = hashlib.sha256(blob).hexdigest()
            (store / "cas" / name).write_bytes(blob)
            action.write_bytes(entry.encode(name, len(blob), told))


def hear_interrupts() -> None:
    """Undo the settings of a shell's background job and of nohup, where pytest and its children would ignore these."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def start_doit(root: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start doit in a project of real steps, with the project's own opmatrix if it has one."""
    return start(root, *_command(arguments), pipeline=root / "pipeline")


def start(root: Path, *command: str, pipeline: Path = REPOSITORY / "pipeline") -> subprocess.Popen[str]:
    """Start a program that imports opmatrix from `pipeline`, if that exists."""
    variables = os.environ | ({"PYTHONPATH": str(pipeline)} if pipeline.is_dir() else {})
    return subprocess.Popen(
        command, cwd=root, env=variables,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, preexec_fn=hear_interrupts,
    )  # fmt: skip


def processes(root: Path) -> list[str]:
    """Return the commands of the processes whose working directory is in this project."""
    return [*running(root).values()]


def running(root: Path) -> dict[int, str]:
    """Return the processes whose working directory is in this project, each with its command."""
    found = {}
    for process in Path("/proc").iterdir():
        try:
            here = process.name.isdigit() and (process / "cwd").resolve().is_relative_to(root)
            if here and "\nState:\tZ" not in (process / "status").read_text():
                found[int(process.name)] = (process / "cmdline").read_text()
        except OSError:
            continue
    return found


def alive(process: int | str) -> bool:
    return Path(f"/proc/{process}/exe").exists()  # of a zombie there is no program


def _command(arguments: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "doit", *arguments]


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait without a limit: a busy machine takes longer, and pytest ends a test that hangs."""
    while not condition():
        time.sleep(0.01)


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> RealProject:
    """A project of real steps, up to date. A test may edit it: each test first brings it up to date."""
    made = RealProject.make(tmp_path_factory.mktemp("real"))
    made.passes("-n", "2")
    return made


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    made = Project(tmp_path)
    made.write("a.txt", "hello")
    yield made
    made.close()


@pytest.fixture
def chain(project: Project) -> Project:
    """a.txt -> build/a.g -> build/a.so, up to date."""
    project.write("a.txt", "hello # one")
    project.write("ops/a/spec.py", "")
    project.step("codegen:a", "upper", "a.txt", "build/a.g")
    project.step("compile:a", "copy", "build/a.g", "build/a.so")
    assert project.runs() == ["a.g", "a.so"]
    return project


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def first(tmp_path: Path, store: Path) -> Clone:
    clone = Clone(tmp_path / "first", store.as_uri())
    assert clone.runs() == ALL
    return clone


@pytest.fixture
def second(tmp_path: Path, store: Path, first: Clone) -> Clone:
    return Clone(tmp_path / "another place" / "second", store.as_uri())
