"""The formats of stored states, one a file."""
