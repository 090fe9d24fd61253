"""How a row is judged by the times of three processes; no process is started."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from opmatrix.addons.bench import against
from opmatrix.addons.bench.against import AGAIN, NEW, OLD, Seen
from opmatrix.addons.bench.forked import Prepared
from opmatrix.addons.bench.statistics import FIRST, LAST
from opmatrix.bench.spec import Row

pytestmark = [pytest.mark.torch, pytest.mark.ort]

ROW = Row(name="r", inputs={})
JOB: Any = SimpleNamespace(budget=30.0, seconds=60, processors=SimpleNamespace(of=lambda threads: ()), bench=None)
BUILDS: Any = (NEW, AGAIN, OLD)  # the stand-in for a process reads no more of one
SIDES = "torch", "onnxruntime"


class Process:
    """Stands in for a process that has the libraries of a build."""

    libraries: list[Prepared]

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask(self, question: tuple[Any, ...], **_: object) -> Any:
        return self.libraries


def test_a_row_that_is_slower_at_the_first_look_remains_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where more generations follow, because the other library is undecided."""

    def timed(*arguments: Any) -> None:
        seen, count = arguments[-2], len(arguments[-2].changes["torch"])
        for side, changes in (("torch", (0.2, 0.21)), ("onnxruntime", (0.5, -0.4))):
            seen.changes[side].append(changes[count % 2] if count < FIRST or side == "onnxruntime" else 0.0)
            seen.noises[side].append(0.001)
            seen.seconds[side].append(1.0)

    monkeypatch.setattr(against, "generation", timed)
    torch, ort = against._row(JOB, (), ROW, (), 1, rows=2, seed=0)
    assert (torch["slower"], torch["generations"]) == (True, FIRST)
    assert (ort["slower"], ort["generations"]) == (False, LAST)


def test_a_slowdown_is_found_in_the_library_that_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process has addresses of its own, which change its times by some tenths of a percent; the times are fake."""
    addresses = random.Random(0)

    class Timed(Process):
        def __init__(self, start: Any, **_: object) -> None:
            slower = 1.0 if start.args == (OLD,) else 1.1
            self.libraries = [Prepared(name=f"{side} library", side=side, calls=10) for side in SIDES]
            self.seconds = [slower * addresses.gauss(1, 0.003), addresses.gauss(1, 0.003)]

        def ask(self, question: tuple[Any, ...], **_: object) -> Any:
            return self.libraries if question == ("ours",) else question[2] * self.seconds[question[1]]

    monkeypatch.setattr(against, "Forked", Timed)
    monkeypatch.setattr(against, "time", SimpleNamespace(monotonic=float))  # it stands still
    torch, ort = against._row(JOB, BUILDS, ROW, (), 1, rows=2, seed=0)
    assert (torch["side"], torch["slower"]) == ("torch", True) and torch["ratio"] == pytest.approx(1.1, abs=0.01)
    assert (ort["side"], ort["slower"], ort["undecided"]) == ("onnxruntime", False, False)
    assert ort["ratio"] == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(("lacks", "shown"), [(NEW, "this build"), (OLD, "the revision")])
def test_a_library_that_one_build_lacks_is_named(lacks: int, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lacking(Process):
        def __init__(self, start: Any, **_: object) -> None:
            self.libraries = [Prepared(name="ORT library", side="onnxruntime", skipped="it is left out")]
            if start.args != (lacks,):
                self.libraries.append(Prepared(name="torch library", side="torch", calls=1))

    monkeypatch.setattr(against, "Forked", Lacking)
    seen = Seen()
    against.generation(JOB, BUILDS, ROW, (), 1, seen, random.Random(0))
    assert seen.skipped["torch"] == f"{shown} has no such library"
    assert "it is left out" in seen.skipped["onnxruntime"] and not seen.changes["torch"]
