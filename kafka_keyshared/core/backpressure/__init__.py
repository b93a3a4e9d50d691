"""Reasons to pause partitions, and the rules that set them."""
