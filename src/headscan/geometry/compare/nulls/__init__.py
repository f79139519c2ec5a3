"""Nulls of a comparison, one a file."""
