"""The arguments of an operator in torch, ONNX and C++, its torch schema, and its versions."""
