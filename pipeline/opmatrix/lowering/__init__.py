"""How an operator becomes ONNX nodes: one notation, written once, for both exporters and for function bodies."""
