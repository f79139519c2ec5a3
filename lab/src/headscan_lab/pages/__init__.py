"""The pages of the laboratory's results."""
