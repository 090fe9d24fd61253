"""The names of the matrix's environments in tox."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest

from opmatrix.basics.errors import UsageError
from opmatrix.basics.version import minor
from opmatrix.environments.tox_plugin import Factors, labels
from opmatrix.project.cells import Choice
from opmatrix.project.paths import Paths
from opmatrix.project.settings import default_opsets, installed, with_environment

FACTORS = Factors(torches=("1.13", "2.13"), orts=("1.18", "1.31"), opsets=(9, 18, 25))


def test_only_supported_versions_have_a_name() -> None:
    assert list(FACTORS.names()) == [
        "torch1.13",
        "torch1.13-opset9",
        "torch2.13",
        "torch2.13-opset9",
        "torch2.13-opset18",
        "torch2.13-opset25",
        "ort1.18",
        "ort1.31",
    ]


@pytest.mark.parametrize(
    ("name", "choice"),
    [
        ("torch2.13", Choice(torch="2.13")),
        ("torch1.13-opset9", Choice(torch="1.13", opsets="9")),
        ("ort1.18", Choice(torch="made", ort="1.18")),
        ("lint", None),
        ("py311", None),
    ],
)
def test_the_cells_that_a_name_chooses(name: str, choice: Choice | None) -> None:
    assert FACTORS.choice(name) == choice


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("torch1.13-opset18", "torch1.13-opset18: the legacy exporter of torch 1.13 writes opsets 7 to 17, not 18; "
         "torch 1.13 has no exporter that takes a custom_translation_table; torch 2.6 is the first"),
        ("torch2.13-opset26", "torch2.13-opset26: the legacy exporter of torch 2.13 writes opsets 7 to 20, not 26; the "
         "dynamo exporter of torch 2.13 writes opsets 18 to 25, not 26"),
        ("torch2.13-opset19", "opset 19 is legal, and has no name in tox, which has 9, 18, 25"),
        ("torch2.13-opset", "found opset '', allowed: a number"),
        ("torch2.14", "there is no torch2.14; allowed: torch1.13, torch2.13; did you mean '2.13'?"),
        ("ort1.17", "there is no ort1.17; allowed: ort1.18, ort1.31"),
    ],
)  # fmt: skip
def test_an_unsupported_name_has_the_reason_of_the_table(name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=re.escape(reason)):
        FACTORS.choice(name)


def test_an_opset_is_a_part_of_its_torch() -> None:
    assert labels("torch2.13", main="2.13") == ("full", "torch", "quick")
    assert labels("torch1.13", main="2.13") == ("full", "torch")
    assert labels("ort1.18", main="2.13") == ("full", "ort")
    assert labels("torch2.13-opset18", main="2.13") == ()


def test_tox_without_arguments_runs_the_fast_environments(root: Path) -> None:
    """tox.ini has the main environment's torch, for which tox has no label."""
    settings = configparser.ConfigParser(interpolation=None)
    settings.read(root / "tox.ini")
    main = minor(installed().torch)
    quick = [s.partition(":")[2] for s in settings.sections() if "quick" in settings[s].get("labels", "")]
    assert settings["tox"]["env_list"].split(", ") == [*quick, f"torch{main}"]


def test_every_environment_of_this_project_has_pins_and_a_row(root: Path) -> None:
    """Without a row in pipeline/opmatrix/project/cells.py, a file in requirements/ would be silently ignored."""
    torches, orts = with_environment(Paths(root))
    pinned = {p.stem for p in (root / "requirements").glob("*.txt") if re.fullmatch(r"(torch|ort)[\d.]+\d", p.stem)}
    named = {f"torch{v}" for v in torches} | {f"ort{v}" for v in orts}
    assert named == pinned, "those of .venv as well: a project may have others installed"
    assert set(Factors.of(torches=[*torches], orts=[*orts], default=default_opsets(Paths(root))).names()) >= named
