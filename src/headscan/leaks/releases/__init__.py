"""What may leak, one a file: whatever module lies here is found by itself."""
