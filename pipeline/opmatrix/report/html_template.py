"""The report's page as it is written by hand: markup, style and what runs in it.

Joined without Jinja2: to import that costs 45 ms, a quarter of what all of the report step does, and that follows every
edit of a kernel.
"""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

_FOLDER = Path(__file__).parent / "templates"
# One script in the page, which is read in this order: names are shared, and the last part begins to draw.
_SCRIPTS = (
    "graph.js",
    "data.js",
    "filters.js",
    "matrix.js",
    "keys.js",
    "legend.js",
    "faults.js",
    "detail.js",
    "page.js",
)
TEMPLATES = tuple(_FOLDER / name for name in ("page.html", "page.css", *_SCRIPTS))

_SLOT = re.compile(r"\{\{ (\w+) \}\}")


def join(data: str) -> str:
    """Return the page around `data`, which is JSON.

    The page's policy forbids whatever does not stand in it: by hash it allows our style and our script alone, so that
    not even a text in `data` that got out of its element would run or load anything.
    """
    html, css, *js = (path.read_text() for path in TEMPLATES)
    script = "\n".join(js)
    parts = {
        "policy": f"default-src 'none'; script-src {_allowed(script)}; style-src {_allowed(css)}; img-src data:; "
        "base-uri 'none'; form-action 'none'",
        "style": css,
        "script": script,
        "data": in_script(data),
    }
    return _SLOT.sub(lambda slot: parts[slot[1]], html)


def in_script(text: str) -> str:
    """Return JSON that may stand in a script element: no character in it can end that, or begin a comment."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _allowed(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
