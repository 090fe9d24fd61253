"""group_norm with few models at one opset, in a project with a copy of the pipeline; tests may edit all of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.projects import ROOT
from tests.support.projects import Project as Copied

KERNEL = "native/group_norm/kernel.h"
CASES = "ops/group_norm/cases.py"

_RAN = re.compile(r"^\[\d+/\d+\] \d+\.\ds (\S+)( FAILED)?$", re.MULTILINE)


class RealProject(Copied):
    """Real steps: compiler, torch, both exporters, ONNX Runtime. Opset 18 is the default."""

    @classmethod
    def make(cls, folder: Path) -> RealProject:
        made = cls(Copied.copy(folder).root)
        shutil.copytree(ROOT / "pipeline", folder / "pipeline", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "LICENSE", folder)  # wheels of operators include it
        made.append(CASES, '\n\nMODELS = (SEED, flat("float64"))\n')
        _take_out_halves(made.root / "ops/group_norm")
        settings = made.root / "pyproject.toml"
        settings.write_text(
            re.sub(r"^(legacy|dynamo|node) = .*$", r"\1 = [18]", settings.read_text(), flags=re.MULTILINE)
        )
        return made

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.doit(*arguments, **environment)

    def ran(self, done: subprocess.CompletedProcess[str]) -> set[str]:
        """Return the steps that ran, with short cells and operator names: ``verify custom dynamo``."""
        return {_brief(name) for name, _ in _RAN.findall(done.stdout)}

    def would_run(self, **environment: str) -> set[str]:
        """Return the steps that `doit why` reports as certain to run."""
        output = self.run("why", **environment).stdout
        return {_brief(line.split(": ")[0]) for line in output.splitlines()[:-1] if ": after " not in line}

    def append(self, path: str, text: str) -> None:
        with (self.root / path).open("a") as file:
            file.write(text)


def _take_out_halves(operator: Path) -> None:
    """Leave float32 and float64, each of which has a model."""
    spec, published = operator / "spec.py", operator / "published/1/schema.json"
    spec.write_text(re.sub(r', "float16", "bfloat16"|^ *"b?float16": .*\n', "", spec.read_text(), flags=re.MULTILINE))
    schema = json.loads(published.read_text())
    del schema["later_types"]
    published.write_text(json.dumps(schema, indent=2) + "\n")


def _brief(task: str) -> str:
    name = re.sub(r"@torch[\d.]+-(\w+)-opset\d+(-ort[\d.]+)?$", r" \1", task)
    name = re.sub(r"@torch[\d.]+$", "", name)
    return re.sub(r":group_norm-?", " ", name).replace("-", " ").strip()


def expand(words: str) -> set[str]:
    """Return the set of ``compile, verify custom`` with the name of each export and verify cell."""
    found: set[str] = set()
    for word in filter(None, map(str.strip, words.split(","))):
        cells = word.startswith(("export", "verify")) and not word.endswith(("legacy", "dynamo", "agreement"))
        found |= {f"{word} legacy", f"{word} dynamo"} if cells else {word}
    return found


def package(folder: Path, name: str, version: str) -> Mapping[str, str]:
    """Return an environment in which another version of a package seems to be installed."""
    metadata = folder / f"{name}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return {"PYTHONPATH": str(folder)}
