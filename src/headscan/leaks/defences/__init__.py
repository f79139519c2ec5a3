"""What may be done to a release, one a file: whatever module lies here is found by itself."""
