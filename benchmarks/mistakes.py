"""What a user reads after each of the twelve commonest mistakes, on a terminal of 80x24.

    ./run python benchmarks/mistakes.py [--only NAME] [--keep FOLDER] [REVISION]

Plants each mistake in a verified project of two operators, runs the ordinary command in a terminal, and prints a table:
the lines in all, the line at which the cause begins, and whether the last 24 lines have the cause, its file and line,
and a command. With a REVISION, the same of that revision of opmatrix. FOLDER gets the last screen of each mistake, and
its project. The exit code is 1 if a last screen of the working tree lacks something.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from measuring import DOIT, ROOT

sys.path.insert(0, str(ROOT))  # for tests.support

from tests.support.projects import replace_in
from tests.support.screen import COLUMNS, Seen, run

OPERATORS = ("group_norm", "custom_op_one")
SECONDS = 10  # the limit of a step
LIMIT = "seconds = 3600\n"  # of this repository, in its pyproject.toml
KERNEL, SPEC = "native/group_norm/kernel.h", "ops/group_norm/spec.py"
PYTHON = (sys.executable, "-m", "opmatrix")
RETURN = "  if (x.numel() == 0) return;\n"
# In one case of each model alone, that with odd sizes.
ODD = RETURN + "  if (x.size(1) == 9) {body}\n"
REFUSING = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
ATTRIBUTE = """    attributes=(
        Attribute(
            name="epsilon", kind="float", default=1e-5, torch_name="eps", minimum=0.0, doc="added to the variance"
        ),
    ),
"""


@contextmanager
def held_lock(project: Path) -> Iterator[None]:
    """Let a process hold the lock of the build folder, as one that a killed run left behind."""
    path = project / "build/lock"
    path.parent.mkdir(exist_ok=True)
    ended = subprocess.Popen(["true"])
    ended.wait()
    path.write_text(f"{ended.pid}\n")
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        holder = subprocess.Popen(["sleep", "600"], pass_fds=[file.fileno()])
    try:
        yield
    finally:
        holder.kill()
        holder.wait()


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """One mistake: the edits that plant it, the command that a user runs, and what the last screen must have, as
    regular expressions of the text without line breaks."""

    name: str
    edits: Sequence[tuple[str, str, str]] = ()
    command: Sequence[str] = DOIT
    environment: Mapping[str, str] = field(default_factory=dict)
    around: Callable[[Path], AbstractContextManager[None]] = lambda _: nullcontext()
    cause: str
    where: str
    remedy: str


MISTAKES = (
    Mistake(
        name="compile-error",
        edits=[(KERNEL, "bias.data + c,", "bias.dat + c,")],
        cause=r"has no member named .dat.",
        where=r"native/group_norm/kernel\.h:3\d\d",
        remedy=r"python -m opmatrix compile group_norm|doit",
    ),
    Mistake(
        name="wrong-kernel",
        edits=[(KERNEL, "(x - shift) * factor + bias", "(x - shift) * factor - bias")],
        cause=r"elements differ|mismatch|of \d+ elements",
        where=r"native/group_norm/kernel\.h|ops/group_norm",
        remedy=r"python -m opmatrix (register|verify) group_norm .*--case \w+",
    ),
    Mistake(
        name="lowering",
        edits=[("ops/group_norm/lowering.py", 'y = g.op("Add", g.op("Mul"', 'y = g.op("Sub", g.op("Mul"')],
        cause=r"elements differ|mismatch|of \d+ elements",
        where=r"ops/group_norm/lowering\.py",
        remedy=r"python -m opmatrix (export|verify) group_norm",
    ),
    Mistake(
        name="shape-rule",
        edits=[(SPEC, 'shape=SameAs(input="x")', 'shape=SameAs(input="scale")')],
        cause=r"gives 'y' the shape \(\d.*; the shape rule, as input 'scale'",
        where=r"ops/group_norm/spec\.py:?.*outputs\['y'\]\.shape|ops/group_norm/spec\.py:28",
        remedy=r"Correct (this rule|its `shape`)",
    ),
    Mistake(
        name="gradient",
        edits=[("ops/group_norm/torch_op.py", "- z * mean(inner * z)", "+ z * mean(inner * z)")],
        cause=r"Jacobian mismatch for output 0 with respect to input 0",
        where=r"ops/group_norm/torch_op\.py",
        remedy=r"python -m opmatrix register group_norm",
    ),
    Mistake(
        name="missing-attribute",
        edits=[(SPEC, ATTRIBUTE, ""), (SPEC, "import Attribute, Input", "import Input")],
        cause=r"found 'epsilon', allowed:",
        where=r"ops/group_norm/cases\.py",
        remedy=r"Declare it in ops/group_norm/spec\.py:\d+: attributes=\(Attribute\(name=.epsilon., .*default=",
    ),
    Mistake(
        name="crash",
        edits=[(KERNEL, RETURN, ODD.format(body="*static_cast<volatile int*>(nullptr) = 0;"))],
        cause=r"SIGSEGV.* case \w+",
        where=r"native/group_norm/kernel\.h",
        remedy=r"doit sanitize:group_norm|gdb --args",
    ),
    Mistake(
        name="hang",
        edits=[(KERNEL, RETURN, ODD.format(body="for (volatile int i = 1; i > 0;) i = 1;"))],
        cause=r"did not end within \d+ s.* case \w+",
        where=r"native/group_norm/kernel\.h",
        remedy=r"python -m opmatrix (register|verify) group_norm .*--case \w+",
    ),
    Mistake(
        name="missing-environment",
        command=(*PYTHON, "verify", "group_norm", "--cell", "torch2.13-legacy-opset17-ort1.18"),
        cause=r"environment ort1\.18 has not been created yet",
        where=r"ort1\.18",
        remedy=r"Run: python -m opmatrix environment ort1\.18 .*repeat this command",
    ),
    Mistake(
        name="no-network",
        command=(*DOIT, "ort=1.18"),
        environment=REFUSING,
        cause=r"pip cannot reach http://127\.0\.0\.1:9/simple \(Connection refused",
        where=r"PIP_INDEX_URL.*requirements/ort1\.18\.txt",
        remedy=r"run `pip download.* wheels here, and run again with PIP_NO_INDEX=1 PIP_FIND_LINKS=wheels",
    ),
    Mistake(
        name="broken-spec",
        edits=[(SPEC, 'shape=SameAs(input="x")', 'shpae=SameAs(input="x")')],
        cause=r"shpae: unknown argument of Output",
        where=r"ops/group_norm/spec\.py",
        remedy=r"did you mean 'shape'\?",
    ),
    Mistake(
        name="stale-lock",
        around=held_lock,
        cause=r"has ended, and a process that it started still holds",
        where=r"build/lock",
        remedy=r"stop it: kill \d+.*safe.*repeat your command",
    ),
)


@dataclass(frozen=True)
class Read:
    """What a user reads of one mistake."""

    mistake: Mistake
    seen: Seen

    @property
    def lines(self) -> int:
        return len(self.seen.lines)

    @property
    def cause(self) -> int:
        """The line at which the cause begins, 0 if it is nowhere."""
        for first, row in enumerate(self.seen.lines):
            found = re.search(self.mistake.cause, joined(self.seen.lines[first : first + 5]))
            if found and found.start() <= len(row):
                return first + 1
        return 0

    def missing(self) -> list[str]:
        """Return what the last screen lacks."""
        last = joined(self.seen.screen)
        wanted = {"cause": self.mistake.cause, "where": self.mistake.where, "command": self.mistake.remedy}
        return [what for what, pattern in wanted.items() if not re.search(pattern, last, re.DOTALL)]


def joined(rows: Sequence[str]) -> str:
    """Return rows of a terminal as one line, in which words that its edge cut, and commands of several lines, are
    whole."""
    return re.sub(r"\s+(\\ )?\s*", " ", "".join(row if len(row) == COLUMNS else f"{row} " for row in rows))


def environment(tool: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(tool / "pipeline"), os.environ.get("PYTHONPATH", "")])}


def make_project(tool: Path, folder: Path, *, seconds: int = SECONDS) -> Path:
    """Copy two operators. A step may take so many seconds."""
    project = folder / "project"
    for name in ("native/include", "native/binding", *(f"{room}/{o}" for room in ("ops", "native") for o in OPERATORS)):
        shutil.copytree(tool / name, project / name, ignore=shutil.ignore_patterns("__pycache__", "published"))
    shutil.copy(tool / "dodo.py", project)
    settings = (tool / "pyproject.toml").read_text()
    assert LIMIT in settings, "the limit of this repository"
    (project / "pyproject.toml").write_text(settings.replace(LIMIT, f"seconds = {seconds}\n"))
    return project


def read(tool: Path, project: Path, mistake: Mistake) -> Read:
    """Plant a mistake, run its command, and take the mistake back."""
    before = {path: (project / path).read_text() for path, _, _ in mistake.edits}
    try:
        for path, old, new in mistake.edits:
            replace_in(project / path, old, new)
        with mistake.around(project):
            seen = run(mistake.command, cwd=project, seconds=900, **environment(tool), **mistake.environment)
    finally:
        for path, text in before.items():
            (project / path).write_text(text)
    if seen.code == 0:
        sys.exit(f"{mistake.name}: the command succeeded:\n{seen.last}")
    return Read(mistake, seen)


def keep(found: Read, tool: Path, folder: Path) -> None:
    """Write the last screen of a mistake, and its project as the user has it."""
    folder.mkdir(parents=True, exist_ok=True)
    name = found.mistake.name
    (folder / f"{name}.txt").write_text(found.seen.last.rstrip() + "\n")
    (folder / f"{name}.all.txt").write_text("\n".join(found.seen.lines) + "\n")
    shutil.rmtree(folder / name, ignore_errors=True)
    (folder / name).mkdir()
    project = make_project(tool, folder / name)
    for path, old, new in found.mistake.edits:
        replace_in(project / path, old, new)


def all_read(tool: Path, mistakes: Sequence[Mistake], kept: Path | None) -> dict[str, Read]:
    found = {}
    with tempfile.TemporaryDirectory(prefix="opmatrix-mistakes-") as folder:
        project = make_project(tool, Path(folder))
        first = run(DOIT, cwd=project, seconds=900, **environment(tool))
        if first.code:
            sys.exit(f"the project without a mistake is not verified:\n{first.text}")
        for mistake in mistakes:
            found[mistake.name] = one = read(tool, project, mistake)
            print(f"{mistake.name}: {one.lines} lines, cause at {one.cause}, missing: {one.missing()}", file=sys.stderr)
            if kept:
                keep(one, tool, kept)
            run(DOIT, cwd=project, seconds=900, **environment(tool))  # as it was
    return found


def row(name: str, found: Sequence[Read]) -> str:
    cells = [f"{one.lines} | {one.cause or '-'} | {', '.join(one.missing()) or 'nothing'}" for one in found]
    return f"| {name.replace('-', ' ')} | {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", action="append", choices=[mistake.name for mistake in MISTAKES])
    parser.add_argument("--keep", type=Path)
    parser.add_argument("revision", nargs="?")
    options = parser.parse_args()
    mistakes = [mistake for mistake in MISTAKES if not options.only or mistake.name in options.only]
    columns = []
    if options.revision:
        with tempfile.TemporaryDirectory(prefix="opmatrix-revision-") as folder:
            for command in (["clone", "-q", str(ROOT), folder], ["-C", folder, "checkout", "-q", options.revision]):
                subprocess.run(["git", *command], check=True)
            columns.append(all_read(Path(folder), mistakes, options.keep and options.keep / options.revision))
    columns.append(all_read(ROOT, mistakes, options.keep))
    heads = [*([options.revision] if options.revision else []), "now"]
    print(f"| mistake | {' | '.join(f'lines, {h} | cause at | the last 24 lack' for h in heads)} |")
    print(f"|---{'|---|---|---' * len(heads)}|")
    for mistake in mistakes:
        print(row(mistake.name, [column[mistake.name] for column in columns]))
    return int(any(one.missing() for one in columns[-1].values()))


if __name__ == "__main__":
    sys.exit(main())
