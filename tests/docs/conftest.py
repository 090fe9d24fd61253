"""Lists, at the end of a run, the blocks of the documentation that no test runs, with their reasons."""

from __future__ import annotations

import pytest

from tests.docs.page import NotRun, PageError, parse
from tests.docs.pages import PAGES, ROOT


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List the blocks that are marked ``not run``."""
    lines = []
    for page in PAGES:
        try:
            steps = parse(page, (ROOT / page).read_text()).steps
        except PageError:
            continue  # test_pages.py reports it
        lines += [f"{page}:{step.line}: {step.reason}" for step in steps if isinstance(step, NotRun)]
    terminalreporter.section(f"blocks of the documentation that are not run: {len(lines)}")
    for line in lines:
        terminalreporter.line(line)
