"""Models in ONNX Runtime: sessions, the second oracle, and the judgement of a case."""
