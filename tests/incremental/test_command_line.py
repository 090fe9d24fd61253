"""Command lines and their output: help, versions, mistakes and their exit codes, colours, completion."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from opmatrix.commands.main import EXIT_CODES
from opmatrix.engine.lock import hold
from opmatrix.engine.tasks import GROUPS
from tests.incremental.conftest import Project
from tests.support.screen import read_all

pytestmark = pytest.mark.incremental
CODES = {code for code, _ in EXIT_CODES}


@pytest.fixture(autouse=True)
def source(project: Project) -> None:
    project.step("data:good", "copy", "a.txt", "build/good")
    project.step("data:bad", "say", "a.txt", "build/bad")
    project._write_steps()


def test_help_lists_every_command_and_option(project: Project) -> None:
    shown = project.doit("help")
    assert shown.returncode == 0
    for word in (*GROUPS, "run", "why", "list", "new", "check", "clean", "forget", "ignore", "info", "tabcompletion"):
        assert re.search(rf"^  {word}\s", shown.stdout, re.MULTILINE), word
    for word in ("NO_COLOR", "130", "torch=2.9"):
        assert word in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 120
    assert project.doit("--help").stdout == project.doit("-h").stdout == shown.stdout
    of_new = project.doit("help", "new").stdout
    assert "--schema" in of_new
    assert project.doit("new", "--help").stdout == project.doit("new", "-h").stdout == of_new


def test_versions_are_printed(project: Project) -> None:
    shown = project.doit("--version").stdout
    assert shown.startswith(f"opmatrix {metadata.version('opmatrix')} in ")
    assert f"\ntorch {metadata.version('torch')}\n" in shown and f"\ndoit {metadata.version('doit')}\n" in shown


@pytest.mark.parametrize(
    ("typed", "code", "message"),
    [
        ("data:good", 0, ""),
        ("data:bad", 1, ""),
        ("good", 0, ""),  # an operator's name selects its steps
        ("bad", 1, ""),
        ("why goood", 2, "doit why: no task, operator, command or output 'goood'; did you mean 'good'?"),
        ("forget good", 0, ""),
        ("data:goood", 2, "doit run: no task, operator, command or output 'data:goood'; did you mean 'data:good'?"),
        ("--verbose 2", 2, "doit run: option --verbose not recognized; did you mean '--verbosity'?; allowed: --always"),
        ("-n two", 2, "doit run: --process takes a whole number: invalid literal for int() with base 10: 'two'"),
        ("-n -1", 2, "doit run: --process takes a number from 0 on, found -1"),
        ("color=red", 2, "unknown variable 'color'; allowed: torch, ort, opsets"),
        ("opsett=all", 2, "unknown variable 'opsett'; did you mean 'opsets'?; allowed: torch, ort, opsets\n"),
        ("info data:good opsett=all", 2, "unknown variable 'opsett'"),
        ("verifi", 2, "no task, operator, command or output 'verifi'; did you mean 'verify'?"),
        ("verify:b*", 2, "no task matches 'verify:b*'"),
        ("list --stat", 0, ""),  # abbreviated, as getopt allows
        ("list --states", 2, "doit list: option --states not recognized; did you mean '--status'?"),
        ("why data:x", 2, "doit why: no task, operator, command or output 'data:x'"),
        ("info data:x", 2, "doit info: no step 'data:x'"),
        ("-n 2 why", 2, "doit run: 'why' is a command and must come first: doit why ..."),
        ("help lst", 2, "doit help: no command 'lst'; did you mean 'list'?; `doit list` prints the tasks"),
        ("clean data:x", 2, "doit clean: no step 'data:x'; did you mean 'data'?; see `doit list --all`"),
        ("clean data:x*", 0, ""),  # a pattern
        ("forget data:goood", 2, "doit forget: no step 'data:goood'; did you mean 'data:good'?"),
        ("list goood", 2, "doit list: no step 'goood'"),
        ("ignore data:goood", 2, "doit ignore: no step 'data:goood'; did you mean 'data:good'?"),
        ("list --help", 0, ""),
        ("tabcompletion --shell tcsh", 2, "available choices are: 'bash', 'zsh'"),
        ("reset-dep", 2, "doit run: no task, operator, command or output 'reset-dep'"),
    ],
)
def test_exit_code_and_message_of_a_command_line(project: Project, typed: str, code: int, message: str) -> None:
    done = project.doit(*typed.split())
    assert done.returncode == code and str(code) in CODES
    assert message in done.stderr
    assert "Traceback" not in done.stderr and (not message or len(done.stderr.splitlines()) == 1)
    assert bool(message) == (code > 1)
    assert code < 2 or project.ran() == []


def test_an_operators_name_selects_its_steps(project: Project) -> None:
    project.step("verify:good-custom@cell", "copy", "build/good", "build/verified")
    project.step("sanitize:good", "copy", "build/good", "build/sanitized")  # only when selected by its own name
    assert project.doit("good").returncode == 0
    assert project.ran() == ["good", "verified"]
    assert project.doit("list", "good").stdout.split() == ["data:good", "verify:good-custom@cell"]
    assert project.doit("good").stdout == "2 steps, all up to date\n"
    project.doit("clean", "good")
    assert not (project.root / "build/good").exists()


def test_an_empty_argument_is_an_error(project: Project) -> None:
    for arguments in (("",), ("list", ""), ("", "-n", "2")):
        done = project.doit(*arguments)
        assert (done.returncode, done.stderr) == (2, "doit: an argument is empty; leave it out\n")


def test_an_invalid_declaration_is_exit_code_3(project: Project) -> None:
    fault = "from opmatrix.basics.errors import SpecError\nraise SpecError('no')\n"
    project.write("dodo.py", f"{project.read('dodo.py')}\n{fault}")
    for command in ("run", "list", "why"):
        done = project.doit(command)
        assert (done.returncode, done.stderr) == (3, "no\n")


PIPED = (
    "help", "help new", "--version", "list --all", "why", "info data:good", "tabcompletion", "data:good", "clean -n",
    "-n 2", "-r jsonl", "forget", "ignore data:good",
)  # fmt: skip


@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_a_command_ends_quietly_when_nobody_reads_its_output(project: Project, unbuffered: str) -> None:
    """By SIGPIPE, as the tools of Unix do, also if only the last flush of stdout meets the closed pipe."""
    environment = project._environment({"PYTHONUNBUFFERED": unbuffered})
    for command in ("-m doit " + command for command in PIPED) if unbuffered else ("-m doit list", "-m opmatrix -h"):
        done = subprocess.run(
            ["bash", "-c", f"({sys.executable} {command}; echo $? > code) | true; cat code"],
            cwd=project.root, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        assert (done.stdout, done.stderr) == ("141\n", ""), command
    done = project.doit("data:good")  # nothing holds the lock of the build folder
    assert done.returncode == 0, done.stderr


def test_ignore_is_refused_during_another_run(project: Project) -> None:
    with hold(project.root / "build/lock"):
        done = project.doit("ignore", "data:good")
    assert done.returncode == 3 and done.stderr.startswith("another run is at work in ")
    assert "I data:good" not in project.doit("list", "--all", "--status").stdout
    assert project.doit("ignore", "data:good").returncode == 0
    assert "I data:good" in project.doit("list", "--all", "--status").stdout


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        ("--version", 0, "opmatrix "),
        ("help lst", 2, "doit help: no command 'lst'; did you mean 'list'?"),
        ("list", 2, "or make one: opmatrix new --project DIR"),
    ],
)
def test_commands_outside_a_project(
    project: Project, tmp_path_factory: pytest.TempPathFactory, typed: str, code: int, said: str
) -> None:
    folder = tmp_path_factory.mktemp("empty")
    program = [sys.executable, "-c", "import sys; from opmatrix.commands.main import main; sys.exit(main())"]
    done = subprocess.run(
        [*program, *typed.split()], cwd=folder, env=project._environment({}), capture_output=True, text=True
    )
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert said in done.stdout + done.stderr


@pytest.mark.parametrize("colours", [True, False], ids=["colours", "NO_COLOR"])
def test_colours(project: Project, colours: bool) -> None:
    """In a terminal. The cursor movements that rich writes for the live line stay."""
    ours, theirs = pty.openpty()
    environment = project._environment({"TERM": "xterm-256color", "COLUMNS": "100", "NO_COLOR": "1"})
    for name in ("FORCE_COLOR", *(["NO_COLOR"] if colours else [])):
        environment.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "-m", "doit", "data:good"], cwd=project.root, env=environment, stdout=theirs, stderr=theirs
    )
    process.wait()
    os.close(theirs)
    shown = read_all(ours)
    assert "1 step" in shown
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]", shown)) == colours


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion(project: Project, shell: str) -> None:
    """doit's own script, with the commands that opmatrix adds."""
    done = project.doit("tabcompletion", "--shell", shell)
    assert done.returncode == 0 and not done.stderr
    assert {"why", "watch", "mutate"} <= {*re.findall(r"\w+", done.stdout)} and "reset-dep" not in done.stdout
    assert not re.search(r"""^ +"[^"\n]*[`$]|^ +'[^'\n]*'.""", done.stdout, re.MULTILINE), "zsh would run a part"


# At 71b51ad8: each failed, all but the doctor with "the path of the project contains bytes that are not UTF-8".
@pytest.mark.parametrize(
    ("locale", "command"),
    [
        *(
            ({"LC_ALL": "C", "PYTHONUTF8": "0"}, ["doit", *words.split()])
            for words in ("", "-n 2", "why", "list --status", "ignore data:größe", "forget data:größe")
        ),
        ({"LC_ALL": "C", "PYTHONUTF8": "0"}, ["opmatrix", "doctor"]),
        ({"LC_ALL": "C", "PYTHONUTF8": "0"}, ["opmatrix", "operator-pages"]),
        ({"LC_ALL": "POSIX", "PYTHONUTF8": "0"}, ["doit"]),
        ({"LC_ALL": "", "LC_CTYPE": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, ["doit"]),
        ({"LC_ALL": "en_US.ISO-8859-1", "PYTHONUTF8": "0"}, ["doit"]),
    ],
    ids=lambda value: " ".join(value if isinstance(value, list) else map("=".join, value.items())),
)
def test_a_locale_without_utf_8(tmp_path: Path, locale: dict[str, str], command: list[str]) -> None:
    """Names, contents, settings and what is printed have other characters than ASCII."""
    (root := tmp_path / "größe µ").mkdir()
    project = Project(root)
    project.write("pyproject.toml", f"# größe\n{project.read('pyproject.toml')}")
    project.write("größe.txt", "größe µ")
    project.step("data:größe", "copy", "größe.txt", "build/größe.pb")
    project._write_steps()
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=root, env=project._environment(locale), capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    if command[:2] in (["doit"], ["doit", "-n"]):
        assert project.read("build/größe.pb") == "größe µ".upper()
