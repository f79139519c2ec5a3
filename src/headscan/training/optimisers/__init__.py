"""One optimiser a file; `headscan.training.optimiser` says what an optimiser is."""
