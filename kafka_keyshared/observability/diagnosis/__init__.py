"""Diagnosis of a status: all causes, and the function that finds them."""
