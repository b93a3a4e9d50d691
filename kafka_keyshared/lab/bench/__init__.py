"""Repeatable measurements of this package beside the bare consume loop."""
