"""Probes beside the instrument's own: neural collapse over next tokens, Zipf's law of the text,
embedding rows by frequency.
"""
