"""A second version of group_norm for tests, made from the first as its owner would: a new attribute, `lift`."""

from __future__ import annotations

from tests.support.projects import Project

SINCE = 3  # versions 1 and 2 of the domain are published: models of the first schema import either

SPEC = (
    ("versions=(1, 2)", f"versions=(1, 2, {SINCE})"),
    (
        'doc="added to the variance"\n        ),\n',
        'doc="added to the variance"\n        ),\n        Attribute(name="lift", kind="float", default=0.0, '
        f'since={SINCE}, doc="added to y"),\n',
    ),
)
KERNEL = (
    ("float epsilon, TensorView<T> y)", "float epsilon, float lift, TensorView<T> y)"),
    ("double epsilon, T* y)", "double epsilon, double lift, T* y)"),
    ("static_cast<double>(epsilon),", "static_cast<double>(epsilon), static_cast<double>(lift),"),
    ("load(bias + c)", "load(bias + c) + lift"),
)
REFERENCE = (
    ("    epsilon: float,\n", "    epsilon: float,\n    lift: float,\n"),
    ("(normal * factor + summand)", "(normal * factor + summand + np.longdouble(lift))"),
)
LOWERING = (
    ("bias: Any, epsilon: float)", "bias: Any, epsilon: float, lift: float)"),
    (
        "    y = g.op(",
        '    summand = g.op("Add", summand, g.constant(lift, "float64"))\n    y = g.op(',
    ),
)
TORCH_OP = (
    ("x, num_groups, scale, _, ctx.eps = inputs", "x, num_groups, scale, _, ctx.eps, _ = inputs"),
    ("outer.sum((0, 2)).to(own), None\n", "outer.sum((0, 2)).to(own), None, None\n"),
)
CASES = (
    (
        'attributes={"epsilon": 1e-3},\n        domain_version=2',
        f'attributes={{"epsilon": 1e-3, "lift": 0.25}},\n        domain_version={SINCE}',
    ),
    (
        'attributes={"epsilon": 0.01},\n        dynamic={"x": ("N", "C", "H")',
        'attributes={"epsilon": 0.01, "lift": 0.25},\n'
        f'        domain_version={SINCE},\n        dynamic={{"x": ("N", "C", "H")',
    ),
)


def evolve(project: Project) -> None:
    """Write the second version of a project's group_norm, with models of both."""
    for path, changes in (
        ("ops/group_norm/spec.py", SPEC),
        ("native/group_norm/kernel.h", KERNEL),
        ("ops/group_norm/reference.py", REFERENCE),
        ("ops/group_norm/lowering.py", LOWERING),
        ("ops/group_norm/torch_op.py", TORCH_OP),
        ("ops/group_norm/cases.py", CASES),
    ):
        for old, new in changes:
            project.replace(path, old, new)
