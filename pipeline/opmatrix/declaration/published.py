"""Published schemas, which users of an operator rely on: stored as JSON and compared with the declaration.

ops/<name>/published/<version>/ contains schema.json, and a model of that version with its data, which verify runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from opmatrix.declaration.validation import Mistake
from opmatrix.project.paths import Paths
from opmatrix.signature import versions as schema_versions
from opmatrix.signature.signature import callers_schema
from opmatrix.spec import Dims, FromKernel, Input, OpSpec, Output, SameAs, ValueRule, as_data

Schema = Mapping[str, Any]

_PARTS = ("inputs", "outputs", "attributes")
_LATER = "later_types"  # dtypes that joined `types` after the version was published
_SILENT = ("", "name", "doc", "no_effect", "since", "may_inplace")  # not part of the schema, or its key


def schema(spec: OpSpec, version: int) -> Schema:
    """Return the schema of a declaration at one of its versions, as JSON data."""
    then = schema_versions.at(spec, version)
    mark = [schema_versions.version_mark(version)] if version != spec.onnx.since_version else []
    return {
        "domain": then.onnx.domain,
        "op_type": then.onnx.op_type,
        "since_version": version,
        "domain_versions": list(then.onnx.versions),
        "torch": _torch(then),
        "types": {variable: list(dtypes) for variable, dtypes in then.types.items()},
        "inputs": {part.name: _fields(part) for part in then.inputs},
        "outputs": {part.name: _fields(part) for part in then.outputs},
        "attributes": {part.name: _fields(part) for part in (*then.attributes, *mark)},
    }


def _torch(spec: OpSpec) -> str | None:
    """Return the torch schema, and the arguments that have one legal value."""
    if spec.torch is None or spec.torch.overrides:
        return None
    fixed = ", ".join(f"{name}={value}" for name, value in spec.torch.fixed.items())
    return callers_schema(spec) + (f" with {fixed}" if fixed else "")


def _fields(part: object) -> dict[str, Any]:
    """Return the fields of an input, an output or an attribute that are set."""
    found = {k: v for k, v in as_data(part).items() if k not in _SILENT and v is not None}
    if isinstance(part, Output):
        found["shape"] = _rule(part.shape)
    if isinstance(part, Input) and part.values:
        unset = as_data(ValueRule())
        found["values"] = {k: v for k, v in as_data(part.values).items() if v != unset[k]}
    flags = ("optional", "variadic", "torch_only")
    return {k: v for k, v in found.items() if k not in flags or v}


def _rule(shape: SameAs | Dims | FromKernel) -> str:
    match shape:
        case SameAs(input=str(name), replace=replace) | FromKernel(input=str(name), replace=replace):
            found = "; found by the kernel in part" if isinstance(shape, FromKernel) else ""
            return f"as {name}" + "".join(f", {key}: {dim}" for key, dim in replace.items()) + found
        case Dims(dims=dims):
            return f"({', '.join(map(str, dims))})"
        case FromKernel(rank=rank, dims=None):
            return f"found by the kernel, of rank {rank}"
        case FromKernel(dims=dims):
            return f"({', '.join(map(str, dims or ()))}), found by the kernel in part"


def text(published: Schema) -> str:
    """Return the content of schema.json: one line for each input, output and attribute."""

    def value(item: Any) -> str:
        if not isinstance(item, dict) or not item:
            return json.dumps(item)
        lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(part)}" for name, part in item.items())
        return f"{{\n{lines}\n  }}"

    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {value(item)}" for key, item in published.items()) + "\n}\n"


def versions(paths: Paths, name: str) -> tuple[int, ...]:
    """Return the versions of an operator that are published, oldest first."""
    folder = paths.published(name)
    found = [p.name for p in folder.iterdir() if p.name.isdecimal()] if folder.is_dir() else []
    return tuple(sorted(map(int, found)))


def mistakes(paths: Paths, spec: OpSpec) -> Iterator[str]:
    """Yield how the declaration differs from the published schemas, and what to do about it."""
    shown = paths.spec(spec.name).relative_to(paths.root)
    reported: set[str] = set()
    for version in versions(paths, spec.name):
        path = paths.published(spec.name, version).relative_to(paths.root)
        try:
            kept = _read(paths.published(spec.name, version) / "schema.json", version)
        except (OSError, ValueError) as error:
            yield f"{path / 'schema.json'}: {error}. Take it from the history of the project"
            continue
        for mistake in differences(kept, spec, path):
            if mistake.field not in reported:  # a later version repeats what an earlier one has
                yield f"{shown}: {mistake.field}: {mistake.text}"
            reported.add(mistake.field)


def _read(path: Path, version: int) -> Schema:
    """Return a published schema. Raises OSError or ValueError where it is missing or damaged."""
    kept: Schema = json.loads(path.read_text(encoding="utf-8"))
    wanted = {"domain", "op_type", "since_version", "domain_versions", "torch", "types", *_PARTS}
    whole = isinstance(kept, dict) and kept.keys() - {_LATER} == wanted and kept["since_version"] == version
    if not whole or not all(isinstance(kept[kind], dict) for kind in ("types", *_PARTS)):
        raise ValueError(f"not the published schema of version {version}")
    return kept


def updated(kept: Schema, spec: OpSpec) -> Schema:
    """Return a published schema with what has joined it since: versions of the domain, and dtypes."""
    now = schema(spec, kept["since_version"])
    later = {v: [d for d in dtypes if d not in kept["types"].get(v, ())] for v, dtypes in now["types"].items()}
    made = {**now, "types": kept["types"], _LATER: {v: dtypes for v, dtypes in later.items() if dtypes}}
    return {name: part for name, part in made.items() if part or name != _LATER}


def differences(kept: Schema, spec: OpSpec, path: Path) -> list[Mistake]:
    """Return how `spec` differs from a published schema: one mistake for each difference."""
    version = kept["since_version"]
    breaks = (
        "Models and programs of others rely on it: take it back, or make an operator with another op_type next to "
        f"this one. If nothing uses version {version}, delete {path}"
    )
    if version not in schema_versions.versions(spec):
        declared = ", ".join(map(str, schema_versions.versions(spec)))
        return [Mistake("attributes", f"version {version} is published, and the declaration has: {declared}. {breaks}")]
    now = schema(spec, version)

    def differs(field: str, was: object, is_now: object) -> Mistake:
        found = "nothing" if is_now is None else is_now
        was = "nothing" if was is None else was
        return Mistake(field, f"version {version} is published with {was}, found {found}. {breaks}")

    wrong = [differs(f"onnx.{f}", repr(kept[f]), repr(now[f])) for f in ("domain", "op_type") if kept[f] != now[f]]
    if taken := [v for v in kept["domain_versions"] if v not in now["domain_versions"]]:
        wrong.append(Mistake("onnx.versions", _lost_versions(spec, kept, taken, breaks)))
    for variable, first in kept["types"].items():
        dtypes = first + kept.get(_LATER, {}).get(variable, [])
        if not set(dtypes) <= set(now["types"].get(variable, ())):  # a library without one more refuses its models
            wrong.append(differs(f"types[{variable!r}]", dtypes, now["types"].get(variable)))
    for kind in _PARTS:
        old, new = kept[kind], now[kind]
        more = f"version {version} is published with no such name. {_added(kind, kept, spec)}"
        wrong += [Mistake(f"{kind}[{name!r}]", more) for name in new if name not in old]
        wrong += [differs(f"{kind}[{name!r}]", "it", "nothing of that name") for name in old if name not in new]
        if old.keys() == new.keys() and list(old) != list(new):
            wrong.append(differs(kind, f"the order {', '.join(old)}", ", ".join(new)))
        wrong += [
            differs(f"{kind}[{name!r}].{field}", old[name].get(field), new[name].get(field))
            for name in old
            if name in new
            for field in sorted(old[name].keys() | new[name].keys())
            if old[name].get(field) != new[name].get(field)
        ]
    if not wrong and kept["torch"] != now["torch"]:  # otherwise it follows from the differences above
        wrong.append(differs("torch", repr(kept["torch"]), repr(now["torch"])))
    return wrong


def _lost_versions(spec: OpSpec, kept: Schema, taken: Sequence[int], breaks: str) -> str:
    version, shown = kept["since_version"], ", ".join(map(str, kept["domain_versions"]))
    if later := [v for v in taken if v in spec.onnx.versions]:
        return (
            f"models that import {', '.join(map(str, later))} have schema {version}, which is published for {shown}. "
            f"Give what is new since={max(kept['domain_versions']) + 1}, and add that to onnx.versions"
        )
    gone = f"{', '.join(map(str, taken))} {'is' if len(taken) == 1 else 'are'} gone"
    return f"version {version} is published for {shown}, and {gone}. {breaks}"


def _added(kind: str, kept: Schema, spec: OpSpec) -> str:
    """Return how an operator can get one more input, output or attribute."""
    if kind == "attributes":
        since = max(*kept["domain_versions"], *spec.onnx.versions[-1:], spec.onnx.since_version)
        since = since if since > max(kept["domain_versions"]) else since + 1
        return f"Give it since={since} and a default, and let onnx.versions have {since}"
    why = "torch has them before the attributes" if kind == "inputs" else "torch returns them all"
    return f"It can have no more {kind}: {why}, so that calls would break. Make an operator with another op_type"
