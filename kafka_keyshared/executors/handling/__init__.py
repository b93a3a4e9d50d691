"""Handler calls: serdes, verdicts, outputs, tracing and descriptions of failures."""
