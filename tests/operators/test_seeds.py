"""A generator gives the seed of an operator, one number per call; an exported model has the number as a constant.

tests/projects/seeds: the seed of `dropout` is required, so that None is torch's default generator; that of `numbers`
has a default; that of `jitter`, which writes its argument, may be absent. Their numbers are those of NumPy's Philox and
MT19937, and of published vectors of SplitMix64. tests/faults/seeds.toml has the faults.
"""

from __future__ import annotations

import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest

from opmatrix.basics.errors import CompatError, DistError
from opmatrix.declaration.load import load_operator
from tests.support.building import registered
from tests.support.forked import forked
from tests.support.projects import ROOT, Project, edited
from tests.support.wheels import run_planted

pytestmark = [pytest.mark.compile, pytest.mark.torch, pytest.mark.ort, pytest.mark.slow]

OPERATORS = ("dropout", "jitter", "numbers")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project.copy(tmp_path_factory.mktemp("seeds"), operators=())
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tests/projects/seeds", made.root, dirs_exist_ok=True, ignore=ignored)
    made.passes("opsets=18")
    return made


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_cell_is_verified(operator: str, project: Project) -> None:
    """Each model was exported through a generator that gives the seed of the case."""
    found = {name: record["outcome"] for name, record in project.records().items() if name.startswith(operator)}
    cells = ("legacy-opset18", "dynamo-opset18")
    assert found == {f"{operator}-custom@torch2.13-{cell}-ort1.31": "verified" for cell in cells}


def drawn(seed: int, count: int) -> list[int]:
    """Return the first numbers of a generator with a seed, from 0 to 2**63 - 1, by NumPy's MT19937."""
    words = np.random.RandomState(seed).randint(0, 2**32, 2 * count, dtype=np.uint32).astype(object)
    return [int((first << 32 | second) % 2**63) for first, second in zip(words[::2], words[1::2], strict=True)]


def first_of_splitmix(seed: int) -> int:
    """Return the first number of SplitMix64 as int64."""
    z = seed + 0x9E3779B97F4A7C15 & 2**64 - 1
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & 2**64 - 1
    z = (z ^ z >> 27) * 0x94D049BB133111EB & 2**64 - 1
    z ^= z >> 31
    return z - 2**64 if z >= 2**63 else z


def kept(seed: int, count: int) -> list[float]:
    """Return the dropout of ones with p=0.5."""
    return [0.0 if u < 0.5 else 2.0 for u in np.random.Generator(np.random.Philox(key=seed)).random(count)]


def test_each_call_draws_one_number(project: Project) -> None:
    def calls() -> None:
        import torch

        registered(project, *OPERATORS)
        dropout, jitter_, numbers = torch.ops.sown.dropout, torch.ops.sown.jitter_, torch.ops.sown.numbers.like
        x, generator = torch.ones(7), torch.Generator().manual_seed(7)
        first, second, third = drawn(7, 3)
        assert numbers(torch.ones(1), generator=generator).item() == first_of_splitmix(first)
        assert dropout(x, 0.5, generator).tolist() == kept(second, 7)
        assert dropout(x, generator=generator).tolist() == kept(third, 7)
        assert numbers(torch.ones(1)).item() == numbers(torch.ones(1), generator=None).item() == first_of_splitmix(42)
        torch.manual_seed(7)
        assert [dropout(x).tolist() for _ in range(3)] == [kept(seed, 7) for seed in (first, second, third)]
        written = x.double()
        assert jitter_(written) is written and torch.equal(written, x.double())
        assert not torch.equal(jitter_(written, generator=generator), x.double())

        leaf = torch.randn(9, dtype=torch.float64, requires_grad=True)
        twin = torch.Generator()
        assert torch.autograd.gradcheck(lambda t: dropout(t, 0.25, twin.manual_seed(3)), leaf)
        with pytest.raises(RuntimeError, match="Expected a value of type 'Optional\\[Generator\\]'"):
            dropout(x, 0.5, 7)

    assert forked(calls, project.root / "output") == ""


@pytest.mark.filterwarnings("ignore")
def test_torch_compile_and_vmap_freeze_no_number(project: Project) -> None:
    def calls() -> None:
        import torch

        registered(project, *OPERATORS)
        dropout, x = torch.ops.sown.dropout, torch.ones(7)
        expected = [kept(seed, 7) for seed in drawn(7, 3)]
        generator = torch.Generator().manual_seed(7)
        torch.manual_seed(7)
        for function in (lambda t: dropout(t, 0.5, generator), lambda t: dropout(t)):
            compiled = torch.compile(function, backend="aot_eager")
            assert [compiled(x).tolist() for _ in range(3)] == expected
        torch._dynamo.reset()
        for function in (lambda t: dropout(t, 0.5, generator), lambda t: dropout(t)):
            with pytest.raises(Exception, match=r"proxy|data-dependent"):
                torch.compile(function, backend="aot_eager", fullgraph=True)(x)
        twice = torch.ones(2, 7)
        for given in (generator.manual_seed(7), None):
            torch.manual_seed(7)
            mapped = torch.vmap(lambda t, g=given: dropout(t, 0.5, g), randomness="same")
            assert mapped(twice).tolist() == expected[:1] * 2
            for randomness in ("error", "different"):
                with pytest.raises(RuntimeError, match="random"):
                    torch.vmap(lambda t, g=given: dropout(t, 0.5, g), randomness=randomness)(twice)

    assert forked(calls, project.root / "output") == ""


MODEL = """
import torch


class Noisy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(7)

    def forward(self, x):
        y = torch.ops.sown.dropout(x, 0.25, self.generator) + torch.ops.sown.dropout(x)
        z = x.double()
        torch.ops.sown.jitter_(z, generator=self.generator)
        return y, z, torch.ops.sown.numbers.like(x, generator=self.generator), torch.ops.sown.numbers.like(x)


def model():
    torch.manual_seed(8)
    return Noisy(), (torch.ones(4, 3),)
"""


@pytest.mark.parametrize("exporter", ["legacy", "dynamo"])
@pytest.mark.deep
def test_a_model_of_a_user(exporter: str, project: Project) -> None:
    """Its nodes have the first numbers of both generators, though it ran before: `doit check` rewinds them."""
    (project.root / "user.py").write_text(MODEL)
    done = project.doit("check", "user.py:model", "--exporter", exporter)
    assert "OK: " in done.stdout, done.stdout + done.stderr
    (path,) = (project.root / "build/check").glob(f"*/*{exporter}*/model.onnx")
    nodes = [n for n in onnx.load(path).graph.node if n.domain == "sown.domain"]
    found = [(n.op_type, a.i) for n in nodes for a in n.attribute if a.name == "seed"]
    (first, _, third), (default,) = drawn(7, 3), drawn(8, 1)
    jittered = found.pop(2)
    assert found == [("Dropout", first), ("Dropout", default), ("Numbers", third), ("Numbers", 42)]
    assert jittered[0] == "Jitter" and 0 <= jittered[1] < 2**32


# What is planted before the row torch.Generator of `doit compat` runs, and what it says; "": nothing.
ROWS = {
    "": "",
    "torch.vmap draws per sample": 'with generator, under torch.vmap with randomness="same"',
    "a compiled function repeats a number": "in call 2 of a compiled function with generator",
    "torch takes a generator in one graph": "expected an error, and it ran: generator in torch.compile with fullgraph",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fault", ROWS)
def test_the_row_of_doit_compat(fault: str, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def calls() -> None:
        import torch

        from opmatrix.torch_checks import compat, compat_transforms

        registered(project, "numbers")
        prepared = compat.prepare(load_operator(project.paths, "numbers"), None)
        if "compiled" in fault:
            torch.compile = lambda f, **_: lambda *a, **k: f(*a, **k | {"generator": torch.Generator().manual_seed(0)})
        elif "graph" in fault:
            torch.compile = lambda f, **_: f
        if not fault:
            row = compat.row(compat.GENERATOR, compat_transforms.generators, prepared)
            assert (row.outcome, row.samples) == ("works", 3) and "breaks the graph" in row.detail
            return
        with pytest.raises(CompatError, match=re.escape(ROWS[fault])):
            compat_transforms.generators(prepared)

    old = new = '("CompositeImplicitAutograd", "FuncTorchBatched")'
    if "vmap" in fault:
        new = '("CompositeImplicitAutograd",)'
    with edited(project.paths.generated("numbers") / "fake.py", old, new):
        assert forked(calls, project.root / "output") == ""


NEXT = "int(drawn.random_(low, high, generator=generator).item())"


@pytest.mark.parametrize("fault", ["", " ^ 1"])
@pytest.mark.deep
def test_the_wheel_draws(fault: str, project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run check calls the operator with a generator that gives the seed of the case."""
    from opmatrix.wheel import run_unpacked

    monkeypatch.setattr(run_unpacked, "TORCH_EXPORTERS", ("legacy",))

    def run() -> str:
        return run_planted(project, OPERATORS, ("numbers/fake.py", NEXT, NEXT + fault), tmp_path)

    if not fault:
        assert re.fullmatch(r"\d+ cases in \d+ runs from the wheel", run())
        assert len(list(tmp_path.glob("out/*/*/torch-composed"))) == len(list(tmp_path.glob("out/*/*")))
        (wheel,) = project.paths.dist.iterdir()
        functions = zipfile.ZipFile(wheel).read("seed_ops/functional.py").decode()
        assert "generator: torch.Generator | None = None" in functions
        return
    with pytest.raises(DistError, match="numbers-five, torch-composed: y: 5 of 5 elements differ"):
        run()
