"""Numbers and words; see `headscan.report.kit.words`."""

from headscan.report.kit.words import *  # noqa: F403
