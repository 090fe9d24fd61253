"""When a cached plan is used again, and when not."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opmatrix.engine import plan_cache
from opmatrix.project.cells import Cell, Choice
from opmatrix.project.paths import Paths
from opmatrix.project.settings import Versions
from opmatrix.records.step import Step
from opmatrix.toolchain import headers
from opmatrix.toolchain.find import Toolchain
from tests.support.projects import write_files

VERSIONS = Versions(torch="2.13.0", onnx="1", onnxscript="1", onnxruntime="1.31.0", numpy="2", hypothesis="6")
TOOLS = Toolchain(
    compiler=("g++",), compiler_identity="one", linker=None, ninja="ninja", torch_include=Path("include"),
    torch_version="2.13.0",
)  # fmt: skip
CELL = Cell(torch="2.13", exporter="dynamo", opset=18, ort="1.31")
STEP = Step(
    group="verify", name="my_op", command=("verify", "my_op"), cell=CELL, lowering="custom", reads=("a",),
    writes=("b",), config="\udc80 and \n", verdict="b", seconds=0.5,
)  # fmt: skip


NONE = Choice()


class Command:
    """The plan of a doit command, and how often it planned anew."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths, self.anew = Paths(root), 0
        self.installed, self.toolchain = VERSIONS, TOOLS
        self.steps: tuple[Step, ...] = (STEP,)
        monkeypatch.setattr(plan_cache, "installed", lambda: self.installed)
        monkeypatch.setattr(plan_cache, "find_toolchain", lambda environ: self.toolchain)
        monkeypatch.setattr(plan_cache, "_plan", self._plan)

    def _plan(self, paths: Paths, **_: Any) -> tuple[tuple[Step, ...], list[plan_cache.Headers]]:
        self.anew += 1
        return self.steps, [("third_party", None), ("include", "cmeel-eigen")]

    def plans_anew(self, choice: Choice = NONE, **environ: str) -> bool:
        before = self.anew
        assert list(plan_cache.load_or_plan(self.paths, choice=choice, environ=environ)) == [*self.steps]
        return self.anew > before


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    names = (
        "ops/my_op/spec.py", "ops/my_op/cases.py", "ops/my_op/reference.py", "native/my_op/kernel.h",
        "ops/my_op/published/1/schema.json", "third_party/theirs.h", "pyproject.toml", "requirements/main.txt",
    )  # fmt: skip
    write_files(tmp_path, dict.fromkeys(names, "as it was"))
    time.sleep(0.06)  # so that a further write must change the time stamp
    made = Command(tmp_path, monkeypatch)
    assert made.plans_anew() and not made.plans_anew()
    return made


def edit(name: str, text: str = "edited as") -> Callable[[Command], object]:
    return lambda command: (command.paths.root / name).write_text(text)


def edit_without_a_trace(command: Command) -> None:
    path = command.paths.spec("my_op")
    before = path.stat()
    path.write_text("as it is ")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def another(name: str, value: object) -> Callable[[Command], None]:
    return lambda command: setattr(command, name, value)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(edit("ops/my_op/spec.py"), id="declaration"),
        pytest.param(edit("ops/my_op/published/1/schema.json"), id="what_is_published"),
        pytest.param(edit("ops/my_op/cases.py"), id="cases"),
        pytest.param(edit("pyproject.toml"), id="settings"),
        pytest.param(edit("ops/my_op/lowering.py"), id="a_lowering_more"),
        pytest.param(edit("native/my_op/more.h"), id="a_header_more"),
        pytest.param(lambda c: (c.paths.root / "native/my_op/kernel.h").unlink(), id="a_header_less"),
        pytest.param(edit("native/my_op/torch.cc"), id="a_binding_by_hand"),
        pytest.param(edit("requirements/torch2.99.txt"), id="another_environment"),
        pytest.param(edit("third_party/more.h"), id="a_third_partys_header_more"),
        pytest.param(edit_without_a_trace, id="old_time_stamp_and_size"),
        pytest.param(another("installed", replace(VERSIONS, torch="2.14.0")), id="torch"),
        pytest.param(another("toolchain", replace(TOOLS, compiler_identity="two")), id="compiler"),
    ],
)
def test_a_change_of_the_inputs_of_a_plan_plans_anew(command: Command, change: Callable[[Command], object]) -> None:
    change(command)
    assert command.plans_anew()


# At 71b51ad8: "longer", "another_operator", "another_limit" and some of the flipped bits were believed.
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda plan: b"no plan", id="foreign"),
        pytest.param(lambda plan: b"\0" * len(plan), id="zeros_after_a_power_failure"),
        pytest.param(lambda plan: plan[:512] + b"\0" * (len(plan) - 512), id="a_lost_block"),
        pytest.param(lambda plan: plan + b"\n", id="longer"),
        pytest.param(lambda plan: plan + plan, id="twice"),
        pytest.param(lambda plan: plan.partition(b"\n")[2], id="without_the_digest"),
        pytest.param(lambda plan: plan.replace(b'"my_op"', b'"my_po"'), id="another_operator"),
        pytest.param(lambda plan: plan.replace(b'"seconds":0.5', b'"seconds":1.5'), id="another_limit"),
        pytest.param(lambda plan: plan.partition(b"\n")[0] + b"\n" + b"[" * 100_000, id="nested_without_end"),
    ],
)
def test_a_damaged_plan_is_made_anew(command: Command, damage: Callable[[bytes], bytes]) -> None:
    command.paths.plan().write_bytes(damage(command.paths.plan().read_bytes()))
    assert command.plans_anew() and not command.plans_anew()


def test_a_flipped_bit_anywhere_in_a_plan_makes_it_anew(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a plan that is cut off there."""
    monkeypatch.setattr(plan_cache, "_marks", lambda paths: {})  # a thousand looks at the package take long
    assert command.plans_anew() and not command.plans_anew()
    whole = command.paths.plan().read_bytes()
    for at in range(len(whole)):
        command.paths.plan().write_bytes(whole[:at])
        assert command.plans_anew(), f"{at} bytes of {len(whole)}"
        command.paths.plan().write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        assert command.plans_anew(), f"bit {at % 8} of byte {at}"
    assert not command.plans_anew()


def test_a_plan_that_something_else_wrote_runs_no_code(command: Command) -> None:
    class Foreign:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[Path]]:
            return Path.touch, (command.paths.root / "ran",)

    for path in (command.paths.plan(), command.paths.plan().with_suffix(".pickle")):
        path.write_bytes(pickle.dumps(Foreign()))
    assert command.plans_anew() and not command.plans_anew()
    assert not (command.paths.root / "ran").exists()


def test_a_change_of_variables_or_settings_plans_anew(command: Command) -> None:
    more = Choice(opsets="all")
    assert command.plans_anew(more) and not command.plans_anew(more)
    assert not command.plans_anew(), "each choice of cells has a plan of its own"


def test_a_change_of_the_headers_of_onnx_runtime_plans_anew(command: Command, tmp_path: Path) -> None:
    header = tmp_path / "headers/onnxruntime_c_api.h"
    write_files(tmp_path, {"headers/onnxruntime_c_api.h": "as it was"})
    time.sleep(0.06)
    setting = {"OPMATRIX_ORT_INCLUDE": str(header.parent)}
    assert command.plans_anew(**setting) and not command.plans_anew(**setting)
    header.write_text("edited as")
    time.sleep(0.06)
    assert command.plans_anew(**setting) and not command.plans_anew(**setting)
    header.unlink()
    assert command.plans_anew(**setting)
    assert command.plans_anew()


def test_another_version_of_third_party_headers_plans_anew(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headers, "_version", lambda distribution: f"{distribution} 4")
    assert command.plans_anew() and not command.plans_anew()


def test_a_change_of_files_that_steps_read_keeps_the_plan(command: Command) -> None:
    for name in ("native/my_op/kernel.h", "ops/my_op/reference.py", "third_party/theirs.h"):
        edit(name)(command)
        assert not command.plans_anew(), name


def test_a_plan_of_just_written_files_is_not_cached(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within a tick of the kernel's clock, a second write can leave size and both time stamps unchanged."""
    edit("ops/my_op/spec.py")(command)
    written = command.paths.spec("my_op").stat().st_ctime_ns
    with monkeypatch.context() as patched:
        patched.setattr(plan_cache, "time", SimpleNamespace(time_ns=lambda: written))
        assert command.plans_anew() and command.plans_anew()
    time.sleep(0.06)
    assert command.plans_anew() and not command.plans_anew()


def test_a_plan_that_is_never_kept(command: Command) -> None:
    """That with an operator that cannot be used: it may be usable next time with no file of the project changed, for
    what it imports is there, or the machine is idle. And one that cannot be written."""
    command.steps = (STEP, Step(group="declaration", name="other", command=("check-declaration", "other")))
    edit("ops/my_op/spec.py")(command)
    time.sleep(0.06)
    assert command.plans_anew() and command.plans_anew()
    command.steps = (STEP,)
    command.paths.plan().unlink(missing_ok=True)
    command.paths.plan().mkdir()
    assert command.plans_anew() and command.plans_anew()


def test_a_kernel_of_this_checkout_is_not_package_code() -> None:
    """pipeline/native is a link to native/: if it counted as code, each edit of a kernel would plan anew."""
    root = Path(__file__).parents[2]
    marks = plan_cache._marks(Paths(root))
    assert marks[str(root / "native/group_norm/kernel.h")] is None
    assert not [path for path in marks if path.startswith(f"{root}/pipeline/native/")]
