"""Limits on records that are received and may not start."""
