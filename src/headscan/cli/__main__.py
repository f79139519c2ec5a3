"""`python -m headscan.cli`: the same as `headscan`."""

from headscan.cli import main

main()
