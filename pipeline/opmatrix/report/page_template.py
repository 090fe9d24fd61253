"""The template of the report's HTML page: markup, style and scripts, and the libraries in `vendored`.

Rendered without Jinja2: its import takes 45 ms, a quarter of the report step, which follows every edit of a kernel.
"""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from pathlib import Path

_FOLDER = Path(__file__).parent
# One script in the page, joined in this order: its parts share names, and `page` starts drawing.
_SCRIPTS = (
    *("graph", "plots", "data", "mismatch", "causes", "filters", "matrix", "keys", "legend", "banner", "runs"),
    *("overview", "operators", "records", "detail", "page"),
)
_PAGE, _STYLE, *_OURS = (
    _FOLDER / "templates" / name for name in ("page.html", "page.css", *(f"{script}.js" for script in _SCRIPTS))
)
_BENCH_STYLE, _BENCH = (_FOLDER / "templates" / name for name in ("bench.css", "bench.js"))  # with times alone
_LIBRARIES = {"uPlot": ("uPlot.iife.min.js", "uPlot.min.css"), "dagre": ("dagre.min.js",)}
VENDORED = tuple(
    _FOLDER / "vendored" / name for library, files in _LIBRARIES.items() for name in (f"{library}.LICENSE", *files)
)
TEMPLATES = (_PAGE, _STYLE, *_OURS, _BENCH_STYLE, _BENCH, *VENDORED)

_SLOT = re.compile(r"\{\{ (\w+) \}\}")
_SOURCE_MAP = re.compile(r"^//# sourceMappingURL=.*\n?", re.MULTILINE)  # names a file that is not there


def join(data: str, *, bench: bool = False) -> str:
    """Return the page around `data`, which is JSON; `bench`: whether it has times of `doit bench`. Its
    Content-Security-Policy allows only this style and these scripts, by hash, so that even a string that escaped from
    `data` could not run or load anything."""
    css = "\n".join((*_library(".css"), *_texts(_STYLE, *[_BENCH_STYLE] * bench)))
    scripts = (*_library(".js"), "\n".join(_texts(*_OURS, *[_BENCH] * bench)))
    parts = {
        "policy": f"default-src 'none'; script-src {' '.join(map(_allowed, scripts))}; style-src {_allowed(css)}; "
        "img-src data:; base-uri 'none'; form-action 'none'",
        "style": css,
        "libraries": "\n".join(f"<script>{script}</script>" for script in scripts[:-1]),
        "script": scripts[-1],
        "data": in_script(data),
    }
    return _SLOT.sub(lambda slot: parts[slot[1]], _PAGE.read_text(encoding="utf-8"))


def _texts(*paths: Path) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in paths]


def _library(suffix: str) -> list[str]:
    """Return the libraries' files with this suffix, each after its licence, which a copy must contain."""
    files, licence = [], ""
    for path in VENDORED:
        if path.suffix == ".LICENSE":
            licence = path.read_text(encoding="utf-8").strip()
        elif path.suffix == suffix:
            files.append(f"/*!\n{licence}\n*/\n{_SOURCE_MAP.sub('', path.read_text(encoding='utf-8'))}")
    return files


def in_script(text: str) -> str:
    """Return JSON for a script element: no character in it can end the element or begin a comment."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _allowed(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
