"""Find mistakes in models and cases: what contradicts the declaration, once their field types are correct."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from opmatrix.basics.errors import did_you_mean
from opmatrix.declaration.validation.attribute_values import value_mistake
from opmatrix.declaration.validation.fields import Mistake, duplicates, not_one_of
from opmatrix.declaration.validation.sizes import sizes
from opmatrix.project.cells import NODE_OPSETS
from opmatrix.signature.python_source import literal
from opmatrix.signature.signature import attribute_values, tensors
from opmatrix.sizes.known import Known
from opmatrix.sizes.rules import axes, further, has_further, is_named, list_lengths
from opmatrix.sizes.variadic import counter
from opmatrix.spec import Attribute, Case, FromVectors, Input, Model, OpSpec, Random, shape_of, tensors_of

Sizes = dict[str, tuple[int, str]]  # a named size, and the input that first had it


def cases(spec: OpSpec, models: Sequence[Model]) -> Iterator[Mistake]:
    """Yield what contradicts the declaration in models and cases whose field types are correct."""
    if not models:
        yield Mistake("MODELS", "found none, allowed: at least one")
    for twice in duplicates([m.name for m in models]):
        yield Mistake("MODELS", f"two models are named {twice!r}")
    for twice in duplicates([c.name for m in models for c in m.cases]):
        yield Mistake("MODELS", f"two cases are named {twice!r}")
    for index, model in enumerate(models):
        yield from _model(spec, models, model, f"MODELS[{index}]")
    for output in spec.outputs:
        without = [output.name in m.absent for m in models if not m.unsupported]
        if output.optional and without and (all(without) or not any(without)):
            where, how, add = ("absent from", "with", "without") if all(without) else ("in", "without", "with")
            yield Mistake("MODELS", f"optional output {output.name!r} is {where} every model, so that the kernel never "
                          f"runs {how} it; add a model {add} absent=({output.name!r},)")  # fmt: skip
    if any(sizes(spec)):
        return  # no size can be computed
    for index, model in enumerate(models):
        for at, case in enumerate(model.cases):
            yield from _computed_sizes(spec, model, case, f"MODELS[{index}].cases[{at}] ({case.name!r})")


def _model(spec: OpSpec, models: Sequence[Model], model: Model, path: str) -> Iterator[Mistake]:
    if not re.fullmatch(r"\w[\w.\-]*", model.name) or len(model.name.encode()) > 100:
        allowed = "at most 100 letters, digits, '_', '.' and '-'"
        yield Mistake(f"{path}.name", f"found {model.name!r}, allowed: {allowed}; it names a folder")
    for variable, dtypes in spec.types.items():
        if model.types.get(variable) not in dtypes:
            yield not_one_of(f"{path}.types[{variable!r}]", model.types.get(variable), dtypes)
    attributes = {a.name: a for a in spec.attributes}
    yield from (not_one_of(f"{path}.types", v, spec.types) for v in model.types if v not in spec.types)
    yield from (_undeclared(spec, models, f"{path}.attributes", a) for a in model.attributes if a not in attributes)
    optional = [o.name for o in spec.outputs if o.optional] or ["none: no output is optional"]
    inputs, parts = [part.name for part in spec.inputs], [part.name for part in tensors(spec)]
    yield from (not_one_of(f"{path}.dynamic", n, inputs) for n in model.dynamic if n not in inputs)
    yield from (not_one_of(f"{path}.names", n, parts) for n in model.names if n not in parts)
    yield from (not_one_of(f"{path}.absent", n, optional) for n in model.absent if n not in optional)
    for name, attribute in attributes.items():
        if why := _why_not_the_value(spec, model, attribute):
            yield Mistake(f"{path}.attributes[{name!r}]", why)
    if model.domain_version not in spec.onnx.versions:
        yield not_one_of(f"{path}.domain_version", model.domain_version, spec.onnx.versions)
    for lowering, first in model.min_opset.items():
        if lowering not in spec.lowerings:
            yield not_one_of(f"{path}.min_opset", lowering, spec.lowerings)
        elif not spec.min_opset < first < NODE_OPSETS.stop:
            yield Mistake(f"{path}.min_opset[{lowering!r}]", f"found {first}, allowed: {spec.min_opset + 1} to "
                          f"{NODE_OPSETS.stop - 1}: above the operator's min_opset")  # fmt: skip
    if not model.cases:
        yield Mistake(f"{path}.cases", "found none, allowed: at least one, which the exporters trace")
        return
    yield from _baked_in(model, path)
    for index, case in enumerate(model.cases):
        yield from _case(spec, model, case, f"{path}.cases[{index}]")


def _why_not_the_value(spec: OpSpec, model: Model, attribute: Attribute) -> str | None:
    """Return why an attribute cannot have the value that it has in a model, or None."""
    value = model.attributes.get(attribute.name, attribute.default)
    if value is None and not attribute.optional:
        return "missing; it has no default"
    if why := value_mistake(attribute, value):
        return why
    if isinstance(value, tuple) and not value and attribute is counter(spec):
        return f"found no item, allowed: at least one, because {spec.outputs[-1].name!r} has as many"
    if isinstance(value, tuple) and (count := list_lengths(spec).get(attribute.name)) not in (None, len(value)):
        return f"found {value!r}, allowed: {count} items, as in torch.schema"
    if attribute.name in model.attributes and (attribute.since or 0) > model.domain_version:
        return f"it is of version {attribute.since}, the model imports {model.domain_version}; allowed: " \
            f"domain_version={attribute.since}"  # fmt: skip
    return None


def _undeclared(spec: OpSpec, models: Sequence[Model], field: str, name: str) -> Mistake:
    """Return the mistake of an attribute that the declaration does not have, with the declaration that it needs: with a
    default if a model lacks the attribute, or an attribute before it has one."""
    names = [attribute.name for attribute in spec.attributes]
    known = f"found {name!r}, allowed: {', '.join(names) or 'none'}"
    if near := did_you_mean(name, names):
        return Mistake(field, known + near)
    value = next(m.attributes[name] for m in models if name in m.attributes)  # so that all models have one message
    lacking = any(name not in model.attributes for model in models)
    default = value if lacking or any(a.default is not None for a in spec.attributes) else None
    declared = f'Attribute(name={literal(name)}, kind="{_kind(value)}", '
    declared += "" if default is None else f"default={literal(default)}, "
    declared += 'doc="...")'
    add = f"add {declared} to attributes" if names else f"attributes=({declared},), with Attribute imported"
    return Mistake(field, f"{known}. Declare it in ops/{spec.name}/spec.py: {add}, or remove it here")


def _kind(value: object) -> str:
    """Return the kind of an attribute with a value, as a declaration has it; ``...`` for one that it does not have."""
    if isinstance(value, tuple) and value:
        return f"{_kind(value[0])}s"
    kind = next((k for k in (bool, int, float, str) if isinstance(value, k)), None)
    return "..." if kind is None else "string" if kind is str else kind.__name__


def _case(spec: OpSpec, model: Model, case: Case, path: str) -> Iterator[Mistake]:
    path = f"{path} ({case.name!r})"
    declared = [i.name for i in spec.inputs]
    if not re.fullmatch(r"\w+", case.name) or len(case.name.encode()) > 100:
        yield Mistake(path, "its name takes at most 100 letters, digits and _; it is part of test ids")
    yield from (not_one_of(f"{path}.inputs", n, declared) for n in case.inputs if n not in declared)
    yield from _vectors(model, case, path)
    sizes: Sizes = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for part in spec.inputs:
        field = f"{path}.inputs[{part.name!r}]"
        if why := _presence(spec, part, case, model):
            yield Mistake(field, why)
            continue
        for index, tensor in enumerate(tensors_of(case, part.name)):
            shape, field_of_one = shape_of(tensor), f"{field}[{index}]" if part.variadic else field
            yield from _declared_shape(spec, part, shape, field_of_one, sizes, shapes)
            shapes.setdefault(part.name, shape)
            traced = shape_of(tensors_of(model.cases[0], part.name)[index])
            names = model.dynamic.get(part.name, (None,) * len(traced))
            if len(names) != len(traced):
                yield Mistake(field_of_one, f"has {len(traced)} axes, but dynamic names {len(names)}: {names}")
            elif len(shape) != len(traced) or any(
                name is None and size != first for name, size, first in zip(names, shape, traced, strict=True)
            ):
                as_first = f"{traced} as in the first case, but for dynamic axes"
                yield Mistake(field_of_one, f"found shape {shape}, allowed: {as_first}")


def _vectors(model: Model, case: Case, path: str) -> Iterator[Mistake]:
    """Yield what is wrong with outputs from elsewhere, and with inputs that are in the same file."""
    described = [(name, tensor) for name in case.inputs for tensor in tensors_of(case, name)]
    if not case.expected:
        for name in dict.fromkeys(n for n, tensor in described if isinstance(tensor, FromVectors)):
            yield Mistake(f"{path}.inputs[{name!r}]", "found FromVectors, and the case has no file: give `expected`")
        return
    for name in dict.fromkeys(n for n, tensor in described if isinstance(tensor, Random)):
        allowed = "FromVectors or Values: outputs from elsewhere are of inputs from elsewhere"
        yield Mistake(f"{path}.inputs[{name!r}]", f"found Random in a case with `expected`, allowed: {allowed}")
    if case is model.cases[0] and any(isinstance(tensor, FromVectors) for _, tensor in described):
        yield Mistake(path, "found FromVectors in the first case, which the exporters trace without a file; put a case "
                      "with values of its own first")  # fmt: skip
    for field in ("source", "licence"):
        if not getattr(case.expected, field).strip():
            allowed = "a string; others must know where it is from"
            yield Mistake(f"{path}.expected.{field}", f"found nothing, allowed: {allowed}")
    parts = case.expected.path.split("/")
    if {"", ".", ".."}.intersection(parts) or "\\" in case.expected.path:
        allowed = "a path below the operator's folder, such as 'vectors/original.npz'"
        yield Mistake(f"{path}.expected.path", f"found {case.expected.path!r}, allowed: {allowed}")


def _presence(spec: OpSpec, part: Input, case: Case, model: Model) -> str | None:
    """Return what is wrong with the number of tensors of a case for an input, or None."""
    found = case.inputs.get(part.name)
    if part.variadic and found is not None and not isinstance(found, tuple):
        return "found one tensor, allowed: a tuple of tensors; it is variadic"
    if not part.variadic and isinstance(found, tuple):
        return "found a tuple of tensors, allowed: one tensor; it is not variadic"
    if found is None and not part.optional and not part.variadic:
        return "missing"
    here, first = len(tensors_of(case, part.name)), len(tensors_of(model.cases[0], part.name))
    if here != first:
        return f"found {here} tensors, allowed: {first} as in the first case; make a model of its own for it"
    if here == 0 and part is counter(spec):
        return f"found no tensor, allowed: at least one, because {spec.outputs[-1].name!r} has as many"
    return None


def _declared_shape(
    spec: OpSpec, part: Input, shape: tuple[int, ...], field: str, sizes: Sizes, shapes: Mapping[str, tuple[int, ...]]
) -> Iterator[Mistake]:
    if part.same_as is not None and shape != (wanted := shapes.get(part.same_as, shape)):
        yield Mistake(field, f"found shape {shape}, allowed: {wanted}, as {part.same_as!r} has")
    if part.dims is None:
        return
    fixed = axes(part)
    other = next((i for i in spec.inputs if i.name == part.further_as), None)
    if other and other.name in shapes and len(shape) >= len(fixed) and has_further(part) and has_further(other):
        wanted = tuple(further(other, shapes[other.name]))
        if tuple(further(part, shape)) != wanted:
            where = f"where '...' is {wanted} as in {other.name!r}"
            yield Mistake(field, f"found shape {shape}, allowed: {part.dims}, {where}")
    if len(shape) < len(fixed) or (not has_further(part) and len(shape) > len(fixed)):
        yield Mistake(field, f"found shape {shape}, allowed: {part.dims}")
        return
    for at, dim in fixed:
        size = shape[at]
        if isinstance(dim, int):
            if size != dim:
                yield Mistake(field, f"found shape {shape}, allowed: {part.dims}")
        elif is_named(spec, dim) and (seen := sizes.setdefault(dim, (size, part.name)))[0] != size:
            yield Mistake(field, f"found shape {shape}, allowed: {dim}={seen[0]}, as in {seen[1]!r}")


def _computed_sizes(spec: OpSpec, model: Model, case: Case, path: str) -> Iterator[Mistake]:
    """Yield the sizes that differ from their expressions, and outputs without a shape."""
    shapes = {
        part.name: shape_of(tensors_of(case, part.name)[0]) for part in spec.inputs if tensors_of(case, part.name)
    }
    known = Known(spec=spec, shapes=shapes, attributes=attribute_values(spec, model))
    for part in spec.inputs:
        computed = [(at, dim) for at, dim in axes(part) if isinstance(dim, str) and not is_named(spec, dim)]
        for shape in map(shape_of, tensors_of(case, part.name) if computed or part.rank or part.at else ()):
            field = f"{path}.inputs[{part.name!r}]"
            try:
                wanted = [(at, dim, known.size(dim)) for at, dim in computed]
                wanted += [(axis, f"axis {axis}", known.size(dim)) for axis, dim in known.sizes_at(part)]
                rank = len(shape) if part.rank is None else known.size(part.rank)
            except ValueError as error:
                yield Mistake(field, f"found shape {shape}, allowed: {part.dims}: {error}")
                continue
            if rank != len(shape):
                yield Mistake(field, f"found shape {shape}, allowed: a rank of {part.rank}={rank}")
            for at, dim, size in wanted:
                if size is not None and shape[at] != size:
                    yield Mistake(field, f"found shape {shape}, allowed: {part.dims}, where {dim} is {size}")
    for output in spec.outputs:
        try:
            known.output(output)
        except ValueError as error:
            yield Mistake(path, f"output {output.name!r} has no shape: {error}")


def _baked_in(model: Model, path: str) -> Iterator[Mistake]:
    """Yield the dynamic sizes of the first case that torch.export would make constant."""
    for name, names in model.dynamic.items():
        for traced in map(shape_of, tensors_of(model.cases[0], name)):
            if any(axis is not None and size in (0, 1) for axis, size in zip(names, traced, strict=False)):
                yield Mistake(f"{path}.cases[0].inputs[{name!r}]", f"found shape {traced}: the exporter bakes in a "
                              "dynamic size of 0 or 1; put a case with other sizes first")  # fmt: skip
