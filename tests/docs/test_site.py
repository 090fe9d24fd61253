"""The site does not build with a broken link. Only tox's environment `docs` has Sphinx."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.support.projects import write_files

BUILDER = Path(os.environ.get("TOX_ENV_DIR", "/nowhere")) / "bin/sphinx-build"
SOUND = "[file](../run), [folder](../ops), [page](other.md#a-heading), [other](../ops/x/README.md), [here](#faults)"
pytestmark = [
    pytest.mark.tools,
    pytest.mark.skipif(not BUILDER.is_file(), reason="needs Sphinx: ./run tox run -e docs"),
]


def build(folder: Path, text: str, *, others: str = "other\nglossary\n", **environment: str) -> tuple[int, str]:
    """Build a site of two pages with this project's settings."""
    files = {
        "docs/index.md": f"# Site\n\n```{{toctree}}\nfaults\n{others}../ops/x/README\n```\n",
        "docs/faults.md": f"# Faults\n\n{text}\n",
        "docs/other.md": "# Other\n\n## A heading\n",
        "docs/glossary.md": "# Words\n\n```{glossary}\ncell\n  A part.\n```\n",
        "ops/x/README.md": "# x\n",
        "run": "",
    }
    write_files(folder, files)
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copy(ROOT / "docs/conf.py", folder / "docs")
    shutil.copytree(ROOT / "docs/site", folder / "docs/site", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    command = [str(BUILDER), "-W", "-n", "--keep-going", "-q", "-E", "-c", "docs", ".", "build"]
    done = subprocess.run(command, cwd=folder, env=os.environ | environment, capture_output=True, text=True)
    return done.returncode, done.stderr


def test_links_of_all_kinds_resolve(tmp_path: Path) -> None:
    assert build(tmp_path, SOUND) == (0, "")
    page = (tmp_path / "build/docs/faults.html").read_text()
    assert 'href="other.html#a-heading"' in page and 'href="../ops/x/README.html"' in page
    assert page.count("_downloads/") == 1  # the site includes a copy of run
    assert ">folder</a>" not in page
    assert "docs/index.html" in (tmp_path / "build/index.html").read_text()


def test_code_blocks_of_files_have_captions_and_terms_have_links(tmp_path: Path) -> None:
    text = (
        "A [term](glossary.md#term-cell).\n\n<!-- write: ops/x/spec.py -->\n```python\npass\n```\n\n"
        "<!-- shown: run -->\n<!-- write: copy -->\n```text\nword\n```\n\n```python\nno_file = 1\n```\n"
    )
    assert build(tmp_path, text) == (0, "")
    page = (tmp_path / "build/docs/faults.html").read_text()
    assert re.findall(r'caption-text">([^<]+)<', page)[-2:] == ["ops/x/spec.py", "copy"]
    assert 'href="glossary.html#term-cell"' in page


def test_files_link_to_the_repository_if_its_address_is_known(tmp_path: Path) -> None:
    assert build(tmp_path, SOUND, OPMATRIX_REPOSITORY="https://example.org/here/blob/main") == (0, "")
    page = (tmp_path / "build/docs/faults.html").read_text()
    assert 'href="https://example.org/here/blob/main/run"' in page
    assert 'href="https://example.org/here/blob/main/ops"' in page
    assert 'href="../ops/x/README.html"' in page


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[gone](gone.md)", "gone.md"),
        ("[gone](other.md#gone)", "gone"),
        ("[gone](#gone)", "gone"),
        ("[gone](glossary.md#term-gone)", "term-gone"),
        ("[gone](../ops/gone)", "../ops/gone"),
        ("[gone](../gone.py)", "../gone.py"),
        ("![gone](gone.png)", "gone.png"),
    ],
)
def test_a_broken_link_is_found(tmp_path: Path, text: str, said: str) -> None:
    code, errors = build(tmp_path, text)
    assert code != 0
    assert "docs/faults.md:3: WARNING:" in errors and said in errors


def test_a_page_without_a_link_to_it_is_found(tmp_path: Path) -> None:
    code, errors = build(tmp_path, "Text.", others="glossary\n")
    assert code != 0
    assert "docs/other.md: WARNING: document isn't included in any toctree" in errors
