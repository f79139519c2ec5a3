"""BadInput, until everybody takes it from `headscan.run`."""

from headscan.run.errors import BadInput

__all__ = ["BadInput"]
