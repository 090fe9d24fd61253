"""Draw from the cases: their shapes satisfy what no declaration says, and so do most with one size replaced wherever it
occurs, and the values that they list. Sizes that the declaration computes follow from those that it leaves open.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis.strategies import DrawFn

from opmatrix.declaration.load import Operator
from opmatrix.declaration.size_rules import once
from opmatrix.declaration.torch_signature import is_parameter
from opmatrix.spec import Case, Input, MemoryLayout, Model, Nested, Tensor, Values, given, shape_of
from opmatrix.testdata.case_arrays import described, elements
from opmatrix.testdata.case_sizes import places
from opmatrix.testdata.declared_shapes import SIZES, most_of_inputs
from opmatrix.testdata.draw_frame import Frame, pick

Template = tuple[Model, Case]

# hypothesis shrinks towards the first. Where the declaration says all, each kind has shapes of its own.
_KINDS = ("free", "resized", "template", "resized")


def frame_of(draw: DrawFn, operator: Operator) -> Frame:
    """Return the frame of one draw: free, or with a case and sizes that replace those of the case."""
    known = templates(operator)
    if not known or (kind := pick(draw, _KINDS)) == "free":
        return Frame(operator, None)
    template = pick(draw, known)
    found = Frame(
        operator, template, kept=_lists_values(operator, template[1]) and pick(draw, (True, False, True, True))
    )
    if kind == "resized" and (sizes := open_sizes(operator, template)):
        found.resized[pick(draw, sizes)] = pick(draw, SIZES)
    return found


@once
def templates(operator: Operator) -> list[Template]:
    """Return the cases that are small enough to be drawn from."""
    cases = [(m, c) for m in operator.models for c in m.cases if described(c)]
    return [(m, c) for m, c in cases if all(n <= most_of_inputs(operator.spec) for n in elements(c))]


def open_sizes(operator: Operator, template: Template) -> list[int]:
    """Return the sizes of a case that its declaration leaves open. Those that not every case has come six times: any
    other may be a number that the operator requires."""
    everywhere = _in_all_cases(operator)
    own = dict.fromkeys(size for size, _ in places(operator.spec, *template))
    return [size for size in own for _ in range(1 if size in everywhere else 6)]


@once
def _in_all_cases(operator: Operator) -> set[int]:
    found = [{size for size, _ in places(operator.spec, *one)} for one in templates(operator)]
    return set.intersection(*found)


def kept(frame: Frame, part: Input, shapes: Sequence[tuple[int, ...]]) -> list[Tensor] | None:
    """Return the tensors of an input whose values the case lists, of the drawn shapes, or None where they are drawn.

    An axis of another size has elements of the old one, in their order: sorted values remain so, and indices valid.
    """
    if not frame.kept or frame.template is None or is_parameter(part) or (part.values and frame.resized):
        return None
    listed = given(frame.template[1], part.name)
    if not listed or len(listed) != len(shapes) or not all(isinstance(t, Values) for t in listed):
        return None
    made: list[Tensor] = []
    for one, wanted in zip(listed, shapes, strict=True):
        assert isinstance(one, Values)
        shape = shape_of(one)
        if len(shape) != len(wanted) or (0 in shape and shape != wanted) or 0 in wanted[:-1]:  # () has no second axis
            return None
        made.append(Values(values=_resampled(one.values, wanted), layout=layout_of(one, wanted)))
    return made


def layout_of(one: Tensor, shape: tuple[int, ...]) -> MemoryLayout:
    """Return the layout of a tensor, or a contiguous one where another shape has no axis that is expanded."""
    changed = shape != shape_of(one)
    return "contiguous" if changed and one.layout == "expanded" and not any(n > 1 for n in shape) else one.layout


def _lists_values(operator: Operator, case: Case) -> bool:
    parts = (part for part in operator.spec.inputs if not is_parameter(part))
    return any(isinstance(t, Values) for part in parts for t in given(case, part.name))


def _resampled(values: Nested, shape: tuple[int, ...]) -> Nested:
    if not shape:
        return values
    assert isinstance(values, tuple)
    return tuple(_resampled(values[i * len(values) // shape[0]], shape[1:]) for i in range(shape[0]))
