"""What a key contains in addition to the step: Python, the packages, the level of the processor."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from opmatrix.project.paths import Paths
from opmatrix.shared_cache import salt as module
from opmatrix.shared_cache.salt import digest, level, parts


def salt(project: Paths, environment: str | None) -> str:
    return digest(parts(project, environment))


@pytest.fixture
def project(tmp_path: Path) -> Paths:
    paths = Paths(tmp_path)
    (paths.ops / "x").mkdir(parents=True)
    (paths.ops / "x/reference.py").write_text("import math\nimport numpy as np\nfrom opmatrix import spec\n")
    return paths


def test_the_level_is_that_of_proofs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Machines with more share with those without."""
    monkeypatch.setattr(module.platform, "machine", lambda: "x86_64")
    found = []
    for levels in ((2, 3), (2, 3, 4), (2,), ()):
        monkeypatch.setattr(module.cpu_levels, "of_processor", lambda levels=levels: levels)
        found.append(level())
    assert found == ["x86-64-v3", "x86-64-v3", "x86-64-v2", "x86-64-v2"]


def test_another_version_of_what_steps_import_is_another_salt(project: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    before = salt(project, None)
    assert salt(project, None) == before
    found = metadata.distribution

    class Newer:
        requires: tuple[str, ...] = ()
        version = "99"

    for name, changes in {"protobuf": True, "torch": True, "jinja2": True, "mypy": False, "tox": False}.items():
        chosen = lambda asked, name=name: Newer() if asked == name else found(asked)  # noqa: E731
        monkeypatch.setattr(module.metadata, "distribution", chosen)
        assert (salt(project, None) != before) == changes, name


@pytest.mark.parametrize(("name", "found"), [("python_version", "3.99.1"), ("libc_ver", ("glibc", "2.99"))])
def test_another_python_or_c_library_is_another_salt(
    project: Paths, monkeypatch: pytest.MonkeyPatch, name: str, found: object
) -> None:
    before = salt(project, None)
    monkeypatch.setattr(module.platform, name, lambda: found)
    assert salt(project, None) != before


def test_what_an_operator_imports_is_in_the_salt(project: Paths) -> None:
    before = salt(project, None)
    (project.ops / "x/reference.py").write_text("import numpy as np\nimport json\n")
    assert salt(project, None) == before
    (project.ops / "x/reference.py").write_text("from selenium.webdriver import Chrome\n")
    assert salt(project, None) != before


def test_an_environment_of_the_matrix_counts_with_all_that_it_has(project: Paths) -> None:
    folder = project.environment("ort1.18") / "lib/python3.11/site-packages"
    folder.mkdir(parents=True)
    (folder / "onnxruntime-1.18.1.dist-info").mkdir()
    before = salt(project, "ort1.18")
    (folder / "flatbuffers-25.dist-info").mkdir()
    assert salt(project, "ort1.18") != before != salt(project, None)


@pytest.mark.torch
def test_a_server_keeps_numpy_and_torch_at_the_level_of_proofs() -> None:
    code = (
        "import json, os, warnings; warnings.simplefilter('error')\n"
        "from opmatrix.engine.server_main import ENVIRONMENT, pin_numpy\n"
        "os.environ.update(ENVIRONMENT); pin_numpy()\n"
        "import numpy._core._multiarray_umath as numpy, torch\n"
        "found = [name for name, has in numpy.__cpu_features__.items() if has and name in numpy.__cpu_dispatch__]\n"
        "print(json.dumps([found, torch.backends.cpu.get_cpu_capability()]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    features, capability = json.loads(done.stdout)
    assert set(features) <= {"X86_V3"}
    assert capability in ("AVX2", "DEFAULT")
