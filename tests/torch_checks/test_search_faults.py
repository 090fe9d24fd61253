"""The search finds faults that hide in attributes, ties and sizes, and names the smallest input; also of a crash."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from opmatrix.basics.files import write_text
from opmatrix.declaration.load import Operator
from opmatrix.project.paths import Paths
from opmatrix.search import draw_inputs
from opmatrix.spec import Case, Model, Random
from opmatrix.torch_ops.load import LoadedLibrary
from tests.support.forked import forked
from tests.support.specs import FLOATS, attribute, declare

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.torch

SPEC = declare(
    "gate(x: T[N, M], w: T[M]) -> y: T like x",
    attribute("threshold=0.5", minimum=0.0, maximum=1.0),
    attribute("times=1", minimum=1, maximum=100),
    summary="What is above a threshold, times a number, else a weight.",
    types=FLOATS,
)
MODELS = (
    Model(
        name="one",
        types={"T": "float32"},
        cases=(Case(name="only", inputs={"x": Random(shape=(2, 3)), "w": Random(shape=(3,))}),),
    ),
)
OPERATOR = Operator(spec=SPEC, models=MODELS)
REFERENCE = """\
import numpy as np


def gate(x, w, *, threshold, times):
    with np.errstate(all="ignore"):
        return np.where(x > x.dtype.type(threshold), x * x.dtype.type(times), w[None, :])
"""
Kernel = Callable[..., "torch.Tensor"]


def gate(
    x: torch.Tensor,
    w: torch.Tensor,
    *,
    threshold: float,
    times: int,
    equal: bool = False,
    most_rows: int = 10**9,
    most_columns: int = 10**9,
    aligned: bool = False,
    split: bool = False,
) -> torch.Tensor:
    """The right kernel, with a place for each fault."""
    import torch

    limit = float(np.float32(threshold))
    if (aligned and x.data_ptr() % 16) or (split and x.shape[0] > 2 and torch.get_num_threads() > 1):
        return torch.zeros_like(x) - 1
    found = torch.where((x >= limit) if equal else (x > limit), x * times, w)
    wrong = x.shape[0] > most_rows or x.shape[1] > most_columns
    return torch.zeros_like(found) - 1 if wrong else found


def crash(x: torch.Tensor, w: torch.Tensor, *, threshold: float, times: int) -> torch.Tensor:
    if 5 <= times < 10 and x.shape[1] > 2:
        os.kill(os.getpid(), signal.SIGSEGV)
    return gate(x, w, threshold=threshold, times=times)


def leave(x: torch.Tensor, w: torch.Tensor, *, threshold: float, times: int) -> torch.Tensor:
    if times == 7:
        os._exit(0)
    return gate(x, w, threshold=threshold, times=times)


def with_fault(**fault: Any) -> Kernel:
    def kernel(x: torch.Tensor, w: torch.Tensor, **attributes: Any) -> torch.Tensor:
        return gate(x, w, **attributes | fault)

    return kernel


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    paths = Paths(tmp_path_factory.mktemp("faults"))
    write_text(paths.reference("gate"), REFERENCE)
    draw_inputs.run(paths, OPERATOR)
    return paths


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine, too, has the time to shrink all that it finds."""
    from opmatrix.torch_checks import property_test

    for name in ("SECONDS", "CRASH_SECONDS", "ALL_CRASH_SECONDS", "OVER_SECONDS"):
        monkeypatch.setattr(property_test, name, 500)


def measured(paths: Paths) -> list[dict[str, Any]]:
    """Return what the report has of the last failing search."""
    (path,) = paths.register_manifest("gate", "search", torch="2.13").parent.glob("*.mismatches.json")
    found: list[dict[str, Any]] = json.loads(path.read_text())["mismatches"]
    return found


def search(paths: Paths, kernel: Kernel, *, replay: str = "") -> str:
    """Return the message of the error that the search raises, or ""."""
    from opmatrix.torch_checks import property_test

    def run() -> None:
        loaded: Any = LoadedLibrary(overload=kernel, alive=None)
        if replay:
            property_test.replay(paths, OPERATOR, loaded, case=replay)
        else:
            property_test.run(paths, OPERATOR, loaded)

    return forked(run, paths.root / "output")


FAULTS = {
    "threshold_is_a_constant": (with_fault(threshold=0.5), r'"threshold": (?!0\.5[,}])'),
    "times_is_a_constant": (with_fault(times=1), r'"times": (?!1[,}])'),
    "greater_or_equal": (with_fault(equal=True), r'"threshold": '),
    "more_than_four_rows": (with_fault(most_rows=4), r"shape=\(5, \d\)"),
    "140_columns": (with_fault(most_columns=139), r"\b140\b"),
    "700_columns": (with_fault(most_columns=699), r"shape=\(\d, 700\)"),
    "aligned_loads": (with_fault(aligned=True), r'"x": '),
    "a_wrong_split": (with_fault(split=True), r"shape=\(3, \d\)"),
}


def test_the_right_kernel_passes(paths: Paths) -> None:
    assert search(paths, gate) == ""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(fault: str, paths: Paths) -> None:
    kernel, expected = FAULTS[fault]
    message = search(paths, kernel)
    assert re.search(rf"The smallest that hypothesis found: .*{expected}", message, re.DOTALL), message
    (record,) = measured(paths)
    assert message.startswith(f"gate-{record['case']} in torch: ")
    assert record["differing"] and record["maps"] and [one["name"] for one in record["inputs"]] == ["x", "w"]
    assert record["actual_is"].startswith("kernel in torch")


def wrong_where(fails: Callable[..., bool]) -> Kernel:
    def kernel(x: torch.Tensor, w: torch.Tensor, **attributes: Any) -> torch.Tensor:
        return x * 0 - 1 if fails(x, **attributes) else gate(x, w, **attributes)

    return kernel


IN_COMMON = {
    "from N = 5 on": lambda x, **_: x.shape[0] > 4,
    "where T = float64": lambda x, **_: "float64" in str(x.dtype),
    r"from times = (?:5|6)\d on": lambda x, times, **_: times > 49,
}


@pytest.mark.parametrize("fault", IN_COMMON)
def test_what_all_failing_inputs_have_in_common_is_named(fault: str, paths: Paths) -> None:
    message = search(paths, wrong_where(IN_COMMON[fault]))
    assert re.search(rf"\nOver all cases: wrong {fault} \((\d+) of \1 drawn inputs; right ", message), message


def test_what_differs_between_two_calls_is_named(paths: Paths) -> None:
    assert "with 4 threads the kernel gives other numbers than with one: y: " in search(paths, with_fault(split=True))
    message = search(paths, with_fault(aligned=True))
    assert "the kernel gives other numbers where inputs begin at addresses as those of x[1:]: y: " in message
    calls = count()

    def keeps(x: torch.Tensor, w: torch.Tensor, **attributes: Any) -> torch.Tensor:
        return gate(x, w, **attributes) + (1 if x.shape[0] > 2 and next(calls) % 3 else 0)

    assert "keeps something from one call to the next" in search(paths, keeps)


def test_a_tie_with_the_threshold_is_in_the_smallest_input(paths: Paths) -> None:
    """``>=`` in place of ``>`` differs only where an element equals the attribute."""
    message = search(paths, with_fault(equal=True))
    threshold = float(re.findall(r'"threshold": ([\d.e-]+)', message)[0])
    inputs = message.partition('"x": ')[2].partition('"w": ')[0]
    assert np.float32(threshold) in [np.float32(n) for n in re.findall(r"[\d.]+(?:e-?\d+)?", inputs)], message


def test_a_crash_is_shrunk_and_named(paths: Paths) -> None:
    message = search(paths, crash)
    assert re.match(r"gate-found_\w+ in torch: the kernel died of SIGSEGV\. The smallest ", message), message
    assert '"times": 5' in message and '"x": Random(shape=(2, 3))' in message, message
    name = re.findall(r"Replay: python -m opmatrix register gate --part search --case (found_\w+)\n", message)[0]
    assert "Debug: python -m opmatrix compile gate --debug && gdb --args python -m opmatrix register gate" in message
    with pytest.raises(RuntimeError, match="the child ended with -11"):  # in its own process, as a debugger needs it
        search(paths, crash, replay=name)
    assert search(paths, gate, replay=name) == ""


def test_an_exception_is_no_crash(paths: Paths) -> None:
    def kernel(x: torch.Tensor, w: torch.Tensor, **attributes: Any) -> torch.Tensor:
        raise LookupError("a bug of opmatrix")

    with pytest.raises(RuntimeError, match="LookupError: a bug of opmatrix"):
        search(paths, kernel)


def test_a_kernel_that_ends_the_process_is_named(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    from opmatrix.torch_checks import property_test

    monkeypatch.setattr(property_test, "ALL_CRASH_SECONDS", 2.0)  # the first counterexample has the value, too
    message = search(paths, leave)
    assert "the kernel ended the process with exit code 0" in message and '"times": 7' in message, message


def test_an_unknown_drawn_case(paths: Paths) -> None:
    assert "gate has no drawn case 'found_0'" in search(paths, gate, replay="found_0")
