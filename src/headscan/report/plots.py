"""Until every page is in `headscan.report.pages`: what the old ones share."""

from headscan.report.kit.figures import layout, thin

__all__ = ["layout", "thin"]
