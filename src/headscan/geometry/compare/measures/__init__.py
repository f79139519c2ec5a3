"""Measures of similarity, one a file."""
