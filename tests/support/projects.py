"""Projects to plant faults in: copies of this one in a temporary folder."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opmatrix.project.paths import Paths
from tests.support.kept import environ, keeper

ROOT = Path(__file__).parents[2]
LIMITS = "[tool.opmatrix.limits]\nseconds = 3600\n"  # of this project, and of each that tests make


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write files, given as text by path, and the folders that they are in."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def replace_in(path: Path, old: str, new: str) -> None:
    """Replace `old` in a file, which must contain it."""
    text = path.read_text()
    assert old in text, f"{old!r} is not in {path}"
    path.write_text(text.replace(old, new))


def give_an_hour(root: Path) -> None:
    """Let a step of a project take an hour, as those of this one may."""
    path = root / "pyproject.toml"
    path.write_text(f"{path.read_text()}\n{LIMITS}")


@contextmanager
def edited(path: Path, old: str, new: str) -> Iterator[None]:
    """Replace `old` in a file, which must contain it, and restore the file afterwards."""
    before = path.read_text()
    replace_in(path, old, new)
    try:
        yield
    finally:
        path.write_text(before)


def with_reference(root: Path, name: str, reference: str) -> Paths:
    """Make a project with only the reference of one operator."""
    paths = Paths(root)
    paths.op(name).mkdir(parents=True)
    paths.reference(name).write_text(reference)
    return paths


def compiled_once(folder: Path) -> None:
    """Let kernels be compiled once, which takes a third of the time; tests/toolchain/test_cpu_levels.py has levels."""
    for path in folder.glob("ops/*/spec.py"):
        path.write_text(path.read_text().replace("    cpu_levels=True,\n", ""))


@dataclass(frozen=True)
class Project:
    """A copy of this project. It uses the installed opmatrix, not a copy of it."""

    root: Path

    @property
    def paths(self) -> Paths:
        return Paths(self.root)

    @classmethod
    def copy(cls, folder: Path, *, operators: Sequence[str] = ("group_norm",), megabytes: int = 8000) -> Project:
        """Copy the handwritten files of some operators. A step may take `megabytes`, and an hour on a busy machine."""
        for part in (
            "native/include",
            "native/binding",
            *(f"{room}/{o}" for room in ("ops", "native") for o in operators),
        ):
            if (ROOT / part).is_dir():  # an operator without a kernel has no folder in native/
                shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        compiled_once(folder)
        shutil.copy(ROOT / "dodo.py", folder / "dodo.py")
        # The limits are the last table: tests append to it, and replace the tables before it.
        settings = (ROOT / "pyproject.toml").read_text().replace(LIMITS, "")
        (folder / "pyproject.toml").write_text(f"{settings}\n{LIMITS}megabytes = {megabytes}\n")
        return cls(folder)

    @classmethod
    def of(cls, name: str, folder: Path) -> Project:
        """Copy the project tests/projects/`name`."""
        made = cls.copy(folder, operators=())
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "tests/projects" / name, folder, ignore=ignored, dirs_exist_ok=True)
        return made

    @classmethod
    def verified(cls, name: str, folder: Path, *arguments: str) -> Project:
        """Copy the project tests/projects/`name` and run doit in it, which must pass."""
        made = cls.of(name, folder)
        made.passes(*arguments)
        return made

    def bring(self, *operators: str) -> None:
        """Add existing operators with handwritten bindings: those of tests/projects/existing."""
        for part in ("third_party", *(f"{room}/{o}" for room in ("ops", "native") for o in operators)):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(
                ROOT / "tests/projects/existing" / part, self.root / part, ignore=ignored, dirs_exist_ok=True
            )

    def unpublish(self, operator: str) -> None:
        """Remove the published schemas, so that a test may edit the declaration in ways that they would refuse."""
        shutil.rmtree(self.paths.op(operator) / "published")

    def second_operator(self, name: str) -> None:
        """Add group_norm again under other names; it is not published."""
        for part in ("ops", "native"):
            ignored = shutil.ignore_patterns("published", "__pycache__")
            shutil.copytree(self.root / part / "group_norm", self.root / part / name, ignore=ignored)
            for path in (self.root / part / name).iterdir():
                text = path.read_text().replace("group_norm", name)
                text = text.replace("mydomain", f"{name}.domain").replace("mynamespace", name)
                path.write_text(text)

    def replace(self, path: str, old: str, new: str) -> None:
        """Replace `old` in a file, which must contain it."""
        replace_in(self.root / path, old, new)

    def doit(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run doit, with the servers of earlier runs, unless variables differ, or the project has environments of other
        versions, or its own pipeline/, which is used then."""
        own = self.root / "pipeline"
        apart = environment or own.is_dir() or (self.root / ".venv-matrix").is_dir()
        if not apart and (kept := keeper()).environ == environ():
            return kept.run(self.root, arguments)
        path = [str(own)] if own.is_dir() else []
        path += filter(None, [(os.environ | environment).get("PYTHONPATH")])
        return subprocess.run(
            [sys.executable, "-m", "doit", *arguments],
            cwd=self.root,
            env=os.environ | environment | {"PYTHONPATH": os.pathsep.join(path)},
            capture_output=True,
            text=True,
            timeout=3600,
        )

    def passes(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run doit, which must pass."""
        done = self.doit(*arguments, **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    def fails(self, *arguments: str, message: str) -> subprocess.CompletedProcess[str]:
        """Run doit, which must fail and print the message."""
        done = self.doit(*arguments)
        assert done.returncode == 1 and message in done.stdout + done.stderr, done.stdout + done.stderr
        return done

    def stage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a stage of the pipeline by hand."""
        command = [sys.executable, "-m", "opmatrix", *arguments]
        return subprocess.run(command, cwd=self.root, capture_output=True, text=True)

    def calls(self, operator: str, program: str, message: str) -> None:
        """Run a program with the operator in torch, which must fail with the message, or pass without one."""
        load = f"import torch\ntorch.ops.load_library({str(self.paths.torch_library(operator))!r})"
        done = subprocess.run([sys.executable, "-c", f"{load}\n{program}"], capture_output=True, text=True)
        assert (done.returncode == 0) == (not message), done.stderr
        assert message in done.stderr

    def records(self) -> dict[str, dict[str, Any]]:
        """Return the report's records by ``<op>-<lowering>@<cell>``, each with its cases."""
        report = json.loads((self.paths.report / "report.json").read_text())
        found = [cell | {"cases": report["cases"][cell["cases"]]} for cell in report["cells"]]
        return {
            f"{r['op']}-{r['lowering']}@torch{r['torch']}-{r['exporter']}-opset{r['opset']}-ort{r['ort']}": r
            for r in found
        }
