"""One objective a file; `headscan.training.objective` says what an objective is."""
