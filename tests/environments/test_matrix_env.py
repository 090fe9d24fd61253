"""opmatrix.environments.matrix_env: its decisions and its messages, with a stub for pip and no network."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.basics.errors import Cause, NoEnvironmentError, UsageError
from opmatrix.environments import bootstrap, matrix_env, pip_install
from opmatrix.environments.pip_install import SetupError
from opmatrix.project import cells
from opmatrix.project.cells import rows
from opmatrix.project.paths import Paths
from tests.support.raising import raising

PACKAGES = {"torch": "2.9.1+cpu", "onnx": "1.23.2", "onnx_ir": "1.1.0"}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / "requirements").mkdir()
    for name in ("torch2.9.txt", "torch2.9-cpu.txt", "ort1.18.txt"):
        (tmp_path / "requirements" / name).write_text(f"# {name}\n")
    return Paths(tmp_path)


@pytest.fixture
def asked(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The packages that pip was called with; the stub makes them importable."""
    calls: list[tuple[str, ...]] = []
    monkeypatch.delenv("OPMATRIX_TORCH_INDEX", raising=False)

    def install(pip: pip_install.Pip, *arguments: str) -> None:
        calls.append(arguments)
        site = pip.paths.environment / f"lib/python3.{sys.version_info[1]}/site-packages"
        for name, version in PACKAGES.items():
            info = site / f"{name}-{version}.dist-info"
            info.mkdir(parents=True, exist_ok=True)
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")

    monkeypatch.setattr(pip_install.Pip, "install", install)
    monkeypatch.setattr(matrix_env, "_check_imports", lambda *_: None)
    monkeypatch.setattr(bootstrap, "check_disk", lambda _: None)
    return calls


def test_an_environment_is_made_once(
    paths: Paths, asked: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix_env.run(paths, "torch2.9")
    lock, torch = asked
    assert lock == ("--require-hashes", "--no-deps", "-r", str(paths.root / "requirements/torch2.9.txt"))
    assert torch[:2] == ("--index-url", pip_install.TORCH_INDEX)
    assert torch[-3:] == ("--no-deps", "-r", str(paths.root / "requirements/torch2.9-cpu.txt"))
    versions = [paths.installed_version("torch2.9", name).read_text() for name in ("torch", "onnx-ir")]
    assert versions == ["2.9.1+cpu\n", "1.1.0\n"]
    matrix_env.run(paths, "torch2.9")
    assert len(asked) == 2
    monkeypatch.setenv("OPMATRIX_TORCH_INDEX", "")  # leaves the index to pip
    rest = paths.environment("torch2.9") / "rest"
    for name in ("torch2.9.txt", "torch2.9-cpu.txt"):
        rest.touch()
        (paths.root / "requirements" / name).write_text("# changed\n")
        asked.clear()
        matrix_env.run(paths, "torch2.9")
        assert len(asked) == 2 and not rest.exists() and "--index-url" not in asked[1]


def test_an_interrupted_try_starts_clean(
    paths: Paths, asked: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(matrix_env, "_check_imports", raising(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            matrix_env.run(paths, "torch2.9")
    assert not paths.stamp("torch2.9").exists() and not paths.installed_version("torch2.9", "torch").exists()
    rest = paths.environment("torch2.9") / "rest"
    rest.touch()
    matrix_env.run(paths, "torch2.9")
    assert not rest.exists() and paths.stamp("torch2.9").is_dir()


def test_the_message_of_pip_or_a_full_disk_is_the_reason(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(matrix_env, "_NEEDED_BYTES", {"torch": 2, "ort": 10**18})
        with pytest.raises(
            NoEnvironmentError, match=r"^environment ort1\.18: the disk is full: .* needs 1000000000 GB"
        ):
            matrix_env.run(paths, "ort1.18")
    assert not paths.environment("ort1.18").exists()
    sentence = "no network: pip cannot reach its package index."
    monkeypatch.setattr(pip_install.Pip, "install", raising(SetupError(69, sentence)))
    monkeypatch.setattr(bootstrap, "check_disk", lambda _: None)
    with pytest.raises(NoEnvironmentError, match=r"^environment ort1\.18: no network: pip cannot reach") as info:
        matrix_env.run(paths, "ort1.18")
    assert info.value.cause == Cause(sentence=sentence), "not what was printed"


def test_an_environment_that_cannot_import_its_package_is_refused(paths: Paths, tmp_path: Path) -> None:
    venv = pip_install.VenvPaths(root=tmp_path, name=".venv-matrix/torch2.9")
    venv.python.parent.mkdir(parents=True)
    venv.python.write_text("#!/bin/sh\necho 'OSError: libcudart.so.12: no such file' >&2\nexit 1\n")
    venv.python.chmod(0o755)
    with pytest.raises(SetupError, match=r"cannot be imported: OSError: libcudart\.so\.12: .* Is it a CPU build\?"):
        matrix_env._check_imports("torch2.9", venv)


def test_an_older_python_is_found_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 13, 0))
    for minor, says in ((12, "3.9"), (11, "3.11")):  # the first python3.11 on PATH has another version than its name
        path = tmp_path / f"python3.{minor}"
        path.write_text(f"#!/bin/sh\necho {says}\n")
        path.chmod(0o755)
    environ: dict[str, str] = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert matrix_env.find_python("ort1.18", newest="3.12", environ=environ) == str(tmp_path / "python3.11")
    assert matrix_env.find_python("torch2.9", newest="3.13", environ=environ) == sys.executable
    (tmp_path / "python3.11").unlink()
    with pytest.raises(
        SetupError, match=r"^ort1\.16 has wheels for CPython 3\.11, and no such Python is on PATH"
    ) as info:
        matrix_env.find_python("ort1.16", newest="3.11", environ={"PATH": str(tmp_path)})
    assert info.value.code == 72


def test_an_unknown_environment_and_a_row_without_pins_are_errors(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, message in (
        ("torch2.14", "no environment 'torch2.14'; allowed: torch1.13, torch2.0, "),
        ("python", "no environment 'python'"),
    ):
        with pytest.raises(UsageError, match=re.escape(message)):
            matrix_env.run(paths, name)
    monkeypatch.setattr(cells, "_rows", replace(rows(), torch={**rows().torch, "2.14": rows().torch["2.13"]}))
    with pytest.raises(UsageError, match=r"environment torch2.14: its pins are missing, requirements/torch2.14.txt"):
        matrix_env.run(paths, "torch2.14")


def test_missing_pins_are_those_of_opmatrix(paths: Paths, root: Path) -> None:
    """A project may have additional pins of its own; this one has those of torch2.9 and ort1.18."""
    assert paths.pins("ort1.21")[0].samefile(root / "requirements/ort1.21.txt")
    own, shipped = paths.root / "requirements/torch2.9.txt", root / "requirements/torch2.9-cpu.txt"
    (paths.root / "requirements/torch2.9-cpu.txt").unlink()
    first, second = paths.pins("torch2.9")
    assert first == own and second.samefile(shipped)


def test_every_pin_of_this_project_is_complete(root: Path) -> None:
    """Each lock has the packages of its .in file, with hashes; torch is pinned separately, by version."""
    for path in (root / "requirements").glob("*.in"):
        if path.stem == "main":
            continue
        asked = pip_install.requirements(path.read_text())
        lock = path.with_suffix(".txt").read_text()
        assert asked and asked <= pip_install.requirements(lock), path.name
        assert "torch==" not in lock and lock.count("==") <= lock.count("--hash=sha256:"), path.name
        if path.stem.startswith("torch"):
            pin = (root / f"requirements/{path.stem}-cpu.txt").read_text()
            assert re.search(rf"^torch=={re.escape(path.stem.removeprefix('torch'))}\.\d+$", pin, re.MULTILINE)


def test_versions_are_read_without_starting_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "lib/python3.11/site-packages/Some_Package-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: Some_Package\nVersion: 1.0\n")
    monkeypatch.setattr(subprocess, "Popen", raising(AssertionError("nothing is to be started")))
    assert matrix_env.installed(tmp_path) == {"some-package": "1.0"}


@pytest.mark.parametrize("name", ["torch2.13", "ort1.31"])
def test_the_main_versions_have_the_pins_of_main(root: Path, name: str) -> None:
    """A project with another main torch makes a matrix environment of the versions here: one lock, in two files."""

    def entries(file: str) -> dict[str, list[str]]:
        found = re.findall(
            r"^(\S+==[^\n]*?) \\\n((?:    --hash=\S+(?: \\)?\n)+)", (root / file).read_text(), re.MULTILINE
        )
        return {pin: sorted(hashes.replace("\\", "").split()) for pin, hashes in found}

    main, own = entries("requirements/main.txt"), entries(f"requirements/{name}.txt")
    assert len(own) > 5 and own.items() <= main.items()
    assert Paths(root).pins(name)[0].is_file()
