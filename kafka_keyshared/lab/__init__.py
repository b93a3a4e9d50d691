"""Simulator, benchmarks and demo."""
