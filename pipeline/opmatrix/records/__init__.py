"""Steps, verdicts, and which code a step runs."""
