"""Observation of instances: HTTP, diagnosis, doctor and audit."""
