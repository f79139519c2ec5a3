"""`python -m headscan`: the same as `headscan`."""

from headscan.cli import main

main()
