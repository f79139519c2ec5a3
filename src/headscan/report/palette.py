"""The colours; see `headscan.report.kit.palette`."""

from headscan.report.kit.palette import *  # noqa: F403
