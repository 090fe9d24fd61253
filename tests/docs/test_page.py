"""The convention of documentation pages: what a page's text means, and which mistakes are reported."""

from __future__ import annotations

import pytest

from tests.docs.page import Command, NotRun, PageError, Python, Shown, Write, parse
from tests.docs.transcript import difference, fits


def test_a_page_becomes_steps() -> None:
    text = """# Title
<!-- project: seeds -->

```console
$ first
out
  more

$ second <<END
> text
> END

last
```

- In a list:

  ```python
  x = 1
  ```

<!-- shown: a.py -->
<!-- write: b.py -->
```python
pass
```

<!-- exit: 2 -->

```console
$ one
$ two
```

<!-- not run: needs a network -->
```console
$ three
```

```yaml
not: executed
```

<!-- A comment for those who write. -->

    $ indented
"""
    page = parse("docs/x.md", text)
    assert page.project == "seeds"
    assert page.steps == (
        Command(line=5, text="first", expected=("out", "  more")),
        Command(line=9, text="second <<END\ntext\nEND", expected=("last",)),
        Python(line=19, text="x = 1\n"),
        Shown(line=25, path="a.py", text="pass\n"),
        Write(line=25, path="b.py", text="pass\n"),
        Command(line=31, text="one"),
        Command(line=32, text="two", code=2),
        NotRun(line=37, reason="needs a network"),
    )
    assert page.runs
    assert not parse("x.md", "<!-- not run: it hurts -->\n```console\n$ three\n```\n").runs


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("<!-- nor run: x -->\n```console\n$ a\n```", "1: unknown comment 'nor run:'; did you mean 'not run'? allowed"),
        ("\n<!-- skip: x -->\n", "2: unknown comment 'skip:'; allowed: project"),
        ("<!-- exit: 1 -->\n\nText.\n\n```console\n$ a\n```", "1: <!-- exit: 1 --> stands before no code block"),
        ("<!-- exit: 1 -->\n```python\nx\n```", "3: exit: takes a number, before a console block"),
        ("<!-- in: seeds -->\n```console\n$ a\n```", "3: in: takes clone or installed, before a console block"),
        ("<!-- in: clone -->\n```python\na\n```", "3: in: takes clone or installed, before a console block"),
        ("<!-- exit: no -->\n```console\n$ a\n```", "3: exit: takes a number, before a console block"),
        ("<!-- exit: -->\n```console\n$ a\n```", "1: <!-- exit: --> says nothing behind its colon"),
        ("<!-- not run -->\n```console\n$ a\n```", "1: <!-- not run --> says nothing behind its colon"),
        ("<!-- not run: x -->\n```yaml\na\n```", "3: not run: stands alone before a block that would be run"),
        ("<!-- write: ../a -->\n```\na\n```", "3: '../a' is not a path within the project"),
        ("<!-- write: /a -->\n```\na\n```", "3: '/a' is not a path within the project"),
        ("```console\nls\n```", "2: a console block begins with a command, after '$ '"),
        ("Text <!-- exit: 1 --> text.", "1: <!-- exit: 1 --> shares its line with text"),
        ("<!-- write: a -->", "1: <!-- write: a --> stands before no code block"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_its_line(text: str, what: str) -> None:
    with pytest.raises(PageError, match=r"(?s)^docs/x\.md:") as raised:
        parse("docs/x.md", text)
    assert str(raised.value).startswith(f"docs/x.md:{what}")


def test_all_mistakes_are_reported() -> None:
    with pytest.raises(PageError) as raised:
        parse("x.md", "<!-- skip: x -->\n\n<!-- not: x -->\n\n```console\nls\n```\n")
    assert [line.partition(" ")[0] for line in str(raised.value).splitlines()] == ["x.md:1:", "x.md:3:", "x.md:6:"]


@pytest.mark.parametrize(
    ("expected", "line", "does"),
    [
        ("a ... z", "a b c z", True),
        ("a ... z", "a b c", False),
        ("...", "", True),
        ("a.c", "abc", False),
        ("[1/9] 0.4s compile:x", "[1/9] 12.0s compile:x", True),
        ("[1/9] 0.4s compile:x", "[2/9] 0.4s compile:x", False),
        ("in 5.2 s, 15 run", "in 113 s, 15 run", True),
        ("in 5.2 s, 15 run", "in 113 s, 16 run", False),
        ("takes 0.047 ms", "takes 3 s", True),
        ("opset18 sums", "opset19 sums", False),
        ("torch2.13s", "torch2.14s", False),
    ],
)
def test_a_line_matches_or_not(expected: str, line: str, does: bool) -> None:
    assert fits(expected, line) is does


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (["a", "...", "z"], "a\nz"),
        (["a", "...", "z"], "a\nz\ny\nz\n"),
        (["...", "b", "..."], "a\nb\nb\nc"),
        (["..."], ""),
        (["a"], "\n\na  \n\n"),
        (["a", "", "b"], "a\n\nb"),
        (["a", "b"], "a\n[1/2] 10s so far data:x: 3 of 9 cases\n  0:10: 3 of 9 cases, about 0:20 left\nb"),
    ],
)
def test_output_as_expected(expected: list[str], found: str) -> None:
    assert difference(expected, found) == ""


@pytest.mark.parametrize(
    ("expected", "found", "differs"),
    [
        (["a", "b"], "a", "  a\n- b"),
        (["a"], "a\nb", "  a\n+ b"),
        (["a", "...", "z"], "a\nb\nc", "  a\n  ...\n- z"),
        (["a", "...", "z", "end"], "a\nb\nz\nc", "  a\n  ...\n  z\n- end\n+ c"),
        (["a", "", "b"], "a\nb", "  a\n-\n  b"),
        (["a"], "", "- a"),
        (["0.1s x", "0.1s y"], "5s x\n5s z", "  5s x\n- 0.1s y\n+ 5s z"),
    ],
)
def test_output_that_differs_is_shown(expected: list[str], found: str, differs: str) -> None:
    assert difference(expected, found) == differs


def test_long_output_is_shortened() -> None:
    lines = difference(["0"], "\n".join(map(str, range(101)))).splitlines()
    assert len(lines) == 42 and lines[0] == "  0" and lines[21] == "+ ... 60 more lines" and lines[-1] == "+ 100"
