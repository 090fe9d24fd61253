"""A wheel's objects are compared with the verified ones, only by files: each difference is one message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from opmatrix.basics.errors import DistError
from opmatrix.basics.files import sha256, write_text
from opmatrix.declaration.checks import checks
from opmatrix.declaration.load import load_operator
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.records import verdict
from opmatrix.records.verdict import CheckRecord, Verdict
from opmatrix.toolchain import symbols
from opmatrix.wheel import pack

OPERATOR = load_operator(Paths(Path(__file__).parents[2]), "dual_residual")
NAME = OPERATOR.name
CELLS = tuple(Cell(torch="2.13", exporter="legacy", opset=opset, ort="1.31") for opset in (17, 18))


def objects_of(paths: Paths) -> tuple[Path, ...]:
    return paths.objects(NAME, "kernel", "torch", "ort", "runtime")


def linked_libraries(paths: Paths) -> list[Path]:
    return [paths.linked_library("my_ops", side) for side in ("torch", "ort")]


@pytest.fixture
def built(tmp_path: Path) -> Paths:
    """The files that compile, register, verify and link-wheel leave."""
    paths = Paths(tmp_path)
    objects, linked = objects_of(paths), linked_libraries(paths)
    libraries = [paths.torch_library(NAME), paths.ort_library(NAME)]
    for path in (*objects, *libraries, *linked):
        write_text(path, path.name)
    symbols.write(paths.compiled_record(NAME), tmp_path, objects=objects, libraries=libraries)
    symbols.write(paths.linked_record, tmp_path, objects=objects, libraries=linked)
    for key in checks(paths, [OPERATOR], CELLS):
        results = ({"library": sha256(libraries[0])},) if key.check in ("kernel", "search") else ()
        verdict.write(paths.check_record(*key), CheckRecord(**key._asdict(), outcome="verified", results=results))
    for cell in CELLS:
        found = Verdict(op=NAME, lowering="custom", cell=cell, outcome="verified", library=sha256(libraries[1]))
        verdict.write(paths.verdict(NAME, "custom", cell), found)
    return paths


def test_what_is_verified_passes(built: Paths) -> None:
    found = pack.check(built, [OPERATOR], CELLS)
    assert (found["cells"], found["checks"]) == (2, 6)
    kernel = built.objects(NAME, "kernel")[0]
    assert found["objects"][kernel.relative_to(built.root).as_posix()] == sha256(kernel)


def again(paths: Paths) -> None:
    """Link again, of the objects that there are."""
    symbols.write(paths.linked_record, paths.root, objects=objects_of(paths), libraries=linked_libraries(paths))


def another_object(paths: Paths) -> None:
    paths.objects(NAME, "kernel")[0].write_text("another")
    again(paths)


def linked_of_another_object(paths: Paths) -> None:
    (kernel,) = paths.objects(NAME, "kernel")
    kernel.write_text("another")
    again(paths)
    kernel.write_text(kernel.name)


def swapped_library(paths: Paths) -> None:
    paths.linked_library("my_ops", "ort").write_text("another")


def compiled_again(paths: Paths, *, side: str = "ort") -> None:
    """The library of one framework is another one, and nothing was verified since."""
    libraries = {"torch": paths.torch_library(NAME), "ort": paths.ort_library(NAME)}
    libraries[side].write_text("another")
    symbols.write(paths.compiled_record(NAME), paths.root, objects=objects_of(paths), libraries=[*libraries.values()])


def compiled_again_for_torch(paths: Paths) -> None:
    compiled_again(paths, side="torch")


def lost_verdict(paths: Paths) -> None:
    paths.verdict(NAME, "custom", CELLS[1]).unlink()


def mismatched(paths: Paths) -> None:
    path = paths.verdict(NAME, "custom", CELLS[0])
    verdict.write(path, replace(verdict.read(path), outcome="mismatched", detail="3 of 64 elements differ."))


def lost_record(paths: Paths) -> None:
    paths.register_manifest(NAME, "schema", torch="2.13").unlink()


def failed_record(paths: Paths) -> None:
    path = paths.register_manifest(NAME, "nodes", torch="2.13")
    verdict.write(path, replace(verdict.read_check(path), outcome="failed", detail="another node."))


def lost_agreement(paths: Paths) -> None:
    paths.agreement(NAME, "custom", torch="2.13").unlink()


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (another_object, r"kernel\.o changed since dual_residual was compiled\. Run: doit dist"),
        (linked_of_another_object, r"the wheel's libraries are linked of another \S+kernel\.o than the verified one"),
        (swapped_library, r"libmy_ops_ort\.so changed since the libraries of the wheel were linked"),
        (compiled_again, r"libdual_residual_ort\.so is another library than the one that `verify dual_residual "),
        (compiled_again_for_torch, r"libdual_residual_torch\.so is another library than .* --part kernel` verified"),
        (lost_verdict, r"dual_residual-custom@torch2\.13-legacy-opset18-ort1\.31 is not verified: "),
        (mismatched, r"opset17-ort1\.31 mismatched: 3 of 64 elements differ\. Run: doit dist"),
        (lost_record, r"dual_residual-schema@torch2\.13 is not verified: "),
        (failed_record, r"dual_residual-nodes@torch2\.13 failed: another node\. Run: doit dist"),
        (lost_agreement, r"dual_residual-custom-agreement@torch2\.13 is not verified: "),
    ],
)
def test_a_difference_is_one_sentence(built: Paths, plant: Callable[[Paths], None], message: str) -> None:
    plant(built)
    with pytest.raises(DistError, match=message) as raised:
        pack.check(built, [OPERATOR], CELLS)
    assert "\n" not in str(raised.value)
