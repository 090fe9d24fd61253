"""The build of an operator at a revision of git, for `doit bench --against`, in a shadow of the project."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from opmatrix.declaration.load import Operator
from opmatrix.errors import BenchError, UsageError, printable
from opmatrix.mutation.shadow import Shadow
from opmatrix.project.paths import Paths

_LIBRARIES = "lib*.so"


def _git(root: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Run git in the project's folder. Raises UsageError where there is no git."""
    try:
        return subprocess.run(["git", *words], cwd=root, capture_output=True)
    except FileNotFoundError as error:
        raise UsageError("--against takes a revision of git, and there is no git on PATH. Install it") from error


def commit_of(root: Path, rev: str) -> str:
    """Return the commit of a revision. Raises UsageError outside a repository, and for an unknown revision."""
    if _git(root, "rev-parse", "--git-dir").returncode:
        raise UsageError(f"--against takes a revision of git, and {str(root)!r} is in no git repository")
    found = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{rev}^{{commit}}")
    if found.returncode:
        raise UsageError(f"--against: git knows no revision {rev!r}, allowed: a commit, a branch or a tag")
    return found.stdout.decode().strip()


@dataclass(frozen=True, kw_only=True)
class Revision:
    """An operator at a revision: its files in ops/ and native/. Headers of opmatrix and other operators are today's, so
    that only the operator differs."""

    paths: Paths
    operator: Operator
    rev: str
    commit: str

    def build(self) -> None:
        """Compile the operator in a shadow of the project. Raises UsageError if the revision lacks it, BenchError if it
        does not compile today."""
        name, real = self.operator.name, self.paths
        if _git(real.root, "cat-file", "-e", f"{self.commit}:./ops/{name}/spec.py").returncode:
            raise UsageError(
                f"--against: {self.rev} has no ops/{name}/spec.py: the operator is newer. Choose a later revision"
            )
        files = [f"ops/{name}"]
        if not _git(real.root, "cat-file", "-e", f"{self.commit}:./native/{name}").returncode:
            files.append(f"native/{name}")
        taken = _git(real.root, "archive", "--format=tar", self.commit, *files)
        if taken.returncode:
            raise UsageError(f"--against: git archive {self.rev}: {taken.stderr.decode().strip()}")
        uses = (*self.operator.spec.uses,)
        root = real.bench_shadow(name)
        shadow = Shadow(real=real, root=root, name=name, own=("compile", "generated"), uses=uses)
        for folder in (shadow.paths.op(name), shadow.paths.kernel(name).parent):
            shutil.rmtree(folder, ignore_errors=True)
        shadow.make()
        for folder in (shadow.paths.op(name), shadow.paths.kernel(name).parent):
            shutil.rmtree(folder, ignore_errors=True)  # the links to the files of today
        with tarfile.open(fileobj=BytesIO(taken.stdout)) as archive:
            archive.extractall(root, filter="data")
        for stage in ("codegen", "compile"):
            command = [sys.executable, "-m", "opmatrix", stage, name]
            done = subprocess.run(command, cwd=root, capture_output=True, text=True)
            if done.returncode:
                said = printable(f"{done.stdout}{done.stderr}".strip())
                raise BenchError(f"{said}\n{name} at {self.rev} fails in {stage} with this opmatrix and its headers. "
                                 "Choose a revision that it compiles")  # fmt: skip

    def copy_libraries(self) -> None:
        """Make a shadow with copies of today's libraries. The second process of this build, which measures the noise,
        loads them: the build of the revision has other files, too."""
        name, real = self.operator.name, self.paths
        shadow = Shadow(
            real=real, root=real.bench_again(name), name=name, own=("compile",), uses=self.operator.spec.uses
        )
        shadow.make_anew()
        folder = shadow.paths.compile_folder(name)
        folder.mkdir(parents=True, exist_ok=True)
        for path in (*real.compile_folder(name).glob(_LIBRARIES), real.torch_version(name)):
            if path.is_file():
                shutil.copy(path, folder)
