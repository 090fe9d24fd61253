"""Lowerings: one notation for the ONNX nodes of an operator, for both exporters and for function bodies."""
