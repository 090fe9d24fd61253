"""Checks of models in ONNX Runtime, for verify, ort-fuzz and `doit check`: sessions, runs and their judgement."""
