"""One way of getting a head back a file; `headscan.training.recovery` says what it is."""
