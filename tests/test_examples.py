"""The example of each class and method of the public interface runs, and is a declaration without mistakes."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from opmatrix import spec
from opmatrix.bench import spec as bench
from opmatrix.lowering import graph
from opmatrix.lowering.call import NodeGraph, Tensor


def short(test: doctest.DocTest) -> str:
    return test.name.rpartition(".")[2]


def examples(module: ModuleType, names: tuple[str, ...]) -> list[doctest.DocTest]:
    """Return the examples in the docstrings of the classes and their public methods."""
    found = doctest.DocTestFinder(exclude_empty=True).find(module)
    classes = {f"{module.__name__}.{name}" for name in names}
    public = [test for test in found if not short(test).startswith("_")]
    return [test for test in public if any(f"{test.name}.".startswith(f"{name}.") for name in classes)]


def classes(module: ModuleType) -> tuple[str, ...]:
    """Return the public classes that a module defines."""
    found = vars(module).items()
    return tuple(n for n, kind in found if inspect.isclass(kind) and kind.__module__ == module.__name__ and n[0] != "_")


DECLARED = (*classes(spec), *classes(bench))
DECLARATIONS = [*examples(spec, DECLARED), *examples(bench, DECLARED)]
LOWERINGS = examples(graph, ("Graph",))


def run(test: doctest.DocTest) -> dict[str, Any]:
    """Run an example; return its variables."""
    said: list[str] = []
    done = doctest.DocTestRunner(verbose=False).run(test, out=said.append, clear_globs=False)
    assert not done.failed, "".join(said)
    assert done.attempted > 0
    return test.globs


def mistakes(value: object) -> Iterator[object]:
    """Yield the mistakes that the constructors of a declaration recorded, at any depth."""
    yield from getattr(value, "__mistakes__", ())
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else ()
    inner = vars(value).values() if hasattr(value, "__mistakes__") else inner
    for one in inner:
        yield from mistakes(one)


@pytest.mark.parametrize("test", DECLARATIONS, ids=short)
def test_the_example_of_a_declaration_is_valid(test: doctest.DocTest) -> None:
    test.globs.setdefault("Random", spec.Random)
    before = {*test.globs}
    made = {name: value for name, value in run(test).items() if name not in before}
    assert [m for value in made.values() for m in mistakes(value)] == []


@pytest.mark.parametrize("test", LOWERINGS, ids=short)
def test_the_example_of_a_lowering_runs(test: doctest.DocTest) -> None:
    test.globs |= {"g": NodeGraph(18, {}), "x": Tensor(name="x", dtype="float32", shape=(None, 3))}
    run(test)


def test_everything_in_the_public_interface_has_an_example() -> None:
    assert {short(test) for test in DECLARATIONS} == {*DECLARED}
    methods = {name for name in vars(graph.Graph) if not name.startswith("_")} - {"opset"}
    assert {short(test) for test in LOWERINGS} == {"Graph", *methods}


def test_an_example_with_another_output_is_found() -> None:
    wrong = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "planted", None, 0)
    with pytest.raises(AssertionError, match="Expected"):
        run(wrong)


def test_an_unknown_field_in_an_example_is_found() -> None:
    unknown = spec.Input(name="x", type="float32", dim=("N",))  # type: ignore[call-arg]
    assert [*mistakes({"inputs": (unknown,)})] == [("unknown", "dim")]
