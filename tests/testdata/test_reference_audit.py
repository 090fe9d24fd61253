"""A reference that runs what it should judge, or returns another kind of numbers, is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from opmatrix.errors import DataError
from opmatrix.stages import data
from opmatrix.testdata import reference_audit
from tests.support import double
from tests.support.projects import with_reference

LIBRARY = "build/compile/double/libdouble_ort.so"


def message(root: Path, reference: str) -> str:
    """Return what the stage `data` says of a reference."""
    layout = with_reference(root, "double", reference)
    path = root / LIBRARY
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"no library")
    with pytest.raises(DataError) as raised:
        data.run(layout, double.OPERATOR)
    return str(raised.value)


@pytest.mark.parametrize("module", reference_audit.REFUSED)
def test_an_import_of_a_runtime(module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, module, raising=False)  # as in the step, which has imported neither
    found = message(tmp_path, f"import {module}\n{double.REFERENCE}")
    assert f"ops/double/reference.py:1: NotIndependentError: imports {module}: it runs the " in found
    other = ', or with reference="torch" in spec.py' if module == "torch" else ""
    assert found.endswith(f"Write the reference in NumPy, from the definition{other}")
    assert module not in sys.modules


BODY = "def double(x, *, factor):\n    {}\n    return x * factor\n"
OPENS = {
    "ctypes": ("import ctypes; ctypes.CDLL({!r})", "loads"),
    "numpy": ("import numpy; numpy.ctypeslib.load_library({!r}, '/')", "loads"),
    "a file": ("open({!r}, 'rb').read()", "opens"),
}


@pytest.mark.parametrize("way", OPENS)
def test_it_opens_a_library_of_this_build(way: str, tmp_path: Path) -> None:
    statement, verb = OPENS[way]
    found = message(tmp_path, BODY.format(statement.format(str(tmp_path / LIBRARY))))
    assert f"ops/double/reference.py:2: {verb} {LIBRARY}, which this build made, so it agrees with any fault. " in found


def test_it_catches_the_exception(tmp_path: Path) -> None:
    statement = f"try: open({str(tmp_path / LIBRARY)!r})\n    except Exception: pass"
    assert f"ops/double/reference.py:2: opens {LIBRARY}, which" in message(tmp_path, BODY.format(statement))


def test_only_code_of_the_reference_is_refused_what_this_build_made(tmp_path: Path) -> None:
    layout = with_reference(tmp_path, "double", double.REFERENCE)
    data.run(layout, double.OPERATOR)
    assert layout.data_manifest("double").read_text()


DTYPES = {
    "int64": "np.rint(x).astype(np.int64)",
    "bool": "x > 0",
    "float16": "x.astype(np.float16)",
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_another_kind_or_a_narrower_dtype_than_declared(dtype: str, tmp_path: Path) -> None:
    body = f"with np.errstate(all='ignore'):\n        return {DTYPES[dtype]}"
    reference = f"import numpy as np\ndef double(x, *, factor):\n    {body}\n"
    assert f"output 'y' is {dtype}, declared: float32. Return that, or a wider dtype of the same kind" in message(
        tmp_path, reference
    )


def test_a_wider_float_is_rounded(tmp_path: Path) -> None:
    layout = with_reference(
        tmp_path,
        "double",
        "import numpy as np\ndef double(x, *, factor):\n    return x.astype(np.longdouble) * factor\n",
    )
    data.run(layout, double.OPERATOR)
