"""docs/reference/ is up to date with the commands, settings and declarations."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from docs.site import commands, declaration, kernel_headers, report_schema
from docs.site.generate import COMMAND, pages
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
