"""What dist.json says about results from a shared cache, and which of them do not ship."""

from __future__ import annotations

from pathlib import Path

import pytest

from opmatrix.addons.team import signed_results
from opmatrix.addons.team.signing import identities
from opmatrix.basics.errors import DistError
from opmatrix.project.cells import Cell
from opmatrix.project.paths import Paths
from opmatrix.report.history import Origins, write_origins

CELL = Cell.parse("torch2.13-legacy-opset18-ort1.31")
LINE = "ci ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIENftjgiitC6h3Q+V0Eu7n2R6wRW/vZQD24wnrbK/dqO"
CI = "ci SHA256:nMQkgHmZ+C4p9Z6TVdswXYQwegqal98J6HYp29FWY9M"  # as ssh-keygen -l prints it
URL = "https://cache.example.org"
OF_WHEEL = [
    "codegen:nms", "compile:nms", f"export:nms-custom@{CELL.export_name}", "register:nms-kernel@torch2.13",
    f"verify:nms-custom@{CELL}",
]  # fmt: skip
OTHERS = [
    "compile:nms_grad", "compile:relu", "register:nms-kernel@torch2.9",
    "verify:nms-custom@torch2.9-legacy-opset18-ort1.31", "compile:nms@torch2.6",
]  # fmt: skip


def check(folder: Path, found: Origins, *, signers: list[str] | None = None) -> list[dict[str, object]]:
    paths = Paths(folder)
    (folder / "pyproject.toml").write_text(f"[tool.opmatrix.cache]\nsigners = {signers}\n" if signers else "")
    write_origins(paths, found)
    return signed_results.check(paths, ["nms"], [CELL])


def test_the_steps_of_the_wheel_are_listed_by_signer(tmp_path: Path) -> None:
    """Not those of other operators, torches and cells. The address is the project's own business, not its users'."""
    assert identities([LINE]) == {CI}
    assert check(tmp_path, {}, signers=[LINE]) == []
    found = {**dict.fromkeys([*OF_WHEEL[1:], *OTHERS], (URL, CI)), OF_WHEEL[0]: (URL, None)}
    assert check(tmp_path, found) == [{"signer": None, "steps": OF_WHEEL[:1]}, {"signer": CI, "steps": OF_WHEEL[1:]}]
    found = dict.fromkeys(OF_WHEEL, (URL, CI)) | dict.fromkeys(OTHERS, (URL, None))
    assert check(tmp_path, found, signers=[LINE]) == [{"signer": CI, "steps": OF_WHEEL}]


@pytest.mark.parametrize(
    "signer", [None, "", "ci", CI[:-1], CI.replace("ci", "other"), CI.replace("SHA256:n", "SHA256:m")]
)
def test_what_no_signer_signed_does_not_ship(tmp_path: Path, signer: str | None) -> None:
    """Also not what a removed signer signed, or an older key of the same name."""
    found = dict.fromkeys(OF_WHEEL[:1], (URL, CI)) | dict.fromkeys(OF_WHEEL[1:], (URL, signer))
    with pytest.raises(DistError) as caught:
        check(tmp_path, found, signers=[LINE])
    assert str(caught.value) == (
        "4 results of the wheel came from a shared cache without the signature of a signer that pyproject.toml names: "
        f"{', '.join(OF_WHEEL[1:4])}, .... Compute them here, "
        "or take signed ones: doit forget compile export register verify && doit dist"
    )
