"""One term that may be added to a loss a file; `headscan.training.regulariser` says what a term is."""
