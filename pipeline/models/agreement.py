"""What the manifests of two exports have in common. Needs no framework: they are JSON data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Manifest = Mapping[str, Any]


def differing_models(a: Manifest, b: Manifest) -> list[str]:
    """Return the models of two manifests that differ in custom nodes: domain, version, op type or attributes.

    How the nodes are wired is each model's own affair: exporters name inner values as they like.
    """
    models = sorted({*a["models"], *b["models"]})
    return [m for m in models if custom_nodes(a, m) != custom_nodes(b, m)]


def custom_nodes(manifest: Manifest, model: str) -> list[str]:
    """Return the custom nodes of a model as text, sorted: ``mydomain::mygroupnorm@2(epsilon=FLOAT 0.0)``."""
    described = manifest["models"].get(model, {"nodes": []})
    return sorted(_spell(n, described["opset_imports"]) for n in described["nodes"] if n["domain"])


def _spell(node: Mapping[str, Any], opset_imports: Mapping[str, int]) -> str:
    domain = node["domain"]
    attributes = ", ".join(f"{name}={a['type']} {a['value']}" for name, a in node["attributes"].items())
    return f"{domain}::{node['op_type']}@{opset_imports.get(domain)}({attributes})"
