"""Placeholders of new operators that are still to be filled in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from opmatrix.basics.errors import DistError
from opmatrix.declaration.source_files import reminder, require_filled
from opmatrix.project.paths import Paths
from opmatrix.wheel import link
from opmatrix.wheel.settings import Dist
from tests.support.projects import write_files


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    files = {
        "ops/a/spec.py": '"""TODO: what a is."""\n\nx = 1  # TODO\n',
        "ops/a/README.md": "TODO\n",
        "native/a/kernel.h": "// whole\n",
        "ops/b/spec.py": '"""Fill in the form."""\n',
        "ops/b/README.md": "TODO\n",
    }
    write_files(tmp_path, files)
    return Paths(tmp_path)


def test_the_message_names_the_first_placeholder(paths: Paths) -> None:
    assert reminder(paths, "a") == ("a: 3 TODOs left (first: ops/a/README.md:1); `doit dist` refuses it")
    paths.kernel("a").write_text("// the sum\n\n// TODO\n")
    assert reminder(paths, "a") == "a: 4 TODOs left (first: native/a/kernel.h:3); it is a placeholder"
    assert reminder(paths, "b") == "b: 1 TODO left (first: ops/b/README.md:1); only its README is unfinished"
    assert reminder(paths, "none") == ""


def test_what_an_author_has_still_to_do_is_no_placeholder(paths: Paths) -> None:
    paths.kernel("b").parent.mkdir(parents=True)
    paths.kernel("b").write_text("// TODO(ann): vectorize\nint TODOS = 0;\n")
    (paths.kernel("b").parent / "copied.h").write_text("// TODO: of another project\n")
    require_filled(paths, ["b"])
    paths.kernel("b").write_text("// TODO: vectorize\n")
    with pytest.raises(DistError, match=r"native/b/kernel\.h: 1\n"):
        require_filled(paths, ["b"])


def test_the_mark_of_earlier_revisions_is_a_placeholder_too(paths: Paths) -> None:
    paths.kernel("b").parent.mkdir(parents=True)
    paths.kernel("b").write_text("// FILL IN: compute y\n")
    assert reminder(paths, "b") == "b: 2 TODOs left (first: native/b/kernel.h:1); it is a placeholder"
    with pytest.raises(DistError, match=r"native/b/kernel\.h: 1\n"):
        require_filled(paths, ["b"])


def test_code_with_a_placeholder_is_not_shipped(paths: Paths) -> None:
    require_filled(paths, ["b"])
    with pytest.raises(DistError) as raised:
        require_filled(paths, ["b", "a"])
    assert str(raised.value).splitlines()[:2] == [
        "a wheel must not contain placeholders: TODOs are left in the lines",
        "  ops/a/spec.py: 1, 3",
    ]
    assert "operators = [...]" in str(raised.value)


def test_the_link_stage_refuses_placeholders(paths: Paths) -> None:
    dist = Dist(name="my_ops", version="1", operators=("a",), summary="", license=None, licenses=(), third_party={})
    with pytest.raises(DistError, match="a wheel must not contain placeholders"):
        link.run(paths, dist, [SimpleNamespace(name="a")])  # type: ignore[list-item]  # only its name is read
