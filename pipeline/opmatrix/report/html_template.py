"""The template of the report's HTML page: markup, style and scripts.

Rendered without Jinja2: its import takes 45 ms, a quarter of the report step, which follows every edit of a kernel.
"""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

_FOLDER = Path(__file__).parent / "templates"
# One script in the page, joined in this order: its parts share names, and the last one starts drawing.
_SCRIPTS = ("graph", "data", "filters", "matrix", "keys", "legend", "faults", "detail", "page")
TEMPLATES = tuple(_FOLDER / name for name in ("page.html", "page.css", *(f"{script}.js" for script in _SCRIPTS)))

_SLOT = re.compile(r"\{\{ (\w+) \}\}")


def join(data: str) -> str:
    """Return the page around `data`, which is JSON. Its Content-Security-Policy allows only this style and this script,
    by hash, so that even a string that escaped from `data` could not run or load anything."""
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
    """Return JSON for a script element: no character in it can end the element or begin a comment."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _allowed(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
