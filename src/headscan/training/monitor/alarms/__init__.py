"""Rules of the monitor, one in each file."""
