"""The formats of stored states, a family a file."""
