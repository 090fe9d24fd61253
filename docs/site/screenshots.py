"""The screenshots of docs/images: `./run python -m docs.site.screenshots`, with chromedriver on PATH; four minutes.

Those of a terminal show what `doit` prints in one of 88x24, in a new project with the operator of docs/quick-start.md.
Those of the report show the page of the operators of ops/, the times of group_norm in it, the same with a fault in
group_norm's kernel, and the page of 10,000 made-up cells.
"""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selenium import webdriver

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/images"
COMMAND = "./run python -m docs.site.screenshots"
COLUMNS, LINES = 88, 24
WIDTH, HEIGHT = 1280, 860  # of the page
DOIT = (sys.executable, "-m", "doit")
# In native/group_norm/kernel.h: one factor per group, as in the tutorial that the operator is from.
FAULT = ("load(scale + c)", "simd::broadcast<double>(scale[0])")
OPERATORS = 38  # made up; with 268 cells each, more than 10,000
_WIDE, _HIGH, _PAD, _BAR = 8.4, 19, 16, 34  # a character of a terminal; its margin and title bar
# As pyte names colours; on a dark background.
_COLOURS = {
    "default": "#d0d7de", "black": "#6e7681", "red": "#ff7b72", "green": "#3fb950", "brown": "#d29922",
    "yellow": "#d29922", "blue": "#79c0ff", "magenta": "#d2a8ff", "cyan": "#56d4dd", "white": "#f0f6fc",
}  # fmt: skip


def in_terminal(command: Sequence[str], folder: Path) -> str:
    """Return all that a command writes to a terminal of COLUMNS by LINES."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (LINES, COLUMNS))
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR", "CI", "GITHUB_ACTIONS")}
    process = subprocess.Popen(
        command, cwd=folder, env=kept | {"TERM": "xterm-256color"}, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    found = bytearray()
    while True:
        select.select([ours], [], [])
        try:
            found += os.read(ours, 1 << 16)
        except OSError:  # EIO: the command has ended
            break
    os.close(ours)
    process.wait()
    return found.decode(errors="replace")


def terminal(typed: str, output: str) -> str:
    """Return what a terminal shows after a command as an SVG: the prompt, and the lines with their colours."""
    import pyte  # of the development environment

    screen = pyte.Screen(COLUMNS, LINES)
    pyte.Stream(screen).feed(f"\x1b[1m$ {typed}\x1b[0m\r\n{output}")
    rows = [[screen.buffer[y][x] for x in range(COLUMNS)] for y in range(screen.lines)]
    while rows and not "".join(c.data for c in rows[-1]).strip():
        rows.pop()
    width, height = round(COLUMNS * _WIDE + 2 * _PAD), len(rows) * _HIGH + _BAR + _PAD
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img">',
        f"<!-- Made by `{COMMAND}`. -->",
        f"<title>{escape(typed)} in a terminal</title>",
        "<style>text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre }</style>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>',
        *(f'<circle cx="{20 + 18 * n}" cy="17" r="5.5" fill="#484f58"/>' for n in range(3)),
    ]
    for y, row in enumerate(rows):
        lines += _line(row, _BAR + (y + 0.75) * _HIGH)
    return "\n".join([*lines, "</svg>\n"])


def _line(row: Sequence[Any], y: float) -> Iterator[str]:
    """Yield the pieces of a line, each with one style, at the columns where a terminal has them."""
    at = 0
    for (colour, bold), characters in groupby(row, key=lambda c: (c.fg, c.bold)):
        text = "".join(c.data for c in characters)
        if text.strip():
            shade = _COLOURS.get(colour.removeprefix("bright"), f"#{colour}" if len(colour) == 6 else "#d0d7de")
            weight = ' font-weight="700"' if bold else ""
            yield (
                f'<text x="{_PAD + at * _WIDE:.1f}" y="{y:g}" fill="{shade}"{weight} '
                f'textLength="{len(text.rstrip()) * _WIDE:.1f}">{escape(text.rstrip())}</text>'
            )
        at += len(text)


@contextmanager
def browser() -> Iterator[webdriver.Chrome]:
    """Start chromium. Its own --screenshot shows nothing of a page that is scrolled, as by #bench (version 156)."""
    from tests.support.chromium import MISSING, start

    driver = start("--hide-scrollbars")
    if not driver:
        sys.exit(f"screenshots.py: {MISSING}")
    try:
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        yield driver
    finally:
        driver.quit()


def page(driver: webdriver.Chrome, address: str, name: str) -> None:
    """Write a picture of a page as chromium shows it."""
    driver.get("about:blank")  # else an address that differs in its fragment alone is not loaded again
    driver.get(address)
    driver.save_screenshot(FOLDER / name)
    print(f"docs/images/{name}")


def write(name: str, text: str) -> None:
    (FOLDER / name).write_text(text)
    print(f"docs/images/{name}")


def terminals(folder: Path) -> None:
    """Write the pictures of a run that succeeds and of one that fails."""
    from tests.support.quick_start import fill_in

    opmatrix = Path(sys.executable).with_name("opmatrix")
    subprocess.run([opmatrix, "new", "--project", folder], check=True, capture_output=True)
    schema = "my::scale_shift(Tensor x, Tensor scale, float shift=0.0) -> Tensor"
    subprocess.run(
        [*DOIT, "new", "--schema", schema, "--domain", "my.domain"], cwd=folder, check=True, capture_output=True
    )
    fill_in(folder)
    write("verified.svg", terminal("doit", in_terminal(DOIT, folder)))
    kernel = folder / "native/scale_shift/kernel.h"
    kernel.write_text(kernel.read_text().replace("scale.data[i]", "scale.data[0]"))
    write("failing.svg", terminal("doit", in_terminal(DOIT, folder)))


def reports(folder: Path) -> None:
    """Write the pictures of the page: verified, its times, with a failure, and with 10,000 cells."""
    for name in ("ops", "native"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("dodo.py", "pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    made = folder / "build/report/index.html"
    subprocess.run([*DOIT, "bench", "--budget", "1", "group_norm"], cwd=folder, stdout=subprocess.DEVNULL, check=True)
    subprocess.run(DOIT, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    with browser() as driver:
        page(driver, made.as_uri(), "report-verified.png")
        page(driver, f"{made.as_uri()}#bench", "report-bench.png")
        kernel = folder / "native/group_norm/kernel.h"
        text = kernel.read_text()
        kernel.write_text(text.replace(*FAULT))
        assert kernel.read_text() != text, "the fault of docs/site/screenshots.py fits no line of group_norm's kernel"
        subprocess.run(DOIT, cwd=folder, stdout=subprocess.DEVNULL)
        page(driver, made.as_uri(), "report-failing.png")
        page(driver, many(folder / "many.html").as_uri(), "report-10000-cells.png")


def many(path: Path) -> Path:
    """Write a page of made-up cells, as the tests of the report have them; return `path`."""
    from opmatrix.report import page as html_page
    from opmatrix.report.report_json import document
    from tests.report.many import BACKGROUND, ENVIRONMENTS, checks, records

    found = records(OPERATORS)
    report = document(found, ENVIRONMENTS, checks=checks())
    path.write_text(html_page.render(report, found, [BACKGROUND] * len(found), checks()), encoding="utf-8")
    return path


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        terminals(Path(folder) / "my_ops")
    with tempfile.TemporaryDirectory() as folder:
        reports(Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
