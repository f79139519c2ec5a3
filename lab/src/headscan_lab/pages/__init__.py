"""The pages of the laboratory's results; their templates and styles lie in this package."""

from headscan.report.kit.html import HOMES

if "headscan_lab" not in HOMES:
    HOMES.append("headscan_lab")
