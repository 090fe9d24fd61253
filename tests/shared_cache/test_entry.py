"""An entry brings back what a step wrote, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opmatrix.records.step import Step
from opmatrix.shared_cache import entry as module
from opmatrix.shared_cache.entry import Entry, EntryError, here, pack, read, unpack, write


@pytest.fixture
def step(tmp_path: Path) -> Step:
    root = tmp_path / "project"
    return Step(
        group="compile",
        name="x",
        command=("compile", "x"),
        writes=(f"{root}/build/x.so", f"{root}/build/x.json"),
        links=(f"{root}/build/data",),
        discovered_inputs=f"{root}/build/found.txt",
    )


@pytest.fixture
def entry(step: Step, tmp_path: Path) -> Entry:
    root = tmp_path / "project"
    (root / "build").mkdir(parents=True)
    (root / "build/x.so").write_bytes(bytes(range(256)))
    (root / "build/x.so").chmod(0o755)
    (root / "build/x.json").write_text("{}\n")
    (root / "build/found.txt").write_text("/usr/include/math.h\n")
    (root / "build/data").symlink_to("elsewhere")
    return read(step, root, inputs={"/usr/include/math.h": "0" * 64}, log="built x\n")


def test_what_a_step_wrote_comes_back_in_another_folder(step: Step, entry: Entry, tmp_path: Path) -> None:
    here, there = tmp_path / "project", tmp_path / "other"
    moved = replace(
        step,
        writes=tuple(path.replace(str(here), str(there)) for path in step.writes),
        links=(f"{there}/build/data",),
        discovered_inputs=f"{there}/build/found.txt",
    )
    found = unpack(pack(entry), moved, there)
    assert found == entry
    write(found, moved, there)
    for name in ("x.so", "x.json", "found.txt"):
        assert (there / "build" / name).read_bytes() == (here / "build" / name).read_bytes()
        assert (there / "build" / name).stat().st_mode & 0o777 == (0o755 if name == "x.so" else 0o644)
    assert (there / "build/data").readlink() == Path("elsewhere")


def test_headers_of_packages_are_found_in_the_environment_of_each_machine(
    step: Step, entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, header = tmp_path / "project", "cmeel.prefix/include/eigen3/Eigen/Core"
    (root / "build/found.txt").write_text(f"/usr/include/math.h\nthird_party/x.h\n/one/site-packages/{header}\n")
    monkeypatch.setattr(module, "_PACKAGES", "/one/site-packages")
    blob = pack(read(step, root, inputs={f"/one/site-packages/{header}": "0" * 64}))
    assert b"/one/" not in blob
    monkeypatch.setattr(module, "_PACKAGES", "/another/.venv")
    (path,) = (taken := unpack(blob, step, root)).inputs
    assert here(path) == f"/another/.venv/{header}"
    write(taken, step, root)
    lines = (root / "build/found.txt").read_text().splitlines()
    assert lines == ["/usr/include/math.h", "third_party/x.h", f"/another/.venv/{header}"]


def test_an_equal_file_stays_untouched(step: Step, entry: Entry, tmp_path: Path) -> None:
    root = tmp_path / "project"
    before = {path: path.lstat().st_mtime_ns for path in (root / "build").iterdir()}
    write(entry, step, root)
    assert {path: path.lstat().st_mtime_ns for path in (root / "build").iterdir()} == before


def test_equal_results_give_equal_blobs(entry: Entry) -> None:
    turned = replace(entry, files=dict(reversed(entry.files.items())))
    assert pack(turned) == pack(entry)


def head(**changed: Any) -> bytes:
    usual = {
        "files": [["build/found.txt", 1, False], ["build/x.json", 1, False], ["build/x.so", 1, True]],
        "links": {"build/data": "elsewhere"},
        "found": {},
        "log": "",
    }
    return json.dumps(usual | changed).encode() + b"\nabc"


def test_the_blob_of_these_tests_is_taken(step: Step, tmp_path: Path) -> None:
    assert unpack(head(), step, tmp_path / "project").files["build/x.so"] == b"c"


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"", "damaged"),
        (b" " * (1 << 24) + head(), "damaged: no line of at most 16,777,216 bytes"),
        (b"\x80\x04K\x01.", "damaged"),  # a pickle
        (b"[]\nabc", "damaged"),
        (b"[" * 100_000 + b"\nabc", "damaged"),
        (head()[:-1], "damaged: 2 bytes, where its files have 3"),
        (head() + b"d", "damaged: 4 bytes, where its files have 3"),
        (head(files=[["build/x.so", -1, True]]), "damaged"),
        (head(files=[["build/x.so", 10**30, True]]), "damaged"),
        (head(files=[["build/x.so", 3.0, True]]), "damaged"),
        (head(files=[["build/x.so", 3, True]]), "other files than the step writes"),
        (head(files=[["build/x.so", 0, True]] * 2 + [["build/x.json", 3, True]]), "other files"),
        (head(files=[["../../etc/passwd", 3, False]]), "other files"),
        (head(files=[["/etc/passwd", 3, False]]), "other files"),
        (head(links={"build/data": 1}), "damaged"),
        (head(links={}), "other links than the step makes"),
        (head(links={"build/data": "x", "build": "/etc"}), "other links"),
        (head(links={"build/data": "../ops"}), "its link build/data points out of build/"),
        (head(links={"build/data": "/etc"}), "its link build/data points out of build/"),
        (head(links={"build/data": "x/../../../etc"}), "its link build/data points out of build/"),
        (head(links={"build/data": "x\0"}), "damaged"),
        (head(links={"build/data": "\ud800"}), "damaged"),
        (head(log="\ud800"), "damaged"),
        (head(log=1), "damaged"),
        (head(found=[]), "damaged"),
    ],
)
def test_another_blob_is_refused(step: Step, tmp_path: Path, blob: bytes, message: str) -> None:
    with pytest.raises(EntryError, match=message):
        unpack(blob, step, tmp_path / "project")


def test_two_steps_may_make_the_same_link_at_once(
    step: Step, entry: Entry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the steps of a model in two versions of ONNX Runtime do."""
    link, make = tmp_path / "project/build/data", Path.symlink_to

    def make_after_another_step(path: Path, target: str) -> None:
        if not link.is_symlink():
            make(link, target)
        make(path, target)

    monkeypatch.setattr(Path, "symlink_to", make_after_another_step)
    link.unlink()
    write(entry, step, tmp_path / "project")
    assert str(link.readlink()) == "elsewhere"
    assert [path.name for path in link.parent.iterdir() if path.name.startswith(".")] == []
