"""Positions, settled sets and commit metadata."""
