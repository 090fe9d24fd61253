"""A page that is not true is found, with its line: each kind of mistake, planted."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from tests.docs.page import PageError, parse
from tests.docs.pages import ROOT
from tests.docs.walk import walk


def page(text: str) -> str:
    """Return a page from text indented as in the tests, with ``'''`` for the fences."""
    return textwrap.dedent(text).lstrip("\n").replace("'''", "```")


def failure(text: str, folder: Path, *, limit: float = 60) -> str:
    """Return the message for a page that fails."""
    with pytest.raises(PageError) as raised:
        walk(parse("docs/planted.md", page(text)), folder, root=ROOT, limit=limit)
    return str(raised.value)


def test_a_true_page_passes(tmp_path: Path) -> None:
    """All kinds of steps, in order: each needs the results of those before it."""
    walk(
        parse(
            "docs/planted.md",
            page("""
            A page.

            <!-- write: sub/model.py -->
            '''python
            NUMBER = 40
            '''

            <!-- append: sub/model.py -->
            '''python
            NUMBER += 2
            '''

            '''console
            $ cd sub && ls
            model.py
            $ export WORD=two
            $ cat <<END
            > $WORD
            > lines
            > END
            two
            lines
            '''

            '''python
            import os
            from model import NUMBER
            assert os.environ["WORD"] == "two"
            '''

            1. In a list, as elsewhere:

               <!-- exit: 3 -->
               '''console
               $ echo "took 1.25 s in $PWD" && exit 3
               took 99 s in .../project/sub
               $ seq 1 9; exit 3
               1
               ...
               9
               '''

            '''python
            assert NUMBER == 42
            open("written", "w").close()
            '''

            '''console
            $ test -f written
            $ cd .. && ./run python -c 'import opmatrix, sys; print(sys.argv)'
            ['-c']
            '''

            <!-- shown: ops/group_norm/spec.py -->
            '''python
                onnx=OnnxOp(domain="mydomain", op_type="mygroupnorm", versions=(1, 2)),
                types={"T": ("float32", "float64", "float16", "bfloat16")},
            '''

            <!-- not run: it would never end -->
            '''console
            $ sleep inf
            '''
            """).replace('$ echo "took 1.25 s in $PWD" && exit 3', '$ echo "took 1.25 s in $PWD"'),
        ),
        tmp_path,
        root=ROOT,
        limit=60,
    )


def test_another_output_is_found(tmp_path: Path) -> None:
    said = failure(
        """
        Text.

        '''console
        $ echo one; echo two; echo three
        one
        2
        three
        '''
        """,
        tmp_path,
    )
    assert said == page("""
        docs/planted.md:4: $ echo one; echo two; echo three
        the output differs (- expected, + found):
              one
            - 2
            + two
              three""")


def test_lines_that_an_ellipsis_swallowed_are_shown(tmp_path: Path) -> None:
    """Otherwise the message would not show what was printed in place of the missing line."""
    said = failure("'''console\n$ echo one; echo two\n...\n2\n'''\n", tmp_path)
    assert said == page("""
        docs/planted.md:2: $ echo one; echo two
        the output differs (- expected, + found):
              ...
            - 2
        it printed:
            one
            two""")


def test_another_exit_code_is_found(tmp_path: Path) -> None:
    said = failure("'''console\n$ echo no >&2; exit 4\n'''\n", tmp_path)
    assert said == page("""
        docs/planted.md:2: $ echo no >&2; exit 4
        exit code 4, expected 0
        it printed:
            no""")


def test_a_missing_exit_code_is_found(tmp_path: Path) -> None:
    said = failure("<!-- exit: 1 -->\n'''console\n$ true\n'''\n", tmp_path)
    assert "docs/planted.md:3: $ true\nexit code 0, expected 1" in said


def test_only_the_last_command_of_a_block_may_fail(tmp_path: Path) -> None:
    said = failure("<!-- exit: 1 -->\n'''console\n$ false\n$ false\n'''\n", tmp_path)
    assert "docs/planted.md:3: $ false\nexit code 1, expected 0" in said


def test_a_command_that_hangs_is_killed(tmp_path: Path) -> None:
    said = failure("'''console\n$ echo begun; sleep 1000 & wait\n'''\n", tmp_path, limit=0.5)
    assert said == page("""
        docs/planted.md:2: $ echo begun; sleep 1000 & wait
        still runs after 0.5 s. It printed:
            begun""")


def test_a_command_without_run_does_not_find_the_environment(tmp_path: Path) -> None:
    """In CI, where the environment is active, it would; for a reader it does not."""
    find = f"sh -c 'command -v pytest' | grep {sys.prefix}"
    text = f"'''console\n$ ./run {find}\n{sys.prefix}/bin/pytest\n$ {find}\n'''\n"
    assert f"docs/planted.md:4: $ {find}\nexit code 1, expected 0" in failure(text, tmp_path)


def test_an_exception_is_found_with_the_line_of_the_page(tmp_path: Path) -> None:
    said = failure(
        """
        '''python
        known = 1
        '''

        '''python
        print("begun")

        known = unknown
        '''
        """,
        tmp_path,
    )
    assert said.startswith("docs/planted.md:6: python: raised\n")
    assert '/docs/planted.md", line 8, in <module>' in said
    assert "NameError: name 'unknown' is not defined" in said
    assert "It printed:\n    begun" in said


def test_a_syntax_error_is_found(tmp_path: Path) -> None:
    said = failure("'''python\nif:\n'''\n", tmp_path)
    assert 'docs/planted.md", line 2' in said and "SyntaxError" in said


def test_python_that_hangs_is_killed(tmp_path: Path) -> None:
    said = failure("'''python\nprint('begun', flush=True)\nwhile True: pass\n'''\n", tmp_path, limit=1)
    assert said == "docs/planted.md:2: python: still runs after 1 s. It printed:\n    begun"


def test_python_that_dies_is_found(tmp_path: Path) -> None:
    said = failure("'''python\nimport os\nos.kill(os.getpid(), 11)\n'''\n", tmp_path)
    assert said == "docs/planted.md:2: python: ended with SIGSEGV. It printed:\n    (nothing)"


@pytest.mark.parametrize(
    ("path", "line", "what"),
    [
        ("ops/none.py", "import x", "shown: the repository has no file 'ops/none.py'"),
        ("dodo.py", "import nothing_of_the_kind", "shown: the block is no run of lines of dodo.py: among others, it"),
        ("docs/conf.py", "import tomllib\nimport os", "shown: the block is no run of lines of docs/conf.py: its lines"),
    ],
)  # fmt: skip
def test_a_file_that_differs_from_the_page_is_found(tmp_path: Path, path: str, line: str, what: str) -> None:
    said = failure(f"<!-- shown: {path} -->\n'''python\n{line}\n'''\n", tmp_path)
    assert said.startswith(f"docs/planted.md:3: {what}")


def test_a_missing_project_is_found(tmp_path: Path) -> None:
    said = failure("<!-- project: examples/none -->\n\n'''console\n$ true\n'''\n", tmp_path)
    assert said == "project: 'examples/none' is none of 'seeds', 'clone', 'installed', and no folder of the repository"


@pytest.mark.parametrize(("kind", "has"), [("", False), ("seeds", True)])
def test_a_project_is_the_one_that_the_page_names(tmp_path: Path, kind: str, has: bool) -> None:
    comment = f"<!-- project: {kind} -->\n\n" if kind else ""
    files = "test -f ops/group_norm/spec.py -a -f native/group_norm/kernel.h" if has else "! test -e ops -o -e native"
    text = f"{comment}'''console\n$ {files}\n$ ! grep -F opmatrix.dist pyproject.toml\n'''\n"
    walk(parse("docs/planted.md", page(text)), tmp_path, root=ROOT, limit=60)


@pytest.mark.parametrize("kind", ["installed", "tests/projects/existing"])
def test_a_project_outside_a_checkout_has_its_environment_active(tmp_path: Path, kind: str) -> None:
    text = f"<!-- project: {kind} -->\n\n'''console\n$ command -v doit\n.../bin/doit\n$ ls -A\n"
    listed = "" if kind == "installed" else "native\nops\nrun\nthird_party\n"
    walk(parse("docs/planted.md", page(f"{text}{listed}'''\n")), tmp_path, root=ROOT, limit=60)
    assert (tmp_path / "output").read_text() == listed


def test_a_tutorial_that_writes_an_operator_of_the_repository_fails_in_a_clone(tmp_path: Path) -> None:
    """It needs a project of its own, as the opening of each tutorial makes one."""
    new = "doit new --schema 'mynamespace::group_norm(Tensor x) -> Tensor' --domain mydomain --name group_norm"
    said = failure(f"<!-- project: clone -->\n\n'''console\n$ ./run {new}\n'''\n", tmp_path)
    assert "exit code" in said and "ops/group_norm" in said


def test_a_page_for_both_settings_starts_in_each(tmp_path: Path) -> None:
    """A file is written to the folder where the reader is; what follows the first `doit new` is not in the opening."""
    text = page("""
        <!-- project: installed -->
        <!-- in: clone -->
        '''console
        $ . .venv/bin/activate && touch ~/activated
        '''

        '''console
        $ mkdir ~/here && cd ~/here
        $ command -v opmatrix
        .../bin/opmatrix
        '''

        <!-- write: file -->
        '''text
        words
        '''

        '''console
        $ doit new --help > /dev/null; cat ~/here/file
        words
        $ exit 1
        '''
        """)
    parsed = parse("docs/planted.md", text)
    assert parsed.for_both
    with pytest.raises(PageError, match="exit code 1"):
        walk(parsed, tmp_path / "whole", root=ROOT)
    assert not (tmp_path / "whole/home/activated").exists()
    assert parsed.opening().project == "clone"
    walk(parsed.opening(), tmp_path / "opening", root=ROOT)
    assert (tmp_path / "opening/home/activated").exists()
