"""Each gate that tests/gates.toml names has its test, and no gate of 71b51ad8 is lost."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from docs.site import gates
from docs.site.gates import Gate

TESTS = Path(__file__).parent
NAMED = [gate for _, _, rows in gates.named(TESTS) for gate in rows]
SYMPTOMS = re.split(r"^### ", (TESTS.parent / "docs/site/failure-modes.txt").read_text(), flags=re.MULTILINE)[1:]


def problem(gate: Gate) -> str:
    """Return what is wrong with the name of a test or its message, or ""."""
    file, _, name = gate.planted_by.partition("::")
    function, _, case = name.rstrip("]").partition("[")
    path = TESTS / file
    text = path.read_text() if path.is_file() else ""
    if f"def {function}(" not in text:
        return f"no test {function} in tests/{file}"
    if case and not re.search(rf"\b{re.escape(case)}\b", text):
        return f"no case {case!r} in tests/{file}"
    return "" if gate.message == "-" or gate.message in text else f"no message {gate.message!r} in tests/{file}"


@pytest.mark.parametrize("gate", NAMED, ids=lambda gate: gate.fault)
def test_a_row_is_true(gate: Gate) -> None:
    assert problem(gate) == ""


def test_a_row_with_a_fault_is_found() -> None:
    good = next(gate for gate in NAMED if "[" in gate.planted_by)
    file = good.planted_by.partition("[")[0]
    assert "no test test_nothing in" in problem(good._replace(planted_by="lowering/test_graph.py::test_nothing"))
    assert "no case 'nothing' in" in problem(good._replace(planted_by=f"{file}[nothing]"))
    assert "no message 'nothing of the kind' in" in problem(good._replace(message="nothing of the kind"))


def test_each_fault_is_planted_once() -> None:
    assert [fault for fault, times in Counter(gate.fault for gate in gates.gates(TESTS)).items() if times > 1] == []


def test_no_gate_of_71b51ad8_is_lost() -> None:
    lines = (TESTS / "gates_71b51ad8.txt").read_text().splitlines()[1:]
    there = {gate.fault for gate in gates.gates(TESTS)}
    assert len(lines) == 455
    assert [line for line in lines if line.rpartition(" => ")[2] not in there] == []


def test_the_fifteen_most_common_failures_have_a_row_each() -> None:
    numbers = {int(gate.fault.split()[0]) for gate in gates.gates(TESTS) if gate.fault[0].isdigit()}
    assert numbers == set(range(1, 16))


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda text: text.splitlines()[0][:50])
def test_a_symptom_has_its_cause_its_gate_and_its_remedy(symptom: str) -> None:
    for word in ("Cause", "Gate", "Remedy"):
        assert re.search(rf"^- {word}s?: ", symptom, re.MULTILINE), word
    faults = re.findall(r"{([^{}]+)}", symptom)
    assert faults and {*faults} <= {gate.fault for gate in gates.gates(TESTS)}
