"""docs/reference/ is up to date with the commands, settings and declarations. docs.site.{imports,rooms,layered} and
benchmarks/structure.py, tested on synthetic packages.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from xml.etree import ElementTree

import pytest

from docs.site import commands, declaration, kernel_headers, layered, report_schema, rooms
from docs.site.generate import COMMAND, pages
from docs.site.imports import Package, cycles, reachable, reduced
from docs.site.rooms import Room
from opmatrix.commands.main import VARIABLES
from opmatrix.project.settings import key_of
from opmatrix.shared_cache.settings import CacheSettings
from tests.docs.pages import ROOT

MADE = pages(ROOT)


@pytest.mark.parametrize("name", MADE)
def test_a_page_is_current(name: str) -> None:
    path = ROOT / "docs/reference" / name
    assert path.read_text() == MADE[name], f"docs/reference/{name} is out of date; write it anew: {COMMAND}"


def test_every_page_of_the_folder_is_generated() -> None:
    """Except operators.md, which is not committed: `python -m opmatrix operator-pages` makes it."""
    assert {path.name for path in (ROOT / "docs/reference").iterdir()} - {"operators.md"} == {*MADE}


def test_a_field_without_a_description_is_found() -> None:
    source = (ROOT / "pipeline/opmatrix/spec.py").read_text()
    line = '    """What it does, in one sentence."""\n'
    assert line in source
    with pytest.raises(ValueError, match=r"pipeline/opmatrix/spec\.py:\d+: say below 'summary' what it means"):
        declaration.render(source.replace(line, ""))


def test_a_key_without_a_description_is_found() -> None:
    schema = {"description": "x", "properties": {"key": {"type": "string"}}, "$defs": {}}
    with pytest.raises(ValueError, match=r"report\.schema\.json: \.key has no description"):
        report_schema.render(schema)


HEADER = """\
// Things of a kernel.
#pragma once

namespace opmatrix {

namespace detail {
struct Inner {};
}  // namespace detail

/// A thing.
template <typename T>
class Thing {
 public:
  /// Made of a number,
  /// or of a text.
  Thing(int number) : number_(number) {}
  Thing(const char* text);

  /// Its number: `thing.number()`.
  int number() const { return number_; }

 private:
  int number_;
};

/// Two of them.
inline constexpr int kTwo = 2;

}  // namespace opmatrix

/// Stops:
///
///     STOP();
#if defined(__clang__)
#define STOP() __builtin_trap()
#else
#define STOP() \\
  do {         \\
  } while (true)
#endif
"""
PAGE = """\
## opmatrix/thing.h

Things of a kernel.

```cpp
template <typename T>
class Thing
```

A thing.

| member | meaning |
|---|---|
| `Thing(int number)`<br>`Thing(const char* text)` | Made of a number, or of a text. |
| `int number() const` | Its number: `thing.number()`. |

```cpp
inline constexpr int kTwo = 2
```

Two of them.

```cpp
#define STOP()
```

Stops:

    STOP();
"""


def test_a_header_for_kernels_becomes_a_section() -> None:
    page = kernel_headers.render({"opmatrix/thing.h": HEADER})
    assert page == f"# Headers for kernels\n\n{kernel_headers.INTRODUCTION}\n\n{PAGE}"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("/// A thing.\n", "", r":10: 'template <typename T>\\nclass Thing' has no description"),
        ("  /// Its number: `thing.number()`.\n", "", r":19: 'int number\(\) const' has no description"),
        ("  Thing(const char*", "\n  Thing(const char*", r":18: 'Thing\(const char\* text\)' has no description"),
        (
            " private:",
            " protected:\n  int a;\n public:",
            r":25: 'int number_' has no description; write a comment with",
        ),
        ("/// Two of", "// Two of", r":27: 'inline constexpr int kTwo = 2' has no description"),
        ("///     STOP();\n", "///     STOP();\n\n#define GO 1\n", ":35: '#define GO' has no description"),
        ("/// Stops:\n///\n///     STOP();\n", "", r":32: '#define STOP\(\)' has no description"),
        ("// Things of a kernel.\n", "", ":1: begin with a comment that describes the file"),
        ("inline constexpr int", "inline constexpr int int(", "does not know this line"),
    ],
)
def test_a_public_declaration_without_a_description_is_found(old: str, new: str, message: str) -> None:
    assert old in HEADER
    with pytest.raises(ValueError, match=r"native/include/opmatrix/thing\.h" + f".*{message}"):
        kernel_headers.render({"opmatrix/thing.h": HEADER.replace(old, new)})


def test_every_variable_is_explained() -> None:
    """Except variables that one step sets for another."""
    files = [*(ROOT / "pipeline").rglob("*.py"), ROOT / "run", ROOT / "toxfile.py", ROOT / "docs/conf.py"]
    own = {
        "OPMATRIX_JOBS",
        "OPMATRIX_LOGGED",
        "OPMATRIX_RAN",
        "OPMATRIX_SAY_DONE",
        "OPMATRIX_EACH_CPU",
        "OPMATRIX_MAIN_PYTHON",
        "OPMATRIX_WORK",
    }  # EACH_CPU is a macro of C++
    used = set().union(*(commands.variables_in(path.read_text()) for path in files)) - own
    assert len(used) >= 4
    assert used <= commands.variables_in(MADE["commands.md"])


def test_every_table_of_settings_is_explained() -> None:
    code = "\n".join(path.read_text() for path in (ROOT / "pipeline").rglob("*.py"))
    used = set(re.findall(r"""TABLE: ClassVar\[str\] = "(\w+)"$""", code, re.MULTILINE))
    assert len(used) >= 6 and not re.search(r"""\bsettings\(\w+, "(?!cache|dist)""", code), "read by hand"
    assert {"tool.opmatrix"} | {f"tool.opmatrix.{table}" for table in used} == set(commands.SETTINGS)
    assert [*commands.SETTINGS["tool.opmatrix.cache"]] == [*filter(None, map(key_of, fields(CacheSettings)))]


def test_every_variable_in_place_of_a_setting_is_explained() -> None:
    named = [name for name, _ in VARIABLES]
    assert {one.metadata["variable"] for one in fields(CacheSettings)} <= {"", *named}


ORDER = (
    Room(name="commands", holds="what a person types"),
    Room(name="engine", holds="runs <steps> & more"),
    Room(name="matrix", holds="cells"),
    Room(name="values", holds="spec and files", modules=("spec", "files")),
)
FILES = {
    "__init__": "",
    "commands/__init__": "",
    "commands/run": "from opmatrix.engine import pool\nfrom opmatrix import files\n",
    "engine/__init__": "",
    "engine/pool": "def run():\n    import opmatrix.matrix.cells\n\n    return opmatrix.matrix.cells\n",
    "matrix/__init__": "",
    "matrix/cells": "import re\nfrom opmatrix.spec import OpSpec\n",
    "spec": "from opmatrix.files import write\n",
    "files": "from pathlib import Path\n",
}


def made_up(**files: str) -> Package:
    """Return FILES and `more` as a package; `engine__pool` is the module engine.pool."""
    more = {name.replace("__", "/"): text for name, text in files.items()}
    return Package.of({f"pipeline/opmatrix/{name}.py": text for name, text in (FILES | more).items()})


def test_every_form_of_import_is_an_arrow() -> None:
    package = made_up()
    assert package.name == "opmatrix"
    assert package.rooms == {"commands", "engine", "matrix", "spec", "files"}
    assert package.loose() == ["files", "spec"]
    assert package.arrows() == {
        ("commands", "engine"): [
            "opmatrix.commands.run imports opmatrix.engine",
            "opmatrix.commands.run imports opmatrix.engine.pool",
        ],
        ("commands", "files"): ["opmatrix.commands.run imports opmatrix.files"],
        ("engine", "matrix"): ["opmatrix.engine.pool imports opmatrix.matrix.cells"],
        ("matrix", "spec"): ["opmatrix.matrix.cells imports opmatrix.spec"],
        ("spec", "files"): ["opmatrix.spec imports opmatrix.files"],
    }


def test_a_package_at_the_top_of_pipeline_is_read() -> None:
    package = Package.of({"pipeline/__init__.py": "", "pipeline/cli.py": "from pipeline import aside\n",
                          "pipeline/aside.py": ""})  # fmt: skip
    assert (package.name, set(package.arrows())) == ("pipeline", {("cli", "aside")})


def test_a_longer_path_replaces_an_arrow() -> None:
    assert reduced({("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"), ("a", "d")}) == {("a", "b"), ("b", "c"), ("c", "d")}
    assert reachable({("a", "b"), ("b", "c"), ("c", "d")}) >= {("a", "d"), ("b", "d")}


def test_cycles_are_groups() -> None:
    assert cycles({("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d"), ("x", "a")}) == [
        ("a", "b", "c"),
        ("d", "e"),
    ]


def test_an_order_without_faults_is_accepted() -> None:
    assert list(rooms.faults(made_up(), ORDER)) == []


@pytest.mark.parametrize(
    ("planted", "fault"),
    [
        (
            {"matrix__cells": "from opmatrix import engine\n"},
            "matrix imports engine, which is above it: opmatrix.matrix.cells imports opmatrix.engine",
        ),
        ({"matrix__cells": "from opmatrix import engine\n"}, "a cycle: engine, matrix import each other"),
        ({"files": "import opmatrix.spec\n"}, "a cycle: files, spec import each other"),
        ({"loose": ""}, "loose has no row in ROOMS of docs/site/rooms.py"),
    ],
)
def test_a_wrong_order_of_rooms_is_found(planted: dict[str, str], fault: str) -> None:
    package = made_up(**planted)
    assert fault in list(rooms.faults(package, ORDER))
    with pytest.raises(ValueError, match=re.escape(fault)):
        rooms.picture(package, ORDER)


def test_a_row_without_a_room_is_found() -> None:
    found = list(rooms.faults(made_up(), (*ORDER, Room(name="gone", holds="nothing"))))
    assert found == ["ROOMS of docs/site/rooms.py has 'gone', and the package does not"]


def drawn(svg: str) -> dict[str, tuple[int, int]]:
    """Return the left and the upper edge of each box."""
    found = re.findall(r'class="box" x="(\d+)" y="(\d+)".*?class="name"[^>]*>([^<]+)<', svg)
    return {name: (int(x), int(y)) for x, y, name in found}


def test_the_picture_goes_from_top_to_bottom() -> None:
    svg = rooms.picture(made_up(), ORDER)
    ElementTree.fromstring(svg)  # well-formed, with "&" and "<" in a room's description
    heights = [drawn(svg)[room.name][1] for room in ORDER]
    assert heights == sorted(set(heights)), "each room is in a layer of its own here"
    assert svg.count('class="arrow"') == 3, "commands -> files follows from the others"
    assert "prefers-color-scheme: dark" in svg and rooms.COMMAND in svg
    assert svg == rooms.picture(made_up(), ORDER)


def test_boxes_do_not_overlap() -> None:
    names = [f"room{number}" for number in range(24)]
    arrows = reduced({(a, b) for i, a in enumerate(names) for j, b in enumerate(names) if i < j and (7 * i + j) % 4})
    svg = layered.render("made up", [layered.Box(name=n, text="holds") for n in names], arrows, made_by="a test")
    places = list(drawn(svg).values())
    assert len(places) == len(names) and svg.count('class="arrow"') == len(arrows)
    for i, (x, y) in enumerate(places):
        for other_x, other_y in places[:i]:
            assert y != other_y or abs(x - other_x) >= layered.WIDTH


def test_a_description_has_at_most_two_lines() -> None:
    with pytest.raises(ValueError, match=r"values: 'a very .* takes 3 lines of the box, which has room for 2"):
        rooms.picture(made_up(), (*ORDER[:3], Room(name="values", holds="a very " * 14, modules=("spec", "files"))))


@pytest.mark.parametrize("room", rooms.ROOMS, ids=lambda room: room.name)
def test_the_description_of_every_room_fits(room: Room) -> None:
    layered.render("one", [layered.Box(name=room.name, text=room.holds)], set(), made_by="a test")


def test_the_picture_is_current(root: Path) -> None:
    expected = rooms.picture(Package.in_folder(root))
    assert (root / rooms.PICTURE).read_text() == expected, f"docs/rooms.svg is out of date; run {rooms.COMMAND}"


def structure(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, root / "benchmarks/structure.py", *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


def test_the_structure_of_revisions(root: Path, tmp_path: Path) -> None:
    """The package of a synthetic repository: first with a cycle, then without."""
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks/structure.py").write_text((root / "benchmarks/structure.py").read_text())
    (tmp_path / "docs/site").mkdir(parents=True)
    (tmp_path / "docs/site/imports.py").write_text((root / "docs/site/imports.py").read_text())
    git = ("git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run([*git, "init", "-q"], check=True)
    write(
        tmp_path / "pipeline",
        {"__init__": '"""The package."""\n', "a": "import pipeline.b\n", "b": "import pipeline.a\n"},
    )
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "one"], check=True)
    for path in (tmp_path / "pipeline").iterdir():
        path.unlink()
    write(tmp_path / "pipeline/opmatrix", {"a": "import opmatrix.b\n", "b": '"""Doc."""\n\nX = (\n    1,\n)\n'})
    done = structure(tmp_path, "HEAD")
    assert done.returncode == 0, done.stderr
    printed = {line[:28].strip(): line[28:].split() for line in done.stdout.splitlines() if not line.startswith(" ")}
    assert printed["core, lines"] == ["3", "6"]
    assert printed["rooms"] == ["2", "2"] and printed["arrows between rooms"] == ["2", "1"]
    assert printed["circles of rooms"] == printed["circles of files"] == ["1", "0"]
    assert printed["imports, share of lines"] == ["66.7%", "16.7%"]
    assert "HEAD: a circle of rooms: a, b\nHEAD:   a -> b: pipeline.a imports pipeline.b" in done.stdout
    assert "HEAD: a circle of files: pipeline.a, pipeline.b" in done.stdout


def write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)


def test_an_unknown_revision_is_one_sentence(root: Path) -> None:
    done = structure(root, "no-such-revision")
    assert done.returncode == 1 and done.stderr.startswith("structure.py: no-such-revision: fatal:")
