"""The wheel as a file: reproducible bytes, its metadata, and what rebuilds it."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.support.projects import Project
from tests.wheel.shipping import OPERATORS, build, project, wheel_of

pytestmark = [pytest.mark.compile]

INFO = "my_ops-1.0.0+unverified.dist-info"


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The same project in another folder, built again."""
    made = project(tmp_path_factory.mktemp("a folder with another name"))
    build(made)
    return made


def test_equal_content_gives_equal_bytes(wheel: Path, again: Project) -> None:
    assert wheel_of(again).name == wheel.name
    assert wheel_of(again).read_bytes() == wheel.read_bytes()


def test_the_wheel_contains_no_path_and_no_time(shipped: Project, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        entries = archive.infolist()
        assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
        content = {entry.filename: archive.read(entry) for entry in entries}
    for name, data in content.items():
        for place in (str(shipped.root), str(Path.home()), "/tmp/", "site-packages"):
            assert place.encode() not in data, f"{name} holds {place}"
    ours = [name for name in content if not name.startswith(INFO)]
    assert ours == sorted(ours)


def test_the_record_is_right(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        rows = [row.rsplit(",", 2) for row in archive.read(f"{INFO}/RECORD").decode().splitlines()]
        assert {name for name, _, _ in rows} == set(archive.namelist())
        for name, digest, size in rows[:-1]:
            data = archive.read(name)
            expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, size) == (f"sha256={expected}", str(len(data))), name
    assert rows[-1] == [f"{INFO}/RECORD", "", ""]


def test_the_metadata_of_the_wheel(shipped: Project, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = archive.read(f"{INFO}/METADATA").decode()
        about = json.loads(archive.read("my_ops/dist.json"))
        own = archive.read(f"{INFO}/licenses/LICENSE.txt")
        assert b"Apache License" in archive.read(f"{INFO}/licenses/opmatrix/LICENSE")
        libraries = {name: hashlib.sha256(archive.read(name)).hexdigest() for name in about["libraries"]}
    assert own == b"As you like it.\n"
    assert "License-File: LICENSE.txt\nLicense-File: opmatrix/LICENSE\n" in metadata
    assert "opmatrix" not in [line.split()[1] for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    assert about["libraries"] == libraries
    assert sorted(about["operators"]) == list(OPERATORS)
    assert about["operators"]["nms"]["torch"]["since"] == "2.10"
    assert about["operators"]["group_norm"]["torch"]["gradient"] is True
    assert about["source"]["commit"] is None, "the project is in no checkout"
    files = about["source"]["files"]
    kernel = shipped.paths.kernel("group_norm")
    assert files["native/group_norm/kernel.h"] == hashlib.sha256(kernel.read_bytes()).hexdigest()
    assert about["platform"] in wheel.name
    assert about["made_with"].keys() >= {"opmatrix", "compiler", "onnxruntime headers"}


def test_what_rebuilds_the_wheel(again: Project) -> None:
    """An edited comment in a kernel recompiles it and nothing else; a lost or damaged wheel is built again."""

    def ran() -> set[str]:
        done = again.passes("-r", "jsonl", "dist", "--unverified")
        events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return {e["step"] for e in events if e["event"] == "start"}

    assert ran() == set()
    before = wheel_of(again).read_bytes()
    again.replace("native/group_norm/kernel.h", "#pragma once", "#pragma once  // once")
    assert ran() == {"compile:group_norm", "dist:unverified"}, (
        "the wheel names the sources' fingerprints, the libraries are equal"
    )
    assert wheel_of(again).read_bytes() != before
    again.replace("native/group_norm/kernel.h", "#pragma once  // once", "#pragma once")
    assert ran() == {"compile:group_norm", "dist:unverified"}
    assert wheel_of(again).read_bytes() == before
    wheel_of(again).unlink()
    assert ran() == {"dist:unverified"}
    wheel_of(again).write_bytes(before[:-1])
    assert ran() == {"dist:unverified"}
    assert wheel_of(again).read_bytes() == before
    again.replace("pyproject.toml", 'version = "1.0.0"', 'version = "1.0.1"')
    assert ran() == {"dist:unverified"}
    assert wheel_of(again).name.startswith("my_ops-1.0.1+unverified-"), "and the old one is gone"


def test_the_path_of_the_wheel_is_printed_last(again: Project) -> None:
    """Also if nothing had to run."""
    for _ in range(2):
        *_, path_line, summary = again.doit("dist", "--unverified").stdout.splitlines()
        assert path_line.startswith(f"build/dist/{wheel_of(again).name}: ") and " bytes, sha256 " in path_line
    assert summary.endswith("steps, all up to date")


@pytest.mark.skipif(not shutil.which("git"), reason="needs git")
def test_the_wheel_names_its_commit(again: Project) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=n", "-c", "user.email=e@example.com", *arguments]
        return subprocess.run(command, cwd=again.root, capture_output=True, text=True, check=True).stdout.strip()

    def source() -> dict[str, object]:
        build(again)
        with zipfile.ZipFile(wheel_of(again)) as archive:
            name = next(n for n in archive.namelist() if n.endswith("/dist.json"))
            return {k: v for k, v in json.loads(archive.read(name))["source"].items() if k != "files"}

    git("init", "-q")
    git("add", "ops", "native", "pyproject.toml")
    git("commit", "-q", "-m", "first")
    assert source() == {"commit": git("rev-parse", "HEAD"), "dirty": False}
    git("pack-refs", "--all")
    git("commit", "-q", "--allow-empty", "-m", "second")
    assert source() == {"commit": git("rev-parse", "HEAD"), "dirty": False}
    again.replace("native/nms/kernel.h", "#pragma once", "#pragma once  // once")
    assert source() == {"commit": git("rev-parse", "HEAD"), "dirty": True}


def test_a_project_without_wheel_settings_has_a_message_with_them(tmp_path: Path) -> None:
    made = project(tmp_path, settings="")
    done = made.doit("dist")
    assert done.returncode == 1
    assert "pyproject.toml does not describe a wheel. Add [tool.opmatrix.dist] there, with name" in done.stdout
    done = made.doit("list")
    assert done.returncode == 0, "and nothing else minds"


def test_wrong_settings_are_reported_before_anything_runs(tmp_path: Path) -> None:
    made = project(tmp_path, settings="[tool.opmatrix.dist]\nname = 'my_ops'\nversion = 'one'\n")
    done = made.doit("dist")
    assert done.returncode == 2
    assert "pyproject.toml: [tool.opmatrix.dist]: version: found 'one', allowed" in done.stderr + done.stdout
    assert not made.paths.build.joinpath("compile").exists()
