"""Probes beside the instrument's own: neural collapse over next tokens, and Zipf's law of the text."""
