"""The order in which N cores run what is ready."""

from __future__ import annotations

from doit.task import Task

from opmatrix.engine.tasks import estimated, ranks


def tasks(**dependencies: str) -> dict[str, Task]:
    """Return tasks of a group each, by name, with the tasks before them."""
    made = {name: Task(f"{name}:x", None, task_dep=[f"{d}:x" for d in of.split()]) for name, of in dependencies.items()}
    return {task.name: task for task in made.values()}


def order(found: dict[str, int]) -> str:
    return " ".join(name.partition(":")[0] for name in sorted(found, key=found.__getitem__))


def test_the_longest_path_comes_first() -> None:
    planned = tasks(short="", chain="", middle="chain", last="middle short", alone="")
    durations = {"short:x": 3.0, "chain:x": 1.0, "middle:x": 3.0, "last:x": 1.0, "alone:x": 4.5}
    assert order(ranks(planned, durations)) == "chain alone short middle last"


def test_equal_ones_keep_the_order_of_the_plan() -> None:
    planned = tasks(c="", a="", b="")
    assert order(ranks(planned, dict.fromkeys(planned, 1.0))) == "c a b"


def test_a_step_that_never_ran_takes_as_long_as_its_group() -> None:
    seconds = estimated({"export:a": 1.0, "export:b": 3.0}, usual={"compile": 5.0}, least=0.5)
    assert [seconds(step) for step in ("export:a", "export:c", "compile:a", "report")] == [1.0, 2.0, 5.0, 0.5]


def test_a_long_chain_is_ordered() -> None:
    planned = tasks(s0="", **{f"s{n}": f"s{n - 1}" for n in range(1, 3000)})
    assert order(ranks(planned, {})).split()[:2] == ["s0", "s1"]
