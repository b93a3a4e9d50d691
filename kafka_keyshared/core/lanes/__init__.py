"""Closed lanes, and leases of single keys."""
