"""What a user does who installs opmatrix today: pip, the quick start, `doit dist`, and the wheel that it makes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from opmatrix.basics.version import minor
from opmatrix.environments.pip_install import TORCH_INDEX
from tests.docs.page import PageError, parse
from tests.docs.walk import walk
from tests.support.projects import ROOT

PAGE = "quick-start.md"
_USE = """\
import sys, numpy as np, onnxruntime, torch, my_ops, my_ops_onnxruntime
assert "opmatrix" not in sys.modules, "the wheel imports opmatrix"
x, scale = torch.randn(2, 5), torch.randn(2, 5)
expected = torch.ops.my.scale_shift(x, scale, -1.75)
np.testing.assert_allclose(expected.numpy(), x.numpy() * scale.numpy() - 1.75, rtol=1e-6, atol=1e-6)
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(str(my_ops_onnxruntime.library_path()))
(y,) = onnxruntime.InferenceSession(sys.argv[1], options).run(None, {"x": x.numpy(), "scale": scale.numpy()})
np.testing.assert_allclose(y, expected.numpy(), rtol=1e-6, atol=1e-6)
"""


def pins() -> dict[str, str]:
    """Return the versions in which the tests of this repository run."""
    lines = [
        *(ROOT / "requirements/main.txt").read_text().split(),
        *(ROOT / "requirements/torch-cpu.txt").read_text().split(),
    ]
    return {name: version for name, _, version in (line.partition("==") for line in lines) if version}


class InstallationError(Exception):
    """A command of the user failed; the message is the command with the end of its output."""


@dataclass(frozen=True)
class Installation:
    """An environment with opmatrix's wheel, made by pip alone."""

    folder: Path
    packages: Mapping[str, str]

    @classmethod
    def make(cls, folder: Path, wheel: Path, *, constraints: Path | None = None) -> Installation:
        """Install torch's CPU build, then the wheel, as the quick start says: in the newest versions of the index,
        unless a file of constraints pins them. Raises InstallationError."""
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "--disable-pip-version-check"]
        install = [*pip, "install", "--quiet", *(["--constraint", str(constraints)] if constraints else [])]
        index = os.environ.get("OPMATRIX_TORCH_INDEX", TORCH_INDEX)
        _run([*install, *(["--index-url", index] if index else []), "torch"])
        _run([*install, str(wheel)])
        listed = _run([*pip, "list", "--format", "freeze"])
        return cls(folder, dict(re.findall(r"^([\w.-]+)==(\S+)$", listed, re.MULTILINE)))

    def follow(self, folder: Path) -> None:
        """Follow the quick start, make a wheel of its operator and use that. Raises InstallationError."""
        text = (ROOT / "docs" / PAGE).read_text()
        pinned = pins()
        for factor, package in (("torch", "torch"), ("ort", "onnxruntime")):
            text = text.replace(f"{factor}{minor(pinned[package])}", f"{factor}{minor(self.packages[package])}")
        try:
            walk(parse(f"docs/{PAGE}", text), folder, root=ROOT, prefix=self.folder)
        except PageError as error:
            raise InstallationError(str(error)) from error
        project, python = folder / "home/my_ops", self.folder / "bin/python"
        for path in project.glob("*/scale_shift/*"):
            path.write_text(path.read_text().replace("TODO", "Filled in"))
        path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        environ = {**os.environ, "HOME": str(folder / "home"), "PATH": path}
        _run([str(python.with_name("doit")), "dist"], cwd=project, environ=environ)
        (made,) = (project / "build/dist").glob("*.whl")
        pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
        _run([*pip, "uninstall", "--yes", "--quiet", "opmatrix"])
        _run([*pip, "install", "--quiet", "--no-index", "--no-deps", str(made)])
        (model,) = project.glob("build/export/scale_shift/custom/*-dynamo-opset18/dynamic_float32/model.onnx")
        _run([str(python), "-c", _USE, str(model)], cwd=folder)


def _run(command: list[str], *, cwd: Path | None = None, environ: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        end = "\n".join(done.stdout.strip().splitlines()[-60:])
        raise InstallationError(f"$ {' '.join(command)}\nexit code {done.returncode}\n{end}")
    return done.stdout
