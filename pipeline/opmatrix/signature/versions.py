"""The versions of an operator's schema, and the declaration at each of them."""

from __future__ import annotations

from dataclasses import replace

from opmatrix.spec import Attribute, OpSpec

# The attribute with the schema version of a node. ONNX Runtime ignores attributes that a library does not know, and
# passes no version: with this attribute a library that is too old for a node can reject it.
MARK = "schema_version"


def versions(spec: OpSpec) -> tuple[int, ...]:
    """Return the versions of the domain that introduce a schema, oldest first."""
    return tuple(sorted({spec.onnx.since_version, *(a.since for a in spec.attributes if a.since)}))


def version_at(spec: OpSpec, imported: int) -> int:
    """Return the since version of the schema for models that import version `imported` of the domain."""
    return max((v for v in versions(spec) if v <= imported), default=spec.onnx.since_version)


def at(spec: OpSpec, version: int) -> OpSpec:
    """Return the declaration at one of its `versions`, without later attributes."""
    later = [v for v in versions(spec) if v > version]
    served = tuple(v for v in spec.onnx.versions if v >= version and all(v < new for new in later))
    return replace(
        spec,
        onnx=replace(spec.onnx, since_version=version, versions=served),
        attributes=tuple(a for a in spec.attributes if (a.since or 0) <= version),
    )


def attributes_at(spec: OpSpec, imported: int) -> tuple[Attribute, ...]:
    """Return the attributes of a node in a model that imports version `imported` of the domain."""
    version = version_at(spec, imported)
    mark = () if version == spec.onnx.since_version else (version_mark(version),)
    return (*(a for a in at(spec, version).attributes if not a.torch_only), *mark)


def version_mark(version: int) -> Attribute:
    """Return the attribute that every node of a later schema has in addition to the declared ones."""
    doc = "so that an older library refuses the node"
    return Attribute(name=MARK, kind="int", default=version, allowed=(version,), doc=doc)
