"""The conditions, one a file; see `headscan.diagnosis.condition`."""
