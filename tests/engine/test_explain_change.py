"""Differences between two records of a step, as the sentences of `doit why`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opmatrix.engine.forecast import differences

DIGESTS = {
    "f1": {"inputs": [{"name": "x", "dims": ["N"]}], "kernel": None},
    "f2": {"inputs": [{"name": "x", "dims": ["N", "C"]}, {"name": "y", "dims": []}], "kernel": None},
    "c1": {"pipeline/a.py": "1111111122", "pipeline/b.py": "3333333344"},
    "c2": {"pipeline/a.py": "1111111122", "pipeline/b.py": "5555555566", "pipeline/c.py": "7"},
}

NINJA = """cxx = /usr/bin/g++
flags = -std=c++20 -Wall $
    -Wextra
kernel = -O2 -ftree-vectorize
build kernel.o: object kernel.cc
"""


NINES = {f"{i}.h": "1" for i in range(9)}
OF_INPUTS = [
    ({"a.h": "1234567890"}, {"a.h": "abcdefabcd"}, "a.h 12345678 -> abcdefab"),
    ({"a.h": "1"}, {"a.h": None}, "a.h 1 -> missing"),
    ({"a.h": "1"}, {"a.h": "1", "b.h": "2"}, "b.h is new"),
    ({"a.h": "1", "b.h": "2"}, {"a.h": "1"}, "b.h is no longer read"),
    (NINES, dict.fromkeys(NINES, "2"), "0.h 1 -> 2; 1.h 1 -> 2; 2.h 1 -> 2; 3.h 1 -> 2; and 5 more like it"),
]
OF_OUTPUTS = [
    ({"a.so": "1"}, {"a.so": None}, "a.so is missing"),
    ({"a.so": "1"}, {"a.so": "2"}, "a.so changed since this step last succeeded"),
    ({}, {"a.so": None}, "a.so is missing"),
    ({}, {"a.so": "1"}, "a.so is to be written, too"),
    ({"a.so": "1"}, {}, "a.so is no longer to be written"),
]
OF_CONFIG = [
    ({"torch": "2.13.0+cpu"}, {"torch": "2.14.0+cpu"}, "torch 2.13.0+cpu -> 2.14.0+cpu"),
    ({}, {"torch": "2.14.0+cpu"}, "torch null -> 2.14.0+cpu"),
    ({"compiler": "compiler /g++ 12\n"}, {"compiler": "compiler /clang++ 34\n"}, "compiler /g++ 12 -> /clang++ 34"),
    ({"ninja": NINJA}, {"ninja": NINJA.replace("-O2", "-O3")}, "kernel: -O2 -> -O3"),
    ({"ninja": NINJA}, {"ninja": NINJA.replace(" -Wall", "")}, "flags: -Wall -> nothing"),
    ({"ninja": NINJA}, {"ninja": NINJA + "build x: y z\n"}, "build.ninja: 1 lines differ"),
    ({"tolerances": {"float32": {"rtol": 1e-6}}}, {"tolerances": {"float32": {"rtol": 1e-5}}},
     "tolerances in spec.py: float32.rtol 1e-06 -> 1e-05"),
    ({"spec": "f1"}, {"spec": "f2"},
     'spec.py: inputs[x].dims ["N"] -> ["N", "C"]; spec.py: inputs[y] null -> {"name": "y", "dims": []}'),
    ({"spec": "unknown"}, {"spec": "f2"}, "spec.py has changed; what it was is not known"),
    ({"code": "c1"}, {"code": "c2"}, "pipeline/b.py 33333333 -> 55555555; pipeline/c.py is new"),
    ({"opsets": "default"}, {"opsets": "9" * 80}, f"opsets default -> {'9' * 57}..."),
]  # fmt: skip
ROWS = [
    *(({"inputs": before}, {"inputs": now}, said) for before, now, said in OF_INPUTS),
    *(({"outputs": before}, {"outputs": now}, said) for before, now, said in OF_OUTPUTS),
    *(({"config": json.dumps(before)}, {"config": json.dumps(now)}, said) for before, now, said in OF_CONFIG),
    ({"config": "-O2"}, {"config": "-O3"}, "config -O2 -> -O3"),
    ({"config": "-O2"}, {"config": ""}, "config -O2 -> nothing"),
    ({}, {"command": ["compile", "a", "--debug"]}, "the command nothing -> --debug"),
    ({}, {"command": ["a", "compile"]}, "the command compile a -> a compile"),
    ({}, {}, ""),
]


@pytest.mark.parametrize(("before", "now", "said"), ROWS, ids=[said for _, _, said in ROWS])
def test_each_difference_has_a_sentence(before: dict[str, Any], now: dict[str, Any], said: str) -> None:
    empty: dict[str, Any] = {"config": "{}", "command": ["compile", "a"], "inputs": {}, "outputs": {}}
    texts = {name: json.dumps(data) for name, data in DIGESTS.items()}
    assert "; ".join(differences(empty | before, empty | now, texts.get)) == said
