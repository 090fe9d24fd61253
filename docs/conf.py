"""Sphinx's settings for the site, which `./run tox run -e docs` builds into build/docs.

The source folder is the root of the repository, so that pages link to each other, to README.md and the operators' pages
as they do on GitHub. OPMATRIX_REPOSITORY is the address of the repository's files, without the last slash, such as
``https://github.com/someone/opmatrix/blob/main``: links to files that are no pages go there. Without it, the site
includes a copy of such a file, and a folder is not linked.
"""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path, PurePosixPath

from docutils import nodes
from sphinx.addnodes import download_reference, pending_xref
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.transforms.post_transforms import SphinxPostTransform

ROOT = Path(__file__).parents[1]
GLOSSARY = "docs/glossary"
ADDRESS = os.environ.get("OPMATRIX_REPOSITORY", "")

project = "opmatrix"
author = "the authors of opmatrix"
version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
release = version
extensions = ["myst_parser", "sphinx_copybutton", "sphinx_design"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "ops/*/README.md", "examples/**README.md", "benchmarks/README.md"]
exclude_patterns = [".*", "build", "tests", "native", "pipeline", "requirements"]
nitpicky = True
myst_enable_extensions = ["colon_fence"]  # of the cards
myst_heading_anchors = 4  # anchors as GitHub makes them; a link to a missing anchor is an error
html_theme = "furo"
pygments_dark_style = "github-dark"  # the theme underlines names of modules
html_title = f"opmatrix {version}"
html_static_path = ["site/static"]
html_css_files = ["site.css"]
html_extra_path = ["site/index.html"]  # redirects from the root to docs/index.html
html_copy_source = False
copybutton_prompt_text = r"\$ |> "  # what is copied: only commands, without their prompts
copybutton_prompt_is_regexp = True
html_show_copyright = False


def setup(app: Sphinx) -> None:
    """Add what MyST does not do: captions of code blocks, and links to terms and to files that are no pages."""
    app.add_transform(FileNames)
    app.add_post_transform(Terms)
    app.add_post_transform(NoPages)


class FileNames(SphinxTransform):
    """Give a code block that is a file, by the comment `write:` or `shown:` before it, the file's name as caption."""

    default_priority = 200  # before Sphinx gives each caption an id, at 210

    def apply(self, **_: object) -> None:
        for block in list(self.document.findall(nodes.literal_block)):
            before = block
            while isinstance(before := before.previous_sibling(), nodes.comment | nodes.raw):
                if found := re.search(r"\b(?:write|append|shown): (\S+)", before.astext()):
                    caption = nodes.caption("", found[1])
                    wrapper = nodes.container("", literal_block=True, classes=["literal-block-wrapper"])
                    block.replace_self(wrapper)
                    wrapper += [caption, block]
                    break


class Terms(SphinxPostTransform):
    """Resolve links such as `../glossary.md#term-cell`, which GitHub takes to the page, to the term itself."""

    default_priority = 5  # before MyST, which knows headings alone

    def run(self, **_: object) -> None:
        terms = {anchor for _, _, _, page, anchor, _ in self.env.domains["std"].get_objects() if page == GLOSSARY}
        for node in list(self.document.findall(pending_xref)):
            target = node.get("reftargetid")
            if node["reftarget"] == GLOSSARY and target in terms:
                address = self.app.builder.get_relative_uri(self.env.docname, GLOSSARY)
                inner = nodes.inline("", "", *node.children)
                node.replace_self(nodes.reference("", "", inner, internal=True, refuri=f"{address}#{target}"))


class NoPages(SphinxPostTransform):
    """Resolve links to files that are no pages: to the repository, or as plain text without an address."""

    default_priority = 5  # before MyST reports the links, and before files are copied

    def run(self, **_: object) -> None:
        for node in list(self.document.findall(pending_xref)):
            target = node["reftarget"] + ".md" if node.get("refdomain") == "doc" else self.beside(node["reftarget"])
            page = node.get("refdomain") == "doc" and node["reftarget"] in self.env.found_docs
            if node["reftype"] == "myst" and not page and node["reftarget"] and (ROOT / target).exists():
                node.replace_self(linked(node.children, target))
        for node in list(self.document.findall(download_reference)) if ADDRESS else ():
            node.replace_self(linked(node.children, self.beside(node["reftarget"])))

    def beside(self, target: str) -> str:
        """Return the path, from the root, of what a page names relative to itself."""
        return os.path.normpath(PurePosixPath(self.env.docname).parent / target)


def linked(content: list[nodes.Node], path: str) -> nodes.Element:
    """Return a link to a path of the repository, or only its text where the address is not set."""
    inner = nodes.inline("", "", *content)
    return nodes.reference("", "", inner, internal=False, refuri=f"{ADDRESS}/{path}") if ADDRESS else inner
