"""Find mistakes in a declaration whose field types are correct, and in the set of its hand-written files."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterator, Mapping, Set
from pathlib import PurePosixPath

from opmatrix.basics.errors import many
from opmatrix.declaration.validation.fields import Mistake, by_path, duplicates, not_one_of
from opmatrix.declaration.validation.rules import attribute_fields, elementwise_mistakes, value_rules
from opmatrix.declaration.validation.sizes import sizes
from opmatrix.declaration.validation.torch_schema import torch_schema
from opmatrix.project.cells import NODE_OPSETS
from opmatrix.project.dtypes import DTYPES
from opmatrix.signature.parser import why_not_in_ops
from opmatrix.signature.signature import (
    KERNEL,
    ONNX_DOMAINS,
    OWN_ORT,
    OWN_TORCH,
    allowed_dtypes,
    has_kernel,
    has_kernel_object,
    has_torch_library,
    is_copied,
    is_own,
    is_required,
    onnx_name,
    tensors,
    torch_name,
    torch_parts,
)
from opmatrix.signature.signature import dtypes as all_dtypes
from opmatrix.signature.versions import MARK
from opmatrix.sizes.rules import least
from opmatrix.sizes.variadic import has_own_shapes, sure_inputs
from opmatrix.spec import Attribute, FromKernel, Input, OpSpec, Output, SameAs, ValueRule

# The name of an operator. Files have longer names that are made of it, and Linux allows 255 bytes.
NAME = re.compile(r"[a-z][a-z0-9_]{0,99}")
NAMES = "at most 100 lower-case letters, digits and _, a letter first"
# A name in ONNX, as C90 has identifiers.
IDENTIFIER = "[A-Za-z_][A-Za-z0-9_]*"
# Names that an operator cannot have: it names a folder, a generated header and a C++ namespace.
RESERVED: Mapping[str, tuple[str, ...]] = {
    "a folder of native/ with another meaning": ("include", "binding"),
    "a file that is generated, or that generated files include": (
        "kernel", "kernel_error", "kernel_threads", "checks", "torch", "torch_kinds", "torch_lists", "torch_shims",
        "torch_outputs", "torch_results", "torch_values", "torch_elementwise", "torch_formats", "ort", "ort_api",
        "ort_kinds", "ort_library", "ort_outputs", "ort_int4", "ort_shapes", "ort_strings", "ort_texts", "dtype",
        "items", "sizes", "kernel_sizes", "texts", "torch_texts", "value_checks", "race_driver", "cpu_level",
    ),
    "a group of steps, whose logs lie in a folder of that name": (
        "declaration", "environment", "codegen", "compile", "data", "cases", "draw-inputs", "register",
        "export", "verify", "report", "probe", "sanitize", "compat", "link-wheel", "linked", "dist",
    ),
    # Those of namespace opmatrix are all that tests/codegen/test_reserved_names.py finds in the headers.
    "a name that C++ or the bindings use": (
        "std", "name", "equal", "numel", "sqrt", "floor", "dtype_of", "check_dtype", "check_same_dtype", "parallel_for",
        "compute_t", "detail", "any_value", "at_least", "at_most", "axis_size", "between", "both", "check_computed",
        "compare_sizes", "fail", "fail_dtype", "finite", "floor_divide", "has_ends", "less_equal", "one_of", "opmatrix",
        "simd", "sizes_between", "wrong_element", "compute", "run", "infer", "from_stack", "check_shapes",
        "registration", "ort_operator",
    ),
}  # fmt: skip
# Names that generated code uses for something else.
TAKEN = frozenset({
    "g", "op", "schema", "torch", "onnx", "ort", "stack", "results", "context", "attributes", "run", "threads", "use",
    "item", "len", "math", "tuple", "new_size", "with_replaced", "compute", "equal", "infer", "dtype_of",
    "check_dtype", "check_same_dtype", "check_shapes", "kNone", "std", "opmatrix", "Items", "List", "NewTensor",
    "OptionalView", "Sizes", "TensorView", "Texts", "UseThreads", "Half", "BFloat16",
})  # fmt: skip

# ONNX Runtime (1.16 to 1.31) takes a node of one of these types for ONNX's own in any domain, and aborts where it has
# fewer inputs than that: found among all types of ONNX, with one to three inputs. It has no session for a Constant.
INPUTS_OF_ONNX: Mapping[str, int] = {
    "Add": 2, "Conv": 2, "ConvTranspose": 2, "Div": 2, "Expand": 2, "Gather": 2, "Gemm": 2, "Mul": 2, "Sub": 2,
    "Where": 3,
}  # fmt: skip

# Op types that no custom op can have, whatever its domain (1.16 to 1.32).
OF_ORT: Mapping[str, str] = {
    "Constant": "of which ONNX Runtime makes no custom op in any domain",
    "Shape": "whose nodes ONNX Runtime replaces by the shape of their input where it is known, in any domain",
}

CPP_KEYWORDS = frozenset(
    """
    alignas alignof and_eq asm auto bitand bitor bool case catch char class compl concept const consteval
    constexpr constinit const_cast co_await co_return co_yield decltype default delete do double dynamic_cast
    enum explicit export extern false float for friend goto if inline int long mutable namespace new noexcept
    not_eq nullptr operator or_eq private protected public register reinterpret_cast requires return short
    signed sizeof static static_assert static_cast struct switch template this thread_local throw true try
    typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
    """.split()  # noqa: SIM905 - a list of 97 strings is no easier to read
)

# Macros that tests/codegen/test_reserved_names.py finds in headers, and some of C; others are, or begin, in capitals.
MACROS = frozenset(
    """
    MaxTypeIndex alloca assert assert_perror be16toh be32toh be64toh errno htobe16 htobe32 htobe64 htole16 htole32
    htole64 i386 issubnormal le16toh le32toh le64toh linux major makedev math_errhandling minor offsetof
    pthread_cleanup_pop pthread_cleanup_pop_restore_np pthread_cleanup_push pthread_cleanup_push_defer_np
    sched_priority setjmp signbit stderr stdin stdout strdupa strndupa timeradd timerclear timercmp timerisset timersub
    unix va_arg va_copy va_end va_start
    """.split()  # noqa: SIM905
)


def declaration(spec: OpSpec, folder: str) -> Iterator[Mistake]:
    """Yield the mistakes of a declaration whose field types are correct."""
    checks = (_names, _frameworks, _types, _onnx_types, _shapes, _in_place,
              _variadic_output, value_rules, attribute_fields, _evolution, _lowerings, _other_fields,
              torch_schema)  # fmt: skip
    found = [*dict.fromkeys(mistake for check in checks for mistake in check(spec))]
    yield from found
    if spec.torch and spec.torch.batch and not found:  # its sizes are known to be expressions
        from opmatrix.sizes.batch import batch_mistakes  # which few operators need

        yield from (Mistake("torch.batch", f"found {spec.torch.batch!r}, and {why}") for why in batch_mistakes(spec))
    if spec.elementwise and not found:
        yield from elementwise_mistakes(spec)
    if spec.name != folder:
        yield Mistake("name", f"found {spec.name!r}, allowed: the folder's name {folder!r}")
    if meaning := next((m for m, names in RESERVED.items() if spec.name in names), None):
        yield Mistake("name", f"found {spec.name!r}, which is {meaning}; choose another name")
    elif keyword.iskeyword(spec.name) or spec.name in CPP_KEYWORDS or spec.name in MACROS:
        yield Mistake("name", f"found {spec.name!r}, a keyword of C++ or Python, or a macro; choose another name")


def _names(spec: OpSpec) -> Iterator[Mistake]:
    if not NAME.fullmatch(spec.name):
        yield Mistake("name", f"found {spec.name!r}, allowed: {NAMES}")
    named = _parts(spec)
    written = spec.torch is not None and bool(spec.torch.schema)  # no generated code has its names as variables
    spelled = [p.name for p in named] + [a.torch_name for a in spec.attributes if a.torch_name and not written]
    made = {made: p.name for p in named for made in _made_of(p)}
    for name in spelled:
        if not name.isidentifier() or keyword.iskeyword(name) or name in CPP_KEYWORDS:
            yield Mistake(f"{name!r}", "is not an identifier of both C++ and Python, where it names a variable")
        elif name in TAKEN or name == spec.name or name in spec.types:
            yield Mistake(f"{name!r}", "means something else in generated code; choose another name")
        elif owner := made.get(name):
            yield Mistake(f"{name!r}", f"is what generated code calls something of {owner!r}; choose another name")
    for twice in duplicates([p.name for p in named]):
        yield Mistake("inputs, attributes, outputs", f"{twice!r} is declared twice")
    for twice in duplicates([torch_name(part) for part in torch_parts(spec)]):
        yield Mistake("torch_name", f"two arguments of the torch schema are named {twice!r}")
    yield from _onnx_names(spec)
    without = [a.default is None and not a.optional for a in spec.attributes]
    if spec.torch and not written and without != sorted(without, reverse=True):
        yield Mistake("attributes", "one without a default follows one with a default: torch's schema forbids it")
    if not spec.inputs:
        yield Mistake("inputs", "found none, allowed: at least one")
    if not spec.outputs:
        yield Mistake("outputs", "found none, allowed: at least one")


def _parts(spec: OpSpec) -> tuple[Input | Attribute | Output, ...]:
    return (*spec.inputs, *spec.attributes, *spec.outputs)


def _made_of(part: Input | Attribute | Output) -> Iterator[str]:
    """Yield the names of variables and functions of generated code that are made of the name of a part."""
    name = part.name
    if isinstance(part, Input):
        yield from (f"{name}_values", f"check_{name}_values") if part.values else ()
    elif isinstance(part, Attribute):
        yield f"{name}_"
        yield from (f"{name}_float",) if part.kind.startswith("float") else ()
        yield from (f"{name}_default", f"{name}_items") if part.default is not None else ()
    else:
        yield from () if isinstance(part.shape, SameAs) and not part.shape.replace else (f"{name}_sizes",)
        yield from (f"wants_{name}", f"has_{name}_") if part.optional else ()
        yield from (f"at_{name}",) if part.variadic else ()
        if isinstance(part.shape, FromKernel):
            yield from (f"{name}_known", f"made_{name}")
            for dim in (*(part.shape.dims or ()), *part.shape.replace.values()):
                yield from (f"kernel_{dim}", f"new_{dim}")


def _onnx_names(spec: OpSpec) -> Iterator[Mistake]:
    """Yield the mistakes of `onnx_name`, which names no variable: a keyword of C++ or Python is allowed."""
    for path, attribute in by_path("attributes", spec.attributes):
        if attribute.onnx_name is None:
            continue
        path = f"{path}.onnx_name"
        if not re.fullmatch(IDENTIFIER, attribute.onnx_name):
            yield Mistake(path, f"found {attribute.onnx_name!r}, allowed: an identifier of ONNX: letters of ASCII, "
                          "digits and _, no digit first")  # fmt: skip
        elif attribute.onnx_name == MARK:
            yield Mistake(path, f"found {MARK!r}, which nodes of a later schema have already; rename it")
        if attribute.torch_only:
            yield Mistake(path, f"found {attribute.onnx_name!r} at an attribute with torch_only, which no node has; "
                          "remove one of both")  # fmt: skip
    for twice in duplicates([onnx_name(a) for a in spec.attributes if not a.torch_only]):
        yield Mistake("onnx_name", f"two attributes of the node are named {twice!r}")


def _frameworks(spec: OpSpec) -> Iterator[Mistake]:
    onnx = spec.onnx
    if onnx.domain in ONNX_DOMAINS:
        yield Mistake("onnx.domain", f"found {onnx.domain!r}, which is ONNX's own; write one that you own")
    if not re.fullmatch(r"[\w.\-]*", onnx.domain) or not onnx.op_type.isidentifier():
        name = f"{onnx.domain}::{onnx.op_type}"
        yield Mistake("onnx", f"{name} is not a name that a symbolic function can give to a node")
    fewest = max((n + 1 for n, part in enumerate(spec.inputs) if is_required(part)), default=0)
    if fewest < (wanted := INPUTS_OF_ONNX.get(onnx.op_type, 0)):
        yield Mistake("onnx.op_type", f"found {onnx.op_type!r} with {many(fewest, 'input')}: ONNX Runtime takes such a "
                      f"node for ONNX's own, which has {wanted}, and ends the process; choose another one")  # fmt: skip
    if why := OF_ORT.get(onnx.op_type):
        yield Mistake("onnx.op_type", f"found {onnx.op_type!r}, {why}; choose another one")
    if not onnx.versions or min(onnx.versions, default=0) < max(onnx.since_version, 1):
        yield Mistake("onnx.versions", f"found {onnx.versions}, allowed: from since_version={onnx.since_version} on")
    if spec.runtime == "contrib" and spec.torch and not (spec.torch.overrides or spec.torch.python):
        yield Mistake("runtime", "found 'contrib', so that torch has no kernel for it; allowed with "
                      "torch.overrides, with torch.python, or with torch=None")  # fmt: skip
    if spec.torch and spec.torch.backward and spec.torch.overrides:
        yield Mistake("torch.backward", "allowed without torch.overrides: torch has the gradient of its own operator")
    if spec.torch and spec.torch.batch and spec.torch.overrides:
        yield Mistake("torch.batch", "allowed without torch.overrides: torch has the batching rule of its own operator")
    if spec.torch and not re.fullmatch(r"[A-Za-z_]\w*::[A-Za-z_]\w*", spec.torch.name):
        yield Mistake("torch.name", f"found {spec.torch.name!r}, allowed: 'namespace::name'")
    elif spec.torch and not spec.torch.overrides:
        for part, name in zip(("namespace", "name"), spec.torch.name.split("::"), strict=True):
            if why := why_not_in_ops(part, name):
                yield Mistake("torch.name", why)


def _tensors_by_path(spec: OpSpec) -> list[tuple[str, Input | Output]]:
    return [*by_path("inputs", spec.inputs), *by_path("outputs", spec.outputs)]


def _types(spec: OpSpec) -> Iterator[Mistake]:
    known = [*spec.types, *DTYPES]
    for path, part in _tensors_by_path(spec):
        if part.type not in known:
            yield not_one_of(f"{path}.type", part.type, known)
    used = {part.type for part in tensors(spec)}
    for variable, dtypes in spec.types.items():
        if variable in DTYPES:
            yield Mistake(f"types[{variable!r}]", "a type variable may not have the name of a dtype")
        if not dtypes:
            yield Mistake(f"types[{variable!r}]", "found none, allowed: at least one dtype")
        if variable not in used:
            yield Mistake(f"types[{variable!r}]", "no input or output uses it; remove it")
        if variable not in {i.type for i in sure_inputs(spec)} and variable in used:
            yield Mistake(f"types[{variable!r}]", "no required input has it, so its dtype is unknown")
    if spec.torch is None:
        return
    declared = [(f"{path}.type", part.type) for path, part in _tensors_by_path(spec)]
    declared += [(f"types[{variable!r}]", dtype) for variable, dtypes in spec.types.items() for dtype in dtypes]
    for path, dtype in declared:
        if why := _NOT_IN_TORCH.get(dtype):
            yield Mistake(path, f"found {dtype!r}, allowed with torch=None: {why}")


_FOUR_BITS = (
    "torch 2.6 to 2.15 has {0} in name alone, and copies no tensor of it. Declare type='{1}' with onnx_type='{0}': one "
    "number in each element, which exports cast"
)
_NOT_IN_TORCH: Mapping[str, str] = {
    "string": "torch has no tensors of strings. Declare int64 and pass codes of the strings",
    "int4": _FOUR_BITS.format("int4", "int8"),
    "uint4": _FOUR_BITS.format("uint4", "uint8"),
}
CAST_SINCE = 21  # the first opset whose Cast takes int4
_OF_ONNX: Mapping[str, tuple[str, int, int]] = {"int4": ("int8", -8, 7), "uint4": ("uint8", 0, 15)}


def _onnx_types(spec: OpSpec) -> Iterator[Mistake]:
    """Yield the mistakes of inputs and outputs that have another dtype in the node."""
    found = [(path, part) for path, part in _tensors_by_path(spec) if part.onnx_type]
    for path, part in found:
        assert part.onnx_type is not None
        dtype, low, high = _OF_ONNX[part.onnx_type]
        if part.type != dtype:
            yield Mistake(f"{path}.onnx_type", f"found {part.onnx_type!r} for the type {part.type!r}, allowed: "
                          "'int4' for int8, 'uint4' for uint8")  # fmt: skip
        elif spec.torch is None:
            yield Mistake(f"{path}.onnx_type", f"is set with torch=None; write type={part.onnx_type!r}")
        elif not has_torch_library(spec):
            yield Mistake(f"{path}.onnx_type", "is set for an operator without a torch library of its own, whose "
                          f"lowering casts what it needs; leave it out, or write type={part.onnx_type!r}")  # fmt: skip
        elif isinstance(part, Output) and (part.variadic or part.may_inplace):
            field = "variadic" if part.variadic else "may_inplace"
            yield Mistake(f"{path}.onnx_type", f"is set beside {field}, allowed: one of both")
        elif isinstance(part, Input) and not _within(part.values, low, high):
            yield Mistake(f"{path}.values", f"found {part.values and 'other limits'}, allowed: "
                          f"ValueRule(minimum={low}, maximum={high}), or narrower limits. The tensor in torch holds "
                          f"more numbers than {part.onnx_type}")  # fmt: skip
        if any(output.may_inplace == part.name for output in spec.outputs):
            yield Mistake(f"{path}.onnx_type", "is set for an input whose memory an output may have, allowed: one of "
                          "both; the kernel has its numbers in another form than ONNX Runtime")  # fmt: skip
    if found and spec.min_opset < CAST_SINCE:
        yield Mistake("min_opset", f"found {spec.min_opset}, allowed: from {CAST_SINCE} on, because exports cast "
                      f"{found[0][1].name!r} to {found[0][1].onnx_type}, which Cast takes since then")  # fmt: skip


def _within(rule: ValueRule | None, low: int, high: int) -> bool:
    """Return whether each value that obeys a rule is in a range, whatever the sizes and attributes of a call are."""
    if rule is None:
        return False
    if rule.allowed is not None:
        return all(low <= value <= high for value in rule.allowed)
    if isinstance(rule.index_into, int):
        return rule.index_into - 1 <= high
    ends = (rule.minimum, rule.maximum)
    least, greatest = (0 if low == 0 and ends[0] is None else ends[0], ends[1])
    return isinstance(least, int | float) and isinstance(greatest, int | float) and least >= low and greatest <= high


def _shapes(spec: OpSpec) -> Iterator[Mistake]:
    for path, part in by_path("inputs", spec.inputs[:-1]):
        if part.variadic:
            yield Mistake(f"{path}.variadic", f"{part.name!r} is not the last input; ONNX has a variadic one last")
    if spec.inputs and not sure_inputs(spec):
        yield Mistake("inputs", "found none that is required, allowed: at least one; outputs are created like it")
    before: list[str] = []  # the required inputs before this one
    for path, part in by_path("inputs", spec.inputs):
        if part.same_as is not None and part.same_as not in before:
            yield not_one_of(f"{path}.same_as", part.same_as, before or ["nothing: no required input before"])
        if part.same_as is not None and part.dims is not None:
            yield Mistake(path, f"found dims={part.dims} and same_as={part.same_as!r}, allowed: one of both")
        if part.optional and part.variadic:
            yield Mistake(path, f"{part.name!r} is optional and variadic; choose one: none is a number")
        if is_required(part):
            before.append(part.name)
    yield from sizes(spec)
    switches = [a.name for a in spec.attributes if a.kind == "bool" and not (a.torch_only or a.optional)]
    for path, output in by_path("outputs", spec.outputs):
        if isinstance(output.optional, str) and output.optional not in switches:
            none = ["True: the node has no attribute of kind bool"]
            yield not_one_of(f"{path}.optional", output.optional, switches or none)
    if spec.outputs and all(output.optional for output in spec.outputs):
        yield Mistake("outputs", "found none that is required, allowed: at least one; ONNX Runtime removes a node of "
                      "which no output is used")  # fmt: skip


def _in_place(spec: OpSpec) -> Iterator[Mistake]:
    """Yield the mistakes of outputs that may have the memory of an input."""
    required = {i.name: i for i in spec.inputs if is_required(i)}
    for path, output in by_path("outputs", spec.outputs):
        path, name = f"{path}.may_inplace", output.may_inplace
        if name is None:
            continue
        if name not in required:
            yield not_one_of(path, name, [*required])
        elif not has_kernel(spec):
            yield Mistake(path, f"found {name!r}, allowed for an operator with a kernel of its own")
        elif output.type != required[name].type or output.shape != SameAs(input=name):
            yield Mistake(path, f"found {name!r}, allowed with type={required[name].type!r} and shape=SameAs(input="
                          f"{name!r}): the memory of the input must hold the output")  # fmt: skip
        elif "string" in allowed_dtypes(spec, output.type):
            yield Mistake(path, f"found {name!r}, of strings, allowed: numbers; the strings of an output are empty "
                          "before the kernel writes them")  # fmt: skip
        elif is_copied(spec, output.type):
            yield Mistake(path, f"found {name!r}, which may be of int4 or uint4, allowed: dtypes that a kernel has as "
                          "ONNX Runtime has them")  # fmt: skip
        elif output.optional:
            yield Mistake(path, f"found {name!r} and optional={output.optional!r}, allowed: one of both")
    for twice in duplicates([o.may_inplace for o in spec.outputs if o.may_inplace]):
        yield Mistake("outputs", f"two outputs may have the memory of {twice!r}, allowed: one")


def _variadic_output(spec: OpSpec) -> Iterator[Mistake]:
    for path, output in by_path("outputs", spec.outputs):
        if (name := output.variadic) is None:
            continue
        if path != f"outputs[{len(spec.outputs) - 1}]":
            yield Mistake(f"{path}.variadic", f"{output.name!r} is not the last output; ONNX has a variadic one last")
        yield from _counter(spec, output, f"{path}.variadic")
        if isinstance(output.shape, FromKernel):
            yield Mistake(f"{path}.shape", "found FromKernel at a variadic output, allowed: SameAs or Dims")
        if has_own_shapes(output) and isinstance(output.shape, SameAs) and output.shape.replace:
            yield Mistake(f"{path}.shape", f"found replace={dict(output.shape.replace)} of {name!r}, allowed: "
                          f"SameAs(input={name!r}) alone: each output has the shape of its tensor")  # fmt: skip
        others = {
            f"{other}.{field}": getattr(part, field)
            for other, part in by_path("outputs", spec.outputs)
            for field in ("optional", "writes", "may_inplace")
        }
        others |= {"uses": spec.uses}
        if spec.torch:
            others |= {"torch.overrides": [one.name for one in spec.torch.overrides]}
            others |= {f"torch.{field}": getattr(spec.torch, field) for field in ("backward", "batch", "python")}
        for field, value in others.items():
            if value:
                yield Mistake(field, f"found {value!r}, allowed without a variadic output, which {output.name!r} is")
        for part in _parts(spec):
            if re.fullmatch(rf"{re.escape(output.name)}_\d+", part.name):
                yield Mistake(f"{part.name!r}", f"is the name of a tensor of {output.name!r}; choose another name")


def _counter(spec: OpSpec, output: Output, path: str) -> Iterator[Mistake]:
    """Yield what is wrong with what says how many tensors a variadic output has."""
    name = output.variadic
    counted = [a for a in spec.attributes if a.kind in ("int", "ints") and not (a.torch_only or a.optional)]
    known = [*(i.name for i in spec.inputs if i.variadic), *(a.name for a in counted)]
    if name not in known:
        none = ["none: no input is variadic, and no attribute of the node is an int or a list of ints"]
        yield not_one_of(path, name, known or none)
    for attribute in counted:
        if attribute.name == name and attribute.kind == "int" and ((low := least(attribute)) is None or low < 1):
            yield Mistake(path, f"found {name!r}, whose minimum is {low}, allowed: an int with a minimum of 1 or more: "
                          "a node has at least one output")  # fmt: skip


def _evolution(spec: OpSpec) -> Iterator[Mistake]:
    first = spec.onnx.since_version
    allowed = [v for v in spec.onnx.versions if v > first]
    for path, attribute in by_path("attributes", spec.attributes):
        if attribute.name == MARK:
            yield Mistake(f"{path}.name", f"found {MARK!r}, which nodes of a later schema have already; rename it")
        if attribute.since is None:
            continue
        if attribute.since not in allowed:
            shown = ", ".join(map(str, allowed)) or f"none: onnx.versions has nothing after {first}; add it there"
            yield Mistake(f"{path}.since", f"found {attribute.since}, allowed: {shown}")
        if attribute.default is None and not attribute.optional:
            yield Mistake(f"{path}.default", "missing; it is the attribute's value in models of earlier versions, "
                          "so the operator must compute with it what it computed before")  # fmt: skip
        if spec.uses:
            yield Mistake(f"{path}.since", f"found on an operator without a node of its own; allowed: in "
                          f"{' or '.join(spec.uses)}, whose nodes it is written as")  # fmt: skip
    order = [a.since or first for a in spec.attributes]
    if order != sorted(order):
        shown = ", ".join(f"{a.name} since {a.since or first}" for a in spec.attributes)
        yield Mistake("attributes", f"found {shown}, allowed: those of later versions last; torch's schema may grow at "
                      "its end alone")  # fmt: skip


def _lowerings(spec: OpSpec) -> Iterator[Mistake]:
    first, last = NODE_OPSETS.start, NODE_OPSETS.stop - 1  # more than any exporter of torch writes
    if not first <= spec.min_opset <= last:
        yield Mistake("min_opset", f"found {spec.min_opset}, allowed: {first} to {last}; no exporter writes any other")
    if not spec.lowerings:
        yield Mistake("lowerings", "found none, allowed: 'custom', 'decomposed'")
    dtypes = list(dict.fromkeys(dtype for o in spec.outputs for dtype in allowed_dtypes(spec, o.type)))
    for lowering in spec.lowerings:
        for dtype in dtypes:
            if dtype not in spec.tolerances.get(lowering, {}):
                yield Mistake(f"tolerances[{lowering!r}]", f"{dtype!r} is missing; outputs have {', '.join(dtypes)}")
    for lowering, by_dtype in spec.tolerances.items():
        for dtype, tolerance in by_dtype.items():
            for name, limit in (("rtol", tolerance.rtol), ("atol", tolerance.atol)):
                field = f"tolerances[{lowering!r}][{dtype!r}].{name}"
                if dtype == "string" and limit != 0:
                    yield Mistake(field, f"found {limit!r}, allowed: 0.0; strings are equal or not")
                elif not 0 <= limit < math.inf:
                    yield Mistake(field, f"found {limit!r}, allowed: a number from 0 on")


def _other_fields(spec: OpSpec) -> Iterator[Mistake]:
    for path, headers in by_path("headers", spec.headers):
        folder = PurePosixPath(headers.folder)
        unusable = folder.is_absolute() or ".." in folder.parts or any(len(p.encode()) > 255 for p in folder.parts)
        if unusable or not folder.parts:
            of = f"where {headers.distribution!r} is installed" if headers.distribution else "the project's root"
            why = f"allowed: a folder relative to {of}, without '..'"
            yield Mistake(f"{path}.folder", f"found {headers.folder!r}, {why}")
    if spec.cpu_levels and not has_kernel(spec):
        why = f"it uses the nodes of {' and '.join(spec.uses)}" if spec.uses else "ONNX Runtime has the kernel"
        yield Mistake("cpu_levels", f"found True, allowed: False, because {why}: no kernel of its own is compiled")
    found = next((dtype for dtype in _NOT_IN_TORCH if dtype in all_dtypes(spec)), None)
    if spec.reference == "torch" and found:
        of = "strings" if found == "string" else found
        yield Mistake("reference", f"found 'torch', allowed: 'numpy', because torch has no tensors of {of}")
    if spec.onnx.since_version != 1:  # what a declaration can have in a later version of opmatrix
        yield Mistake("onnx.since_version", f"found {spec.onnx.since_version}, not supported yet, allowed: 1")


def handwritten_files(spec: OpSpec, files: Set[str]) -> Iterator[Mistake]:
    """Yield hand-written C++ files that are missing in native/<name>/ or unused; the field is the file's name."""
    libraries = [("torch", OWN_TORCH, has_torch_library(spec)), ("ONNX Runtime", OWN_ORT, has_kernel(spec))]
    needed = [(framework, file) for framework, file, has_library in libraries if has_library and file not in files]
    if needed and not has_kernel_object(spec, files):
        bindings, own = (" and ".join(names) for names in zip(*needed, strict=True))
        yield Mistake(KERNEL, f"missing; the generated binding of {bindings} calls it. Write it, or add {own} of your "
                      "own as well")  # fmt: skip
    if spec.cpu_levels and has_kernel(spec) and not has_kernel_object(spec, files):
        yield Mistake(KERNEL, "missing; cpu_levels=True in spec.py compiles it for each level of the processor. Write "
                      "it, or remove cpu_levels")  # fmt: skip
    if OWN_ORT in files and (output := next((o for o in spec.outputs if o.may_inplace), None)):
        yield Mistake(OWN_ORT, f"found with may_inplace={output.may_inplace!r} of the output {output.name!r}, allowed: "
                      "one of both; it registers the operator itself, with or without GetMayInplace")  # fmt: skip
    if spec.elementwise and is_own(OWN_TORCH, spec, files):
        yield Mistake(OWN_TORCH, "found with elementwise=True in spec.py, allowed: one of both; the file decides which "
                      "tensors are copied. Remove elementwise=True, or this file")  # fmt: skip
    for framework, file, has_library in libraries:
        if file in files and not has_library:
            yield Mistake(file, f"nothing compiles it: as ops/{spec.name}/spec.py declares the operator, no generated "
                          f"library gives it to {framework}. Remove this file, or change the declaration")  # fmt: skip
