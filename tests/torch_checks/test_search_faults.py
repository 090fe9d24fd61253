"""What the search prints about a fault: the tie in the smallest input, what the failing inputs share, how to replay.

tests/faults/searched.toml has the faults that it finds, in the operator `gate` as here.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from opmatrix.declaration.load import load_operator
from opmatrix.search import draw_inputs
from opmatrix.torch_ops.load import LoadedLibrary
from tests.support.forked import forked
from tests.support.projects import Project

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.torch

Kernel = Callable[..., "torch.Tensor"]


def gate(x: torch.Tensor, w: torch.Tensor, *, threshold: float, times: int) -> torch.Tensor:
    import torch

    return torch.where(x > float(np.float32(threshold)), x * times, w)


def crash(x: torch.Tensor, w: torch.Tensor, *, threshold: float, times: int) -> torch.Tensor:
    if 5 <= times < 10 and x.shape[1] > 2:
        os.kill(os.getpid(), signal.SIGSEGV)
    return gate(x, w, threshold=threshold, times=times)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project.of("searched", tmp_path_factory.mktemp("faults"))
    draw_inputs.run(project.paths, load_operator(project.paths, "gate"))
    return project


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine, too, has the time to shrink all that it finds."""
    from opmatrix.torch_checks import property_test

    for name in ("SECONDS", "CRASH_SECONDS", "ALL_CRASH_SECONDS", "OVER_SECONDS"):
        monkeypatch.setattr(property_test, name, 500)


def search(project: Project, kernel: Kernel, *, replay: str = "") -> str:
    """Return the message of the error that the search raises, or ""."""
    from opmatrix.torch_checks import property_test

    operator = load_operator(project.paths, "gate")
    operator = replace(operator, spec=replace(operator.spec, torch=None))  # nothing defines it

    def run() -> None:
        loaded: Any = LoadedLibrary(overload=kernel, alive=None)
        if replay:
            property_test.replay(project.paths, operator, loaded, case=replay)
        else:
            property_test.run(project.paths, operator, loaded)

    return forked(run, project.root / "output")


def test_what_all_failing_inputs_have_in_common_is_named_and_the_record_has_numbers(project: Project) -> None:
    def wrong(x: torch.Tensor, w: torch.Tensor, *, threshold: float, times: int) -> torch.Tensor:
        return x * 0 - 1 if times > 49 else gate(x, w, threshold=threshold, times=times)

    message = search(project, wrong)
    assert re.search(r"\nOver all cases: wrong from times = [56]\d on \((\d+) of \1 drawn inputs; right ", message)
    (path,) = project.paths.register_manifest("gate", "search", torch="2.13").parent.glob("*.mismatches.json")
    (record,) = json.loads(path.read_text())["mismatches"]
    assert message.startswith(f"gate-{record['case']} in torch: ")
    assert record["differing"] and record["maps"] and [one["name"] for one in record["inputs"]] == ["x", "w"]
    assert record["actual_is"].startswith("kernel in torch")


def test_a_tie_with_the_threshold_is_in_the_smallest_input(project: Project) -> None:
    """``>=`` in place of ``>`` differs only where an element equals the attribute."""

    def equal(x: torch.Tensor, w: torch.Tensor, *, threshold: float, times: int) -> torch.Tensor:
        import torch

        return torch.where(x >= float(np.float32(threshold)), x * times, w)

    message = search(project, equal)
    threshold = float(re.findall(r'"threshold": ([\d.e-]+)', message)[0])
    inputs = message.partition('"x": ')[2].partition('"w": ')[0]
    assert np.float32(threshold) in [np.float32(n) for n in re.findall(r"[\d.]+(?:e-?\d+)?", inputs)], message


def test_a_crash_is_replayed_in_its_own_process(project: Project) -> None:
    message = search(project, crash)
    assert re.match(r"gate-found_\w+ in torch: the kernel died of SIGSEGV\. The smallest ", message), message
    name = re.findall(r"Replay: python -m opmatrix register gate --part search --case (found_\w+)\n", message)[0]
    with pytest.raises(RuntimeError, match="the child ended with -11"):  # as a debugger needs it
        search(project, crash, replay=name)
    assert search(project, gate, replay=name) == ""


def test_an_exception_is_no_crash_and_an_unknown_drawn_case(project: Project) -> None:
    def kernel(x: torch.Tensor, w: torch.Tensor, **attributes: Any) -> torch.Tensor:
        raise LookupError("a bug of opmatrix")

    with pytest.raises(RuntimeError, match="LookupError: a bug of opmatrix"):
        search(project, kernel)
    assert "gate has no drawn case 'found_0'" in search(project, gate, replay="found_0")
