"""All files of a new operator are written or none, and nothing is overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import UsageError
from pipeline.layout import Layout
from pipeline.scaffold import texts, write
from pipeline.scaffold.declare import from_schema
from pipeline.scaffold.draft import Draft


def draft(name: str = "one", *, namespace: str = "my", op_type: str = "") -> Draft:
    return from_schema(f"{namespace}::{name}(Tensor x) -> Tensor", domain="my.domain", op_type=op_type)


def add(layout: Layout, *drafts: Draft) -> None:
    write.refuse_what_is_there(layout, [d.spec for d in drafts])
    write.write(layout, {path: text for d in drafts for path, text in texts.render(d).items()})


def below(root: Path) -> list[str]:
    return sorted(str(p.relative_to(root)) for p in root.rglob("*"))


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def test_all_files_are_written(layout: Layout) -> None:
    add(layout, draft())
    assert below(layout.root) == [
        "native", "native/one", "native/one/kernel.h", "ops", "ops/one", "ops/one/README.md", "ops/one/cases.py",
        "ops/one/reference.py", "ops/one/spec.py",
    ]  # fmt: skip


@pytest.mark.parametrize("there", ["ops/one/notes.txt", "native/one/torch.cc", "ops/one/spec.py"])
def test_what_is_there_is_named_and_left(layout: Layout, there: str) -> None:
    path = layout.root / there
    path.parent.mkdir(parents=True)
    path.write_text("mine")
    before = below(layout.root)
    with pytest.raises(UsageError, match=f"^{there}: there already, and nothing is overwritten"):
        add(layout, draft())
    assert below(layout.root) == before and path.read_text() == "mine"


def test_a_folder_with_several_files_names_them(layout: Layout) -> None:
    add(layout, draft())
    with pytest.raises(UsageError) as raised:
        add(layout, draft())
    assert "ops/one/{README.md, cases.py, reference.py, spec.py}: there already" in str(raised.value)
    assert "native/one/kernel.h: there already" in str(raised.value)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (
            draft("two", op_type="One"),
            "ops/two/spec.py: onnx: 'my.domain::One' is taken by ops/one/spec.py; rename one",
        ),
        (
            from_schema("my::one(Tensor x) -> Tensor", domain="other", name="two"),
            "ops/two/spec.py: torch: 'my::one' is taken by ops/one/spec.py; rename one",
        ),
    ],
)
def test_a_name_that_is_taken_is_refused_before_anything_is_written(
    layout: Layout, second: Draft, message: str
) -> None:
    add(layout, draft())
    before = below(layout.root)
    with pytest.raises(UsageError) as raised:
        add(layout, second)
    assert message in str(raised.value) and "Nothing was written." in str(raised.value)
    assert below(layout.root) == before


def test_an_operator_with_a_mistake_keeps_nobody_from_another(layout: Layout) -> None:
    add(layout, draft())
    layout.spec("one").write_text("SPEC = 1 / 0")
    add(layout, draft("two"))
    assert layout.spec("two").is_file()


@pytest.mark.parametrize("broken", ["write_text", "rename", "last rename"])
@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()], ids=["OSError", "Ctrl-C"])
def test_nothing_stays_of_what_fails(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, broken: str, error: BaseException
) -> None:
    add(layout, draft())
    before = below(layout.root)
    method = broken.removeprefix("last ")
    original, calls = getattr(Path, method), 0

    def fails(path: Path, *arguments: object, **options: object) -> object:
        nonlocal calls
        calls += 1
        if calls == (4 if broken == "last rename" else 2):
            raise error
        return original(path, *arguments, **options)

    monkeypatch.setattr(Path, method, fails)
    with pytest.raises(type(error)):
        add(layout, draft("two"), draft("three"))
    monkeypatch.undo()
    assert calls >= 2 and below(layout.root) == before


def test_the_declaration_appears_last(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    """A doit that runs meanwhile sees no operator, or a whole one."""
    targets = []
    original = Path.rename
    monkeypatch.setattr(Path, "rename", lambda path, target: (targets.append(target), original(path, target))[1])
    add(layout, draft())
    assert [str(t.relative_to(layout.root)) for t in targets] == ["native/one", "ops/one"]
