"""Each page of the documentation is true: its commands, its code, the files that it shows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.docs.page import Page, PageError, parse
from tests.docs.pages import PAGES, ROOT
from tests.docs.project import with_wheel
from tests.docs.walk import walk
from tests.support.wheels import build_wheel


def to_walk() -> Iterator[Page]:
    """Yield the pages with steps; a page that breaks the convention fails in a test of its own."""
    for page in PAGES:
        try:
            parsed = parse(page, (ROOT / page).read_text())
        except PageError:
            continue
        if parsed.runs:
            yield parsed


@pytest.mark.parametrize("page", PAGES)
def test_a_page_keeps_to_the_convention(page: str) -> None:
    said = ""
    try:
        parse(page, (ROOT / page).read_text())
    except PageError as error:
        said = str(error)
    if said:  # outside the except block, so that pytest shows only the sentence
        pytest.fail(said, pytrace=False)


@pytest.fixture(scope="session")
def wheel_environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment that has opmatrix as `pip install` gives it."""
    wheel = build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))
    return with_wheel(wheel, tmp_path_factory.mktemp("environment"))


@pytest.fixture
def check(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Page], None]:
    """Return what walks through a page, in the environment that the page starts with."""

    def walk_through(page: Page) -> None:
        installed = page.project == "installed"
        prefix = request.getfixturevalue("wheel_environment") if installed else Path(sys.prefix)
        said = ""
        try:
            walk(page, tmp_path, root=ROOT, prefix=prefix)
        except PageError as error:
            said = str(error)
        if said:
            pytest.fail(said, pytrace=False)

    return walk_through


@pytest.mark.compile
@pytest.mark.torch
@pytest.mark.ort
@pytest.mark.timeout(3600)  # each step has its own limit, and a page any number of steps
@pytest.mark.parametrize("page", [*to_walk()], ids=lambda page: page.path)
def test_a_page_is_true(page: Page, check: Callable[[Page], None]) -> None:
    check(page)


@pytest.mark.torch
@pytest.mark.parametrize("page", [p for p in to_walk() if p.for_both], ids=lambda page: page.path)
def test_a_page_begins_alike_in_a_clone_and_with_the_installed_package(
    page: Page, check: Callable[[Page], None]
) -> None:
    """Up to its first `doit new`, where a tutorial that was written for one of them fails in the other."""
    check(page.opening())
