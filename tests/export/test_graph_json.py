"""Graphs of models for the report. Messages of the exporters are collected, not printed, and each one that is not
accepted fails the export.
"""

from __future__ import annotations

import json
import logging
import re
import warnings

import numpy as np
import pytest
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from opmatrix.export.exporter_warnings import ACCEPTED, collected, unexpected
from opmatrix.export.manifest import graph_json


def model(*nodes: NodeProto, names: tuple[str, str, str] = ("x", "h", "y")) -> ModelProto:
    """Return a model from the first to the last of `names`; W is a weight with eight elements."""
    x = helper.make_tensor_value_info(names[0], TensorProto.FLOAT, ["n", 4])
    y = helper.make_tensor_value_info(names[2], TensorProto.DOUBLE, None)
    weight = numpy_helper.from_array(np.zeros((2, 4), np.float32), "W")
    graph = helper.make_graph(list(nodes), "g", [x], [y], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("mine", 3)])


def chain(names: tuple[str, str, str]) -> ModelProto:
    x, h, y = names
    shape = helper.make_node("Constant", [], [f"{h}_shape"], value=numpy_helper.from_array(np.array([0, -1])))
    return model(
        shape,
        helper.make_node("norm", [x, "", "W"], [h], domain="mine", eps=1e-5, mode="fast"),
        helper.make_node("Reshape", [h, f"{h}_shape"], [y]),
        names=names,
    )


@pytest.mark.parametrize("inner", ["h", "/Reshape_output_0"])
def test_a_custom_node_between_constants(inner: str) -> None:
    assert graph_json(chain(("x", inner, "y"))) == {
        "inputs": [[0, "x", "float32[n, 4]"]],
        "nodes": [
            {"op": "norm", "domain": "mine", "version": 3, "in": [0, None, "float32[2, 4]"], "out": [1],
             "attributes": {"eps": "1e-05", "mode": "'fast'"}},
            {"op": "Reshape", "in": [1, "[0, -1]"], "out": [2], "attributes": {}},
        ],
        "outputs": [[2, "y", "float64"]],
    }  # fmt: skip


def test_an_output_may_be_a_constant_and_only_that_of_onnx_is_one() -> None:
    constant = helper.make_node("Constant", [], ["y"], value_float=0.5)
    assert graph_json(model(constant))["outputs"] == [["0.5", "y", "float64"]]
    node = helper.make_node("Constant", [], ["y"], domain="mine", value=1)
    assert graph_json(model(node))["nodes"][0]["op"] == "Constant"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3, "3"),
        (0.1, "0.1"),  # as float32 it is 0.10000000149
        (float("nan"), "nan"),
        ("a\n", "'a\\n'"),
        (b"\xff", "'\N{REPLACEMENT CHARACTER}'"),
        ([1, 2], "[1, 2]"),
        ([0.5, 1e30], "[0.5, 1e+30]"),
        (["a", "b"], "['a', 'b']"),
        (list(range(100)), f"{str(list(range(100)))[:79]}…"),
        (numpy_helper.from_array(np.array(7, np.int64)), "7"),
        (numpy_helper.from_array(np.array([True, False])), "[True, False]"),
        (numpy_helper.from_array(np.zeros((0, 3), np.float16)), "[]"),
        (numpy_helper.from_array(np.zeros(7, np.float16)), "float16[7]"),
        (helper.make_tensor("t", TensorProto.BFLOAT16, [1], [1.5]), "[1.5]"),
        (helper.make_tensor("t", TensorProto.STRING, [1], [b"a"]), "string[1]"),
        (helper.make_graph([], "inner", [], []), "graph"),
        (AttributeProto(name="a", type=AttributeProto.INTS), "[]"),
    ],
)
def test_attributes_as_strings(value: object, text: str) -> None:
    node = helper.make_node("op", ["x"], ["y"], domain="mine")
    node.attribute.append(value if isinstance(value, AttributeProto) else helper.make_attribute("a", value))
    found = graph_json(model(node))
    assert found["nodes"][0]["attributes"] == {"a": text}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_warnings_and_log_records_are_collected_and_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("torch.onnx.planted")
    logger.addHandler(logging.StreamHandler())  # as torch's own loggers have one
    before = (list(logger.handlers), logger.propagate)
    with collected() as texts:
        warnings.warn("planted warning", DeprecationWarning, stacklevel=1)
        logger.warning("planted %s", "record")
        logging.getLogger("onnxscript.planted").error("planted error")
        logger.info("of no interest")
    assert sorted(texts) == ["planted error", "planted record", "planted warning"]
    assert capfd.readouterr() == ("", "")
    assert (logger.handlers, logger.propagate) == before


def test_a_message_is_accepted_by_its_beginning_and_others_are_named_once() -> None:
    accepted = next(iter(ACCEPTED))
    texts = [f"{accepted} and more of it", "something new", "something new", f"x{accepted}"]
    assert unexpected(texts) == ["something new", f"x{accepted}"]


@pytest.mark.parametrize("accepted", ACCEPTED, ids=lambda text: text[:30])
def test_each_accepted_message_has_versions_and_a_reason(accepted: str) -> None:
    assert re.match(r"torch \d+\.\d+( (to|and) \d+\.\d+)?: \w", ACCEPTED[accepted])
