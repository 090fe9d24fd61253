"""What code of the project writes by a relative path does not stay in the checkout, and what it reads so is found."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.incremental.conftest import start_doit, wait_for
from tests.support.projects import Project, edited

pytestmark = [pytest.mark.incremental, pytest.mark.compile, pytest.mark.ort, pytest.mark.slow]

OPERATOR = "custom_op_one"
# Where code of the project runs, the text before which the planted code comes, and its language.
PLACES = {
    "spec.py": (f"ops/{OPERATOR}/spec.py", "SPEC = ", "py"),
    "cases.py": (f"ops/{OPERATOR}/cases.py", "EXTREME = ", "py"),
    "the import of reference.py": (f"ops/{OPERATOR}/reference.py", "def custom_op_one", "py"),
    "a call of the reference": (f"ops/{OPERATOR}/reference.py", "    with np.errstate", "py"),
    "the kernel": (f"native/{OPERATOR}/kernel.h", "  parallel_for(", "cpp"),
}
# At 71b51ad8: what each wrote stayed in the checkout, wherever it ran.
ENDS = {
    "at the end": {"py": "", "cpp": ""},
    "by an exception": {"py": "raise RuntimeError", "cpp": "throw 1;"},
    "by a crash": {"py": "os.kill(os.getpid(), 11)", "cpp": "*static_cast<volatile int*>(nullptr) = 1;"},
    "by an exit": {"py": "os._exit(0)", "cpp": "std::_Exit(0);"},
    "by Ctrl-C": {"py": "while True: pass", "cpp": "for (volatile bool go = true; go;) {}"},
}
# In a step alone, for spec.py and cases.py are also read by doit itself: tests/declaration/test_isolated.py.
PYTHON = (
    "import os\n"
    "if 'OPMATRIX_WORK' in os.environ:\n"
    "    open('left', 'w').close()\n"
    "    assert open('ops/custom_op_one/table.txt').read() == 'read'\n"
    "    open('{marker}', 'w').close()\n"
    "    {end}\n"
)
CPP = """
  std::fclose(std::fopen("left", "w"));
  if (std::FILE* table = std::fopen("ops/custom_op_one/table.txt", "r")) {{
    std::fclose(table);
    std::fclose(std::fopen("{marker}", "w"));
  }}
  {end}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project.copy(tmp_path_factory.mktemp("project"), operators=(OPERATOR,))
    (made.root / f"ops/{OPERATOR}/table.txt").write_text("read")
    include = "#include <cstdint>"
    made.replace(f"native/{OPERATOR}/kernel.h", include, f"{include}\n#include <cstdio>\n#include <cstdlib>")
    made.passes("opsets=18")
    return made


def planted(place: str, how: str, marker: Path) -> tuple[str, str, str]:
    """Return a file, a text in it, and that text with code before it that writes and then ends in some way."""
    file, before, language = PLACES[place]
    end = ENDS[how][language]
    if language == "cpp":
        return file, before, CPP.format(marker=marker, end=end) + before
    indent = before[: len(before) - len(before.lstrip())]
    code = PYTHON.format(marker=marker, end=end or "pass")
    return file, before, "".join(f"{indent}{line}\n" for line in code.splitlines()) + before


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("place", PLACES)
def test_nothing_stays_in_the_checkout(place: str, how: str, built: Project, tmp_path: Path) -> None:
    marker, there = tmp_path / "marker", {*built.root.iterdir()}
    file, before, after = planted(place, how, marker)
    docs = '"""The sum', f'"""{place}, {how}: the sum'  # so that steps run
    with edited(built.paths.reference(OPERATOR), *docs), edited(built.root / file, before, after):
        doit = start_doit(built.root, "opsets=18")
        if how == "by Ctrl-C":
            wait_for(marker.exists)
            doit.send_signal(signal.SIGINT)
        output, _ = doit.communicate()
    assert marker.exists(), output
    assert doit.returncode == {"at the end": 0, "by Ctrl-C": 130}.get(how, 1), output
    assert {*built.root.iterdir()} == there
    wait_for(lambda: not [*built.paths.work("").iterdir()])
