"""Each page of the documentation is true: its commands, its code, the files that it shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.page import Page, PageError, parse
from tests.docs.pages import PAGES, ROOT
from tests.docs.walk import walk


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


@pytest.mark.compile
@pytest.mark.torch
@pytest.mark.ort
@pytest.mark.timeout(3600)  # each step has its own limit, and a page any number of steps
@pytest.mark.parametrize("page", [*to_walk()], ids=lambda page: page.path)
def test_a_page_is_true(page: Page, tmp_path: Path) -> None:
    said = ""
    try:
        walk(page, tmp_path, root=ROOT)
    except PageError as error:
        said = str(error)
    if said:
        pytest.fail(said, pytrace=False)
