"""A handwritten lowering must use each attribute, though every model may have the same value of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from onnx import NodeProto

from opmatrix.declaration.torch_signature import attribute_values
from opmatrix.errors import ExportError
from opmatrix.export.expected_model import ExpectedModel
from opmatrix.export.generated_modules import GeneratedModules, lowered_nodes
from opmatrix.lowering.graph import UnsupportedModel
from opmatrix.spec import Attribute, AttributeValue
from opmatrix.testdata.attribute_candidates import candidates

TRIED = 6  # values of each attribute in each model


def check(expected: Sequence[ExpectedModel], generated: GeneratedModules) -> None:
    """Raise ExportError if a lowering emits the same nodes for all values of an attribute, in all models: it computes
    with a constant in its place, which no case with another value shows."""
    if not expected or getattr(generated.handwritten, expected[0].lowering, None) is None:
        return  # the derived lowering writes all attributes
    recorded: dict[str, tuple[NodeProto, ...]] = {}
    for attribute in expected[0].spec.attributes:
        if len({repr(attribute_values(one.spec, one.model)[attribute.name]) for one in expected}) > 1:
            continue  # a case has another value: the verdict names an argument that is dropped
        same: list[AttributeValue] = []
        if any(not alike for alike in _compared(attribute, expected, generated, recorded, same)) or not same:
            continue
        one = expected[0]
        shown = ", ".join(map(repr, dict.fromkeys(same)))
        raise ExportError(
            f"{one.spec.name}-{one.lowering}@{one.cell.export_name}: the lowering ignores {attribute.name!r}: it emits "
            f"the same nodes for {shown}. Compute with the argument, or refuse what is not computed: g.unsupported() "
            f"in {generated.path}"
        )


def _compared(
    attribute: Attribute,
    expected: Sequence[ExpectedModel],
    generated: GeneratedModules,
    recorded: dict[str, tuple[NodeProto, ...]],
    same: list[AttributeValue],
) -> Iterator[bool]:
    """Yield for values in models whether the nodes are those of the model's own value; those for which they are go to
    `same`."""
    for one in expected:
        if one.model.name not in recorded:
            recorded[one.model.name] = lowered_nodes(one, generated)
        own = attribute_values(one.spec, one.model)[attribute.name]
        others: list[AttributeValue] = [None] if attribute.optional else []
        if isinstance(own, tuple):
            others += [own[::-1], tuple(candidates(attribute)[: len(own)])]
        elif attribute.kind.endswith("s"):
            others += [tuple(candidates(attribute)[:2])]
        else:
            others += candidates(attribute)
        for value in [v for v in others if v != own][:TRIED]:
            model = replace(one.model, attributes={**one.model.attributes, attribute.name: value})
            try:
                alike = lowered_nodes(replace(one, model=model), generated) == recorded[one.model.name]
            except UnsupportedModel:
                alike = False
            except Exception:  # a value that this version of the schema, or this shape, does not have
                continue
            if alike:
                same += [own, value]
            yield alike
