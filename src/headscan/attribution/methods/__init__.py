"""One file a method of attribution; each registers itself in `headscan.attribution.METHODS`."""
